//! How one life of a machine reaches others over the simulated network: it is the `Network` that its node is given.

use crate::fault::Fault;
use crate::net::{Life, Net, machine_at, refused, reset};
use futures::future::{BoxFuture, Shared, pending, ready};
use futures::stream::{BoxStream, once};
use futures::{FutureExt, StreamExt};
use std::io;
use std::time::Duration;
use tenure_server::Refused;
use tenure_server::peers::v1::question::Body as Ask;
use tenure_server::peers::v1::{Answer, AppendRequest, Question};
use tenure_server::peers::{AppendReplies, Network};
use tokio::time::{sleep, timeout};

/// Messages of one stream that are under way at once.
const UNDER_WAY_MAX: usize = 64;

/// How long a connection may take to be made, and for how long a silent one is kept, in milliseconds.
const CONNECT: Duration = Duration::from_secs(1);
const SILENCE_MS: (u64, u64) = (2_000, 4_000);

pub(crate) struct Way {
    pub(crate) net: Net,
    pub(crate) us: Life,
}

/// The end of a connection, for both of its directions.
type Broken = Shared<BoxFuture<'static, ()>>;

impl Network for Way {
    fn ask(&self, address: &str, question: Question, patience: Duration) -> BoxFuture<'static, io::Result<Answer>> {
        let (net, us, to) = (self.net.clone(), self.us, machine_at(address));
        let asked = async move { net.exchange(us, to.ok_or_else(refused)?, question).await };
        timeout(patience, asked).map(|answer| answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))).boxed()
    }

    fn append(
        &self,
        _: u64,
        address: &str,
        requests: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>> {
        let (net, us, to) = (self.net.clone(), self.us, machine_at(address));
        async move {
            let to = to.ok_or_else(refused)?;
            timeout(CONNECT, net.connect_to(us, to)).await.unwrap_or_else(|_| Err(reset()))?;
            net.stream(us, to, requests)
        }
        .boxed()
    }
}

fn told(refused: Refused) -> io::Error {
    let kind = match refused {
        Refused::NotMeant(_) => io::ErrorKind::PermissionDenied,
        Refused::No(_) => io::ErrorKind::Other,
        Refused::Stopped => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, refused.to_string())
}

impl Net {
    /// A message was lost: whoever waits for the answer sees the connection break, at once or after a long silence.
    async fn silence<T>(&self) -> io::Result<T> {
        if self.dice.one_in(2) {
            sleep(self.dice.ms(SILENCE_MS.0, SILENCE_MS.1)).await;
        }
        Err(reset())
    }

    async fn exchange(&self, us: Life, to: usize, question: Question) -> io::Result<Answer> {
        if !self.is_alive(us) || !self.carry(us.machine, to).await {
            return self.silence().await;
        }
        let Some((them, host)) = self.host(to) else { return self.nobody().await };
        // A connection delivers a request once, and a node sends a command once. Raft's own questions may come again.
        let is_command = matches!(question.body, Some(Ask::Submit(_)));
        if !is_command && self.strikes(self.weather().repeats_one_in) {
            self.tally.count(Fault::Repeat);
            let (host, question, later) = (host.clone(), question.clone(), self.delay());
            tokio::spawn(async move {
                sleep(later).await;
                // The second answer comes too late for anybody.
                let _ = host.answer(question).await;
            });
        }
        let answer = if self.dice.one_in(2) {
            // Whoever is asked goes on, also if nobody waits any longer.
            let answered = tokio::spawn(async move { host.answer(question).await }).await;
            answered.map_err(io::Error::other)?
        } else {
            host.answer(question).await
        };
        if !self.is_alive(them) || !self.carry(to, us.machine).await || !self.is_alive(us) {
            return self.silence().await;
        }
        answer.map_err(told)
    }

    /// No process listens: the machine says so, or there is no machine.
    async fn nobody<T>(&self) -> io::Result<T> {
        if self.dice.one_in(2) { Err(refused()) } else { self.silence().await }
    }

    async fn connect_to(&self, us: Life, to: usize) -> io::Result<()> {
        let is_heard = self.is_alive(us) && self.carry(us.machine, to).await && self.carry(to, us.machine).await;
        if is_heard { Ok(()) } else { self.silence().await }
    }

    /// Entries there, answers back, each in its order, until the connection breaks.
    fn stream(&self, us: Life, to: usize, requests: BoxStream<'static, AppendRequest>) -> io::Result<AppendReplies> {
        let (them, host) = self.host(to).ok_or_else(refused)?;
        let broken: Broken = self.clone().until_broken(us, them).boxed().shared();
        let there = self.travel(us, them, requests).take_until(broken.clone());
        let back = host.append(there).map(|reply| reply.map_err(told)).boxed();
        let back = self.travel(them, us, back).take_until(broken);
        Ok(back.chain(once(ready(Err(reset())))).boxed())
    }

    /// What is sent in one life and arrives in the other, in its order. It waits where there is no way: the other side of a
    /// connection sends it again until it breaks.
    fn travel<T: Send + 'static>(&self, from: Life, to: Life, sent: BoxStream<'static, T>) -> BoxStream<'static, T> {
        let (sender, road, door) = (self.clone(), self.clone(), self.clone());
        sent.take_while(move |_| ready(sender.is_alive(from)))
            .map(move |message| {
                let delay = road.delay();
                async move {
                    sleep(delay).await;
                    message
                }
            })
            .buffered(UNDER_WAY_MAX)
            .then(move |message| {
                let door = door.clone();
                async move {
                    let (a, b) = (from.machine, to.machine);
                    door.until(|net| net.runs(a) && net.runs(b) && !net.is_cut(a, b)).await;
                    if !door.is_alive(to) {
                        pending::<()>().await;
                    }
                    message
                }
            })
            .boxed()
    }

    /// Returns when the connection between two lives is over: one of them is, or they hear nothing of each other for too
    /// long, or it breaks for no reason.
    async fn until_broken(self, us: Life, them: Life) {
        let (a, b) = (us.machine, them.machine);
        let silence = async {
            loop {
                self.until(|net| net.is_cut(a, b) || net.is_cut(b, a)).await;
                sleep(self.dice.ms(SILENCE_MS.0, SILENCE_MS.1)).await;
                if self.is_cut(a, b) || self.is_cut(b, a) {
                    return;
                }
            }
        };
        let death = async {
            self.until(|net| !net.is_alive(us) || !net.is_alive(them)).await;
            sleep(self.dice.ms(0, SILENCE_MS.1)).await;
        };
        let chance = async {
            loop {
                sleep(self.dice.ms(500, 10_000)).await;
                if self.weather().loses_one_in > 0 {
                    self.tally.count(Fault::Break);
                    return;
                }
            }
        };
        tokio::select! {
            () = silence => {}
            () = death => {}
            () = chance => {}
        }
    }
}
