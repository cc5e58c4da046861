//! Why a command has no outcome, or a read no answer.

use std::time::Duration;

/// Not an answer, but a reason to ask again or elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unready {
    /// This node does not lead; nothing was changed. The leader answers at this address, if that is known.
    NotLeader {
        /// Where to ask.
        leader: Option<String>,
    },
    /// The queue is full; nothing was changed.
    Overloaded {
        /// When there will be room.
        retry_after: Duration,
    },
    /// What was proposed before does not come back: a majority, or the disk, does not answer. Nothing was changed.
    Stuck,
    /// The node is stopping; nothing was changed.
    Stopping,
    /// The command is by newer rules than every member of the cluster knows; nothing was changed.
    OldMember {
        /// The rules that know the command.
        needs: u32,
        /// The newest rules that all members know.
        known: u32,
    },
    /// Whether it was done is not known.
    Unknown,
}
