//! What can go wrong for a client, by who must act.

use crate::fate::Loss;
use tenure_api::v1::Failure;
use tenure_api::{Code, code_of, read_status};
use tonic::Status;

/// Why a call has no yes for an answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No server answers.
    #[error("no server answers at {addr}: {why}")]
    Unreachable {
        /// Where it was looked for.
        addr: String,
        /// What happened.
        why: String,
    },
    /// A server is there, and cannot be spoken with: its certificate is not believed, or only one side speaks TLS. Nothing was
    /// asked of it.
    #[error("cannot speak with the server at {addr}: {why}")]
    Handshake {
        /// Where it is.
        addr: String,
        /// What is in the way.
        why: String,
    },
    /// The client has an API key, and the address is neither `https://` nor on this machine. No connection was made.
    #[error("the API key is not sent to {addr}: http:// is not encrypted, and the host is not this machine")]
    KeyInTheClear {
        /// The address that was given.
        addr: String,
    },
    /// The server answered no, and says why. Nothing was changed, unless the code is `unknown`.
    #[error("{}", .0.message)]
    Refused(Box<Failure>),
    /// The call broke. Whether it was done is not known.
    #[error("the call broke: {0}; whether it was done is not known")]
    Broken(String),
    /// It did not become free in the time that was given for it. The claim has left the line.
    #[error("it did not become free in time")]
    WaitedOut,
    /// The lease was lost before the work was done.
    #[error("the lease was lost: {0}")]
    Lost(Loss),
    /// This process cannot do it, or was asked for something that cannot be.
    #[error("{0}")]
    Local(String),
}

impl Error {
    /// The stable code of a refusal.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(failure) => code_of(failure),
            _ => None,
        }
    }

    /// Whether the server belongs to another cluster than the one that this client has been using. What it holds or waits for is
    /// not there.
    pub fn is_other_cluster(&self) -> bool {
        self.code() == Some(Code::OtherCluster)
    }

    /// Whether it passes: no server is there, or it cannot answer at this moment. Asking again later may help; whether the
    /// first time had an effect is not said by this.
    pub fn is_for_now(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken(_) => true,
            Self::Refused(failure) => is_for_now(failure),
            Self::Handshake { .. } | Self::KeyInTheClear { .. } | Self::WaitedOut | Self::Lost(_) | Self::Local(_) => {
                false
            }
        }
    }
}

/// Whether a server cannot answer at this moment, and may when it is asked again.
pub(crate) fn is_for_now(failure: &Failure) -> bool {
    matches!(code_of(failure), Some(Code::NotLeader | Code::Overloaded | Code::Stopping | Code::Unknown))
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        Self::Lost(loss)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Refused(Box::new(failure))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match read_status(&status) {
            Some(failure) => failure.into(),
            None => Self::Broken(status.message().into()),
        }
    }
}
