//! The load of clients that claim one new resource after the other, the same through whichever door.

use crate::measure::{Figures, Tally};
use crate::server::Server;
use crate::tenure_load::{run, start};
use crate::{Args, Failure};
use std::time::Instant;

/// A claim on a resource that nobody holds.
pub(crate) struct Claim {
    pub(crate) resource: String,
    pub(crate) holder: String,
    pub(crate) ttl_ms: u32,
}

/// A connection that claims, and waits for the answer.
pub(crate) trait Claims: Sized + Send + 'static {
    fn open(server: &Server) -> impl Future<Output = Result<Self, Failure>>;
    fn claim(&mut self, claim: Claim) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Each client claims one new resource after the other.
pub(crate) async fn acquire<C: Claims>(args: &Args) -> Result<Figures, Failure> {
    let server = start(args).await?;
    let time = args.time();
    let clients = (0..args.clients).map(|number| {
        let server = &server;
        async move {
            let mut connection = C::open(server).await?;
            let client = async move {
                let mut tally = Tally::default();
                let start = Instant::now();
                for n in 0.. {
                    let (resource, holder) = (format!("bench/{number}/{n}"), format!("bench-{number}"));
                    let sent = Instant::now();
                    connection.claim(Claim { resource, holder, ttl_ms: 60_000 }).await?;
                    tally.add(sent, 1);
                    if start.elapsed() > time {
                        break;
                    }
                }
                Ok::<Tally, Failure>(tally)
            };
            tokio::spawn(client).await?
        }
    });
    run(clients).await
}
