//! Every limit that the ledger keeps, each with its reason. They belong to the rules: a node never takes one from a flag
//! or a file, because two nodes must never disagree on what an entry does.

/// The newest version of the rules that this build can apply.
pub const RULES_MAX: u32 = 3;

/// The oldest version of the rules that this build can apply. Earlier ones were never released.
pub const RULES_MIN: u32 = 3;

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

/// Leases alive at once. A bound on memory (about a kilobyte each, and as much again for long labels and reasons as they
/// have bytes), not a figure to aim at.
pub const LEASES_MAX: usize = 16_000_000;

/// Things attached to one lease tree: claims, keys and child leases. What ends in one step must fit into one step.
pub const ATTACHED_MAX: usize = 10_000;

/// Generations of leases, the first one included. Whatever is attached is counted on each ancestor.
pub const GENERATIONS_MAX: usize = 16;

/// Claims over all leases: holding, waiting and vacating. A bound on memory, as with the leases.
pub const CLAIMS_MAX: usize = 16_000_000;

/// Resources named by one acquire. Enough for a machine, its GPUs and its address; few enough to seat in one step.
pub const RESOURCES_MAX: usize = 16;

/// How long an acquire of several resources waits in line unless it says so, in milliseconds. It blocks all of its
/// resources for those behind it, so it does not wait for ever.
pub const WAIT_MS_DEFAULT: u64 = 60_000;

/// The longest time that an acquire of several resources may wait in line, in milliseconds.
pub const WAIT_MS_MAX: u64 = 3_600_000;

/// Units that a resource may have. A JSON number and 32 bits hold it.
pub const CAPACITY_MAX: u64 = 1_000_000_000;

/// Claims that may hold one resource at once, vacating ones included. Whoever would be number 10,001 waits.
pub const HOLDERS_MAX: usize = 10_000;

/// The highest priority, and the lowest below zero.
pub const PRIORITY_MAX: i32 = 1000;

/// What one step of priority is worth, in milliseconds of arrival: who has priority 1 goes before those who came up to
/// so much earlier, and nobody waits behind later ones for ever.
pub const PRIORITY_INTERVAL_MS: u64 = 10_000;

/// The longest lock-delay, in milliseconds.
pub const LOCK_DELAY_MS_MAX: u64 = 3_600_000;

/// The longest grace, in milliseconds.
pub const GRACE_MS_MAX: u64 = 86_400_000;

/// The longest delay of a break, in milliseconds.
pub const BREAK_DELAY_MS_MAX: u64 = 86_400_000;

/// The TTL of a lease that names neither a TTL nor a class, in milliseconds.
pub const TTL_MS_DEFAULT: u64 = 15_000;

/// Labels of one lease.
pub const LABELS_MAX: usize = 16;

/// The key of a label, in bytes.
pub const LABEL_KEY_BYTES_MAX: usize = 64;

/// The value of a label, in bytes.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;

/// Classes that may be defined or changed.
pub const CLASSES_MAX: usize = 256;

/// Resources whose capacity is defined by an order, so that they are kept while free.
pub const DEFINED_MAX: usize = 1_000_000;

/// A key and its value together, in bytes: what one request may carry.
pub const KEY_VALUE_BYTES_MAX: usize = 1_500_000;

/// All keys and values together, in bytes, with what they were, each with [`KEY_COST_BYTES`] on top. They are held in
/// memory.
pub const KEYSPACE_BYTES_MAX: u64 = 2_147_483_648;

/// What keys were, in bytes, counted in the same way. Past this the oldest versions are forgotten, whether or not anybody
/// has compacted them: who never compacts must not run out of room.
pub const KEYSPACE_PAST_BYTES_MAX: u64 = 268_435_456;

/// What a key costs besides its bytes.
pub const KEY_COST_BYTES: u64 = 128;

/// Keys that one delete or one transaction may remove. What changes in one step must fit into one step.
pub const DELETED_MAX: usize = 100_000;

/// Changes of keys that one entry goes through to take out what was compacted. The next tick follows at once.
pub const CLEAR_MAX: usize = 4096;

/// Operations, and conditions, of one transaction: as many as etcd allows.
pub const TXN_OPS_MAX: usize = 128;

/// Leases or resources that the revokes by prefix, holder or label of one entry look at. The reply says where to go on.
pub const SCAN_MAX: usize = 65_536;

/// Contended resources that one renewal looks at to tell its holder who waits, by name. An entry may renew many leases.
pub const CONTENDED_MAX: usize = 16;

/// Steps that one entry may take to look for deadlocks. Past them an acquire that would have to be looked at is refused.
pub const CHAIN_STEPS_MAX: usize = 65_536;

/// Steps that each command may take in any case, however many others took before it.
pub const CHAIN_STEPS_EACH: usize = 1024;

/// Leases of a cycle that a refusal names.
pub const CHAIN_SHOWN_MAX: usize = 16;

/// Waiters in the line of one resource. Whoever would be number 10,001 is better served by an error than by hope.
pub const WAITERS_MAX: usize = 10_000;

/// The last place in a line that is told exactly. Counting further would make every answer cost as much as the line is
/// long; who stands so far back is told this place.
pub const PLACE_MAX: usize = 1000;

/// Leases named by one renewal command, so that one client cannot fill a log entry alone.
pub const RENEWALS_MAX: usize = 4096;

/// Attached things that one entry may end. It bounds the time an entry takes to apply; the next tick follows at once.
pub const SWEEP_MAX: usize = 4096;

/// Claims that one entry may seat from their lines, for the same reason.
pub const SEAT_MAX: usize = 4096;

/// Ended leases that are remembered, so that a late holder can be told how and when it lost.
pub const ENDED_LEASES_MAX: usize = 65_536;

/// Ended claims that are remembered over all resources.
pub const ENDED_CLAIMS_MAX: usize = 65_536;

/// Ended claims that are remembered for one resource.
pub const ENDED_CLAIMS_PER_RESOURCE_MAX: usize = 16;

/// Events kept for watches that resume. An older revision is answered with `Compacted`.
pub const EVENTS_MAX: usize = 65_536;

/// What the kept events may weigh together, in bytes of names and keys.
pub const EVENTS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Commands in one entry. Renewals batch within one command, so this is rarely reached.
pub const COMMANDS_MAX: usize = 8192;

/// Fences stay below 2^53 so that a JSON number holds them exactly.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// No counter of a ledger comes this far, so none can run over: at a billion a second it would take a month.
pub(crate) const COUNTER_MAX: u64 = FENCE_MAX / 4;
