//! Every limit that the ledger keeps, each with its reason. All of them belong to rules version 1: a node never takes
//! one from a flag or a file, because two nodes must never disagree on what an entry does.

/// The newest version of the rules that this build can apply.
pub const RULES_MAX: u32 = 1;

/// A resource name, in bytes. Long enough for any path people type, short enough to be a map key.
pub const NAME_BYTES_MAX: usize = 1024;

/// A holder's name, in bytes: `user@host:pid` with a long host name fits four times.
pub const HOLDER_BYTES_MAX: usize = 256;

/// A reason or note, in bytes: a sentence or two for the person who asks why.
pub const NOTE_BYTES_MAX: usize = 1024;

/// The shortest TTL, in milliseconds. Below this a heartbeat costs more than the lease protects.
pub const TTL_MS_MIN: u64 = 100;

/// The longest TTL, in milliseconds: 9·10^9 s, which is also the longest that etcd's clients may ask for.
pub const TTL_MS_MAX: u64 = 9_000_000_000_000;

/// Leases alive at once. A bound on memory (about a kilobyte each in this ledger), not a figure to aim at.
pub const LEASES_MAX: usize = 16_000_000;

/// Things attached to one lease. What ends in one step must fit into one step.
pub const ATTACHED_MAX: usize = 10_000;

/// Waiters in the line of one resource. Whoever would be number 10,001 is better served by an error than by hope.
pub const WAITERS_MAX: usize = 10_000;

/// The last place in a line that is told exactly. Counting further would make every answer cost as much as the line is
/// long; who stands so far back is told this place.
pub const PLACE_MAX: usize = 1000;

/// Leases named by one renewal command, so that one client cannot fill a log entry alone.
pub const RENEWALS_MAX: usize = 4096;

/// Attached things that one entry may end. It bounds the time an entry takes to apply; the next tick follows at once.
pub const SWEEP_MAX: usize = 4096;

/// Resources that one entry may seat from their lines, for the same reason.
pub const SEAT_MAX: usize = 4096;

/// Ended leases that are remembered, so that a late holder can be told how and when it lost.
pub const ENDED_LEASES_MAX: usize = 65_536;

/// Ended claims that are remembered over all resources.
pub const ENDED_CLAIMS_MAX: usize = 65_536;

/// Ended claims that are remembered for one resource.
pub const ENDED_CLAIMS_PER_RESOURCE_MAX: usize = 16;

/// Events kept for watches that resume. An older revision is answered with `Compacted`.
pub const EVENTS_MAX: usize = 65_536;

/// Commands in one entry. Renewals batch within one command, so this is rarely reached.
pub const COMMANDS_MAX: usize = 8192;

/// Fences stay below 2^53 so that a JSON number holds them exactly.
pub const FENCE_MAX: u64 = (1 << 53) - 1;
