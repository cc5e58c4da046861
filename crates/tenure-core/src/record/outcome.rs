//! The shape of outcomes between nodes: a follower sends a command on to the leader, and decodes here what the ledger of the
//! leader answered. The number of a field never changes. No outcome is on disk.

use super::Damage;
use super::refusal::RefusalRecord;
use super::reply::ReplyRecord;
use crate::limits::{OUTCOME_BYTES_MAX, WHAT_BYTES_MAX};
use crate::reply::{Outcome, Refusal, Reply};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use prost::Message;

/// The version that this build writes, and the only one that it can read.
const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct OutcomeRecord {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(oneof = "Answer", tags = "2, 3")]
    answer: Option<Answer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Answer {
    #[prost(message, tag = "2")]
    Reply(ReplyRecord),
    #[prost(message, tag = "3")]
    Refusal(RefusalRecord),
}

/// The version of an outcome alone. The answer of another version may have another shape, so this is read before it.
#[derive(Clone, PartialEq, Message)]
struct VersionRecord {
    #[prost(uint32, tag = "1")]
    version: u32,
}

/// A variant without facts.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct NothingRecord {}

/// The outcome of a command as it is sent to the node that asked for it.
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    let answer = match outcome {
        Ok(reply) => Answer::Reply(reply.record()),
        Err(refusal) => Answer::Refusal(refusal.record()),
    };
    OutcomeRecord { version: VERSION, answer: Some(answer) }.encode_to_vec()
}

/// Reads an outcome back. Whatever the bytes are, they are read whole or refused: also those that have more than this build
/// knows, and those that are longer than [`OUTCOME_BYTES_MAX`].
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Damage> {
    if bytes.len() > OUTCOME_BYTES_MAX {
        return Err(Damage(format!("an outcome of {} bytes, more than {OUTCOME_BYTES_MAX}", bytes.len())));
    }
    let version = VersionRecord::decode(bytes)?.version;
    if version != VERSION {
        return Err(Damage(format!("an outcome of version {version}, and this build knows {VERSION}")));
    }
    let outcome = match OutcomeRecord::decode(bytes)?.answer {
        Some(Answer::Reply(reply)) => Ok(Reply::read(reply)?),
        Some(Answer::Refusal(refusal)) => Err(Refusal::read(refusal)?),
        None => return Err(Damage::new("an outcome that is neither a reply nor a refusal")),
    };
    // A decoder of protocol buffers skips fields that it does not know, and the fact in such a field would be lost.
    if encode_outcome(&outcome) != bytes {
        return Err(Damage::new("an outcome with more in it than this build knows"));
    }
    Ok(outcome)
}

/// What a refusal counts or denies. The text may be one of another build.
pub(super) fn what(text: String) -> Result<Cow<'static, str>, Damage> {
    short(text, WHAT_BYTES_MAX).map(Cow::Owned)
}

pub(super) fn short(text: String, bytes_max: usize) -> Result<String, Damage> {
    if text.len() > bytes_max { Err(Damage::new("a text that is too long")) } else { Ok(text) }
}

/// The items of a list, of which there can be so many.
pub(super) fn few<R, T>(
    records: Vec<R>,
    max: usize,
    read: impl FnMut(R) -> Result<T, Damage>,
) -> Result<Vec<T>, Damage> {
    if records.len() > max {
        return Err(Damage::new("a list that is too long"));
    }
    records.into_iter().map(read).collect()
}

pub(super) fn size(number: u64) -> Result<usize, Damage> {
    usize::try_from(number).map_err(|_| Damage::new("a size that this machine cannot have"))
}
