//! The network between one client and the servers: links that carry messages both ways in their order, are slow, stall for
//! seconds and then deliver, deliver copies late, and break. At the other end the stream of a real server serves each link.

use super::planted::Planted;
use crate::dice::Dice;
use crate::fault::Fault;
use crate::machine::Site;
use crate::mix::Post;
use crate::net::{Life, machine_at};
use crate::run::Plant;
use futures::StreamExt;
use futures::stream::unfold;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure::Error;
use tenure::sans_io::{LinkId, News};
use tenure::v1::request::Body as Ask;
use tenure::v1::{Request, Response};
use tenure_server::{Node, serve_stream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Messages that wait on one link, in each direction.
const UNDER_WAY_MAX: usize = 256;

/// A message waits up to so long for what is before it in the sender, the network and the receiver, in milliseconds.
const DELAY_MS_MAX: u64 = 15;

/// One in so many requests that change claims is caught by a stall of its link: its sender goes on over another one, and it
/// arrives when it is not expected any longer.
const STALLS_ONE_IN: u64 = 10;

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the server.
    There,
    /// To the client.
    Back,
}

/// The network of one client. Clones are the same.
#[derive(Clone)]
pub(super) struct Uplink {
    site: Site,
    dice: Dice,
    post: Post,
    plant: Option<Plant>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    links: BTreeMap<LinkId, Link>,
    /// Nothing passes over any link before, there and back.
    cut: Stall,
    /// The process of the client does not run before.
    still_until: Duration,
}

struct Link {
    stall: Stall,
    breaks: watch::Sender<bool>,
}

/// Nothing passes before, there and back.
#[derive(Clone, Copy, Default)]
struct Stall([Duration; 2]);

impl Stall {
    fn until(self, way: Way) -> Duration {
        self.0[way as usize]
    }

    fn stall(&mut self, ways: &[Way], until: Duration) {
        for way in ways {
            self.0[*way as usize] = self.0[*way as usize].max(until);
        }
    }
}

/// The client's end of a link.
pub(super) struct Ends {
    /// A link is closed by the client when this is dropped.
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) bring: mpsc::Sender<(LinkId, News)>,
}

impl Uplink {
    pub(super) fn new(site: Site, dice: Dice, post: Post, plant: Option<Plant>) -> Self {
        Self { site, dice, post, plant, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no task panics while it looks at the links")
    }

    /// The links that there are, the newest one last.
    pub(super) fn links(&self) -> Vec<LinkId> {
        self.state().links.keys().copied().collect()
    }

    pub(super) fn stall(&self, link: LinkId, ways: &[Way], time: Duration) {
        let until = self.site.now() + time;
        if let Some(link) = self.state().links.get_mut(&link) {
            link.stall.stall(ways, until);
        }
    }

    /// Stalls all links, also those that are opened meanwhile.
    pub(super) fn cut(&self, ways: &[Way], time: Duration) {
        let until = self.site.now() + time;
        self.state().cut.stall(ways, until);
    }

    pub(super) fn break_link(&self, link: LinkId) {
        if let Some(link) = self.state().links.get(&link) {
            link.breaks.send_replace(true);
        }
    }

    /// Whether the process of the client runs, and what it sends now is neither cut off nor stalled.
    pub(super) fn is_calm(&self) -> bool {
        let (now, state) = (self.site.now(), self.state());
        let newest = state.links.values().next_back().map_or(Stall::default(), |link| link.stall);
        let is_over = |stall: Stall| stall.0.iter().all(|until| *until <= now);
        state.still_until <= now && is_over(state.cut) && is_over(newest)
    }

    /// The process of the client does not run for so long.
    pub(super) fn pause(&self, time: Duration) {
        let until = self.site.now() + time;
        let mut state = self.state();
        state.still_until = state.still_until.max(until);
    }

    /// Returns when the process of the client runs.
    pub(super) async fn runs(&self) {
        loop {
            let still = self.state().still_until.saturating_sub(self.site.now());
            if still.is_zero() || !self.site.net.is_rough() {
                return;
            }
            sleep(still).await;
        }
    }

    /// Carries messages between the client and the server at an address until the link is over, and says why.
    pub(super) async fn carry(self, link: LinkId, address: String, ends: Ends) {
        let (breaks, mut broken) = watch::channel(false);
        self.state().links.insert(link, Link { stall: Stall::default(), breaks });
        let Ends { requests, bring } = ends;
        let error = tokio::select! {
            biased;
            _ = broken.wait_for(|is_broken| *is_broken) => Error::Broken("the connection was reset".into()),
            error = self.talk(link, &address, requests, &bring) => error,
        };
        // It is not known at once.
        if self.site.net.is_rough() {
            sleep(self.dice.ms(0, 1_500)).await;
        }
        self.state().links.remove(&link);
        // The keeper may be gone.
        let _ = bring.send((link, News::Closed(error))).await;
    }

    async fn talk(
        &self,
        link: LinkId,
        address: &str,
        requests: mpsc::Receiver<Request>,
        bring: &mpsc::Sender<(LinkId, News)>,
    ) -> Error {
        let unreachable = |why: &str| Error::Unreachable { addr: address.into(), why: why.into() };
        let Some(machine) = machine_at(address) else { return unreachable("it is no address") };
        let connected = timeout(CONNECT, async {
            self.pass(link, Way::There, machine).await;
            let found = self.site.net.life(machine);
            self.pass(link, Way::Back, machine).await;
            found
        });
        let (life, node) = match connected.await {
            Ok(Some(found)) => found,
            Ok(None) => return unreachable("no process listens there"),
            Err(_) => return unreachable("it does not answer"),
        };
        let _ = bring.send((link, News::Open)).await;
        tokio::select! {
            biased;
            () = self.site.net.until(|net| !net.is_alive(life)) => Error::Broken("the connection was reset".into()),
            () = self.converse(link, life, node, requests, bring) => Error::Broken("the server closed the stream".into()),
        }
    }

    /// Both directions of a link, until one of the ends closes it.
    async fn converse(
        &self,
        link: LinkId,
        life: Life,
        node: Node,
        mut requests: mpsc::Receiver<Request>,
        bring: &mpsc::Sender<(LinkId, News)>,
    ) {
        let planted = Planted::new(self.plant, self.site.clone(), node.clone());
        let (deliver, arrives) = mpsc::channel(UNDER_WAY_MAX);
        let arriving = unfold(arrives, async |mut arrives: mpsc::Receiver<Request>| {
            arrives.recv().await.map(|request| (Ok(request), arrives))
        });
        let mut answers = serve_stream(node, Box::pin(arriving));
        let there = async {
            while let Some(mut request) = requests.recv().await {
                planted.request(&mut request);
                self.copy(&request, &deliver);
                if changes_claims(&request) && self.strikes(STALLS_ONE_IN) {
                    self.site.tally.count(Fault::LinkStall);
                    self.stall(link, &[Way::There], self.dice.ms(1_000, 8_000));
                }
                self.pass(link, Way::There, life.machine).await;
                if deliver.send(request).await.is_err() {
                    break;
                }
            }
            // The client has closed it, and what it had sent has arrived.
            sleep(self.dice.ms(0, 100)).await;
        };
        let back = async {
            while let Some(Ok(mut answer)) = answers.next().await {
                self.pass(link, Way::Back, life.machine).await;
                planted.answer(&mut answer);
                self.bring(link, answer, bring).await;
            }
        };
        tokio::select! {
            biased;
            () = there => {}
            () = back => {}
        }
    }

    async fn bring(&self, link: LinkId, answer: Response, bring: &mpsc::Sender<(LinkId, News)>) {
        // The keeper may be gone.
        let _ = bring.send((link, News::Answer(answer))).await;
    }

    /// Sometimes a copy of a request arrives as well, up to seconds later.
    fn copy(&self, request: &Request, deliver: &mpsc::Sender<Request>) {
        if !self.strikes(self.post.repeats) {
            return;
        }
        self.site.tally.count(Fault::ClientRepeat);
        let (copy, deliver, after) = (request.clone(), deliver.downgrade(), self.dice.ms(5, 6_000));
        tokio::spawn(async move {
            sleep(after).await;
            if let Some(deliver) = deliver.upgrade() {
                // The link may be over.
                let _ = deliver.send(copy).await;
            }
        });
    }

    fn strikes(&self, one_in: u64) -> bool {
        one_in > 0 && self.site.net.is_rough() && self.dice.one_in(one_in)
    }

    /// Lets one message pass, after those before it. A lost one breaks the link: messages arrive in their order or not at all.
    async fn pass(&self, link: LinkId, way: Way, machine: usize) {
        let (loses, fault) = match way {
            Way::There => (self.post.loses, Fault::ClientLoss),
            Way::Back => (self.post.forgets, Fault::ClientSilence),
        };
        if self.strikes(4 * loses) {
            self.site.tally.count(fault);
            self.break_link(link);
            return std::future::pending().await;
        }
        let is_late = self.strikes(2 * self.post.delays);
        if is_late {
            self.site.tally.count(Fault::ClientDelay);
        }
        sleep(if is_late { self.dice.ms(500, 7_000) } else { self.dice.ms(0, DELAY_MS_MAX) }).await;
        loop {
            let stalls = {
                let state = self.state();
                let own = state.links.get(&link).map_or(Duration::ZERO, |link| link.stall.until(way));
                own.max(state.cut.until(way)).saturating_sub(self.site.now())
            };
            if stalls.is_zero() || !self.site.net.is_rough() {
                break;
            }
            sleep(stalls).await;
        }
        self.site.net.until(|net| net.runs(machine)).await;
    }
}

fn changes_claims(request: &Request) -> bool {
    matches!(request.body, Some(Ask::Acquire(_) | Ask::Cancel(_) | Ask::Release(_) | Ask::ReleaseLease(_)))
}
