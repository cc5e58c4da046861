//! The way to one of several servers that are one: a call goes to the server that answered last, and on to the next if
//! that one is gone.

use crate::endpoint::{Connection, Endpoint};
use crate::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_api::Code;
use tenure_api::v1::tenure_client::TenureClient;
use tonic::{Response, Status};

/// The pause before a call is made again, and how often it is made while no leader is found: for longer than an election
/// takes.
const PAUSE: Duration = Duration::from_millis(50);
const NO_LEADER_TRIES: usize = 100;

type Rpc = TenureClient<Connection>;

#[derive(Debug)]
pub(crate) struct Way {
    endpoints: Arc<[Endpoint]>,
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
    /// A way that has come as far as the first of the servers.
    pub(crate) fn new(endpoints: Arc<[Endpoint]>, rpc: Rpc) -> Self {
        Self { endpoints, current: Mutex::new(Current { place: 0, rpc: Some(rpc) }) }
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
        // Servers in a row that are not there, and answers of those that are there and know no leader.
        let (mut gone, mut leaderless) = (0, 0);
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
            let may_help = match &error {
                Error::Unreachable { .. } => gone + 1 < self.endpoints.len(),
                Error::Broken(_) => repeat == Repeat::Safe && gone + 1 < self.endpoints.len(),
                error => match error.code() {
                    Some(Code::NotLeader) => leaderless < NO_LEADER_TRIES,
                    Some(Code::Unknown) => repeat == Repeat::Safe && leaderless < NO_LEADER_TRIES,
                    _ => false,
                },
            };
            if error.is_for_now() {
                self.leave(place);
            }
            if !may_help {
                return Err(error);
            }
            match error.code() {
                // A server that is there and does not lead will know who does in a moment.
                Some(_) => {
                    (gone, leaderless) = (0, leaderless + 1);
                    tokio::time::sleep(PAUSE).await;
                }
                None => gone += 1,
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
