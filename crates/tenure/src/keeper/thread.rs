//! Runs a keeper on a thread of its own, over real connections. It carries out what the keeper says, and decides nothing.

use super::link::{LinkId, News};
use super::{Keeper, OrderQueue, Output};
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::v1::Request;
use crate::v1::tenure_client::TenureClient;
use std::collections::BTreeMap;
use std::io;
use std::thread;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;

/// Requests that wait to be sent on one connection.
const UNSENT_MAX: usize = 1024;

/// News that wait to be taken.
const NEWS_MAX: usize = 1024;

/// Starts a thread that runs a keeper until nothing can be ordered any longer and nothing is left to be given back.
pub(super) fn start(keeper: Keeper, clock: Clock, orders: OrderQueue) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (bring, news) = mpsc::channel(NEWS_MAX);
    let runner = Runner { keeper, clock, orders, connections: BTreeMap::new(), bring, news };
    thread::Builder::new().name("tenure-keeper".into()).spawn(move || runtime.block_on(runner.run()))?;
    Ok(())
}

struct Runner {
    keeper: Keeper,
    clock: Clock,
    orders: OrderQueue,
    connections: BTreeMap<LinkId, Connection>,
    bring: mpsc::Sender<(LinkId, News)>,
    news: mpsc::Receiver<(LinkId, News)>,
}

struct Connection {
    requests: mpsc::Sender<Request>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Runner {
    async fn run(mut self) {
        let mut is_open = true;
        while is_open || self.keeper.is_busy() {
            let due = self.keeper.due();
            tokio::select! {
                biased;
                () = self.clock.until(due) => {}
                Some((link, news)) = self.news.recv() => self.keeper.hear(link, news, self.clock.now()),
                order = self.orders.next(), if is_open => match order {
                    Some(order) => self.keeper.follow(order, self.clock.now()),
                    None => is_open = false,
                },
            }
            self.keeper.act(self.clock.now());
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        for output in self.keeper.outputs() {
            match output {
                Output::Open { link, to } => self.open(link, to),
                Output::Send { link, request } => {
                    let id = request.id;
                    let connection = self.connections.get(&link);
                    if connection.is_none_or(|connection| connection.requests.try_send(request).is_err()) {
                        self.keeper.not_sent(id);
                    }
                }
                Output::Close { link } => drop(self.connections.remove(&link)),
                Output::Spawn(minding) => drop(tokio::spawn(minding)),
            }
        }
    }

    fn open(&mut self, link: LinkId, to: Endpoint) {
        let (requests, unsent) = mpsc::channel(UNSENT_MAX);
        let task = tokio::spawn(carry(link, to, unsent, self.bring.clone())).abort_handle();
        self.connections.insert(link, Connection { requests, task });
    }
}

/// Carries requests there and answers back, until the connection is over.
async fn carry(id: LinkId, endpoint: Endpoint, unsent: mpsc::Receiver<Request>, bring: mpsc::Sender<(LinkId, News)>) {
    let over = match converse(id, &endpoint, unsent, &bring).await {
        Ok(()) => Error::Broken("the server closed the stream".into()),
        Err(error) => error,
    };
    // The keeper may be gone.
    let _ = bring.send((id, News::Closed(over))).await;
}

async fn converse(
    id: LinkId,
    endpoint: &Endpoint,
    unsent: mpsc::Receiver<Request>,
    bring: &mpsc::Sender<(LinkId, News)>,
) -> Result<(), Error> {
    let mut rpc = TenureClient::new(endpoint.connect().await?);
    let _ = bring.send((id, News::Open)).await;
    let failed = |status| endpoint.failed(status);
    let mut answers = rpc.stream(ReceiverStream::new(unsent)).await.map_err(failed)?.into_inner();
    while let Some(answer) = answers.message().await.map_err(failed)? {
        let _ = bring.send((id, News::Answer(answer))).await;
    }
    Ok(())
}
