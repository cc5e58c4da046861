//! The way to one of several servers that are one: a call goes to the server that answered last, and on to the next if
//! that one is gone.

use crate::clock::Clock;
use crate::cluster::Connection;
use crate::endpoint::Endpoint;
use crate::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_api::Code;
use tenure_api::v1::tenure_client::TenureClient;
use tonic::{Response, Status};

/// The pause before a call is made again, and for how long it is made again while no leader is found: for longer than an
/// election takes.
const PAUSE: Duration = Duration::from_millis(50);
const LEADERLESS: Duration = Duration::from_secs(10);

type Rpc = TenureClient<Connection>;

#[derive(Debug)]
pub(crate) struct Way {
    endpoints: Arc<[Endpoint]>,
    clock: Clock,
    current: Mutex<Current>,
}

/// The server that is asked, and the connection to it once there is one.
#[derive(Debug)]
struct Current {
    place: usize,
    rpc: Option<Rpc>,
}

/// Whether a call can be made twice without harm. Calls that were not made for certain are made again either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

impl Way {
    /// A way to the first of the servers, perhaps with a connection to it.
    pub(crate) fn new(endpoints: Arc<[Endpoint]>, clock: Clock, rpc: Option<Rpc>) -> Self {
        Self { endpoints, clock, current: Mutex::new(Current { place: 0, rpc }) }
    }

    pub(crate) fn endpoints(&self) -> &Arc<[Endpoint]> {
        &self.endpoints
    }

    /// A connection to a server.
    pub(crate) async fn connected(&self) -> Result<Rpc, Error> {
        self.rpc().await.1
    }

    /// Makes a call, at as many servers as it takes.
    pub(crate) async fn call<T, F>(&self, repeat: Repeat, call: impl Fn(Rpc) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        // Servers in a row that are not there, and until when it is asked again without a leader, once that was answered.
        let (mut gone, mut leaderless) = (0, None);
        loop {
            let (place, rpc) = self.rpc().await;
            let answer = match rpc {
                Ok(rpc) => call(rpc).await.map_err(|status| self.endpoints[place].failed(status)),
                Err(error) => Err(error),
            };
            let error = match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(error) => error,
            };
            let is_in_time = leaderless.is_none_or(|until| self.clock.now() < until);
            let may_help = match &error {
                Error::Unreachable { .. } => gone + 1 < self.endpoints.len(),
                Error::Broken(_) => repeat == Repeat::Safe && gone + 1 < self.endpoints.len(),
                error => match error.code() {
                    Some(Code::OtherCluster) => gone + 1 < self.endpoints.len(),
                    Some(Code::NotLeader) => is_in_time,
                    Some(Code::Unknown) => repeat == Repeat::Safe && is_in_time,
                    _ => false,
                },
            };
            let is_elsewhere = error.is_other_cluster();
            if error.is_for_now() || is_elsewhere {
                self.leave(place);
            }
            if !may_help {
                return Err(error);
            }
            match error.code() {
                // A server that is there and does not lead will know who does in a moment.
                Some(_) if !is_elsewhere => {
                    gone = 0;
                    leaderless.get_or_insert_with(|| self.clock.now() + LEADERLESS);
                    tokio::time::sleep(PAUSE).await;
                }
                _ => gone += 1,
            }
        }
    }

    /// The server that is asked now, and the connection to it, which is made if there is none.
    async fn rpc(&self) -> (usize, Result<Rpc, Error>) {
        let (place, rpc) = {
            let current = self.current();
            (current.place, current.rpc.clone())
        };
        if let Some(rpc) = rpc {
            return (place, Ok(rpc));
        }
        let made = self.endpoints[place].connect().await.map(TenureClient::new);
        if let Ok(rpc) = &made {
            let mut current = self.current();
            if current.place == place {
                current.rpc = Some(rpc.clone());
            }
        }
        (place, made)
    }

    /// Asks the next server from now on, because the one that is asked says too little.
    pub(crate) fn turn_away(&self) {
        let place = self.current().place;
        self.leave(place);
    }

    /// Asks the next server from now on, unless somebody has seen to that already.
    fn leave(&self, place: usize) {
        let mut current = self.current();
        if current.place == place && self.endpoints.len() > 1 {
            *current = Current { place: (place + 1) % self.endpoints.len(), rpc: None };
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
