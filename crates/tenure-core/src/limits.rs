//! Every limit that the ledger keeps, each with its reason. They belong to the rules: a node never takes one from a flag
//! or a file, because two nodes must never disagree on what an entry does.

/// The newest version of the rules that this build can apply.
pub const RULES_MAX: u32 = 6;

/// The oldest version of the rules that this build can apply. Earlier ones were never released.
pub const RULES_MIN: u32 = 6;

/// A resource name, in bytes. Long enough for any path people type, short enough to be a map key.
pub const NAME_BYTES_MAX: usize = 1024;

/// A holder's name, in bytes: `user@host:pid` with a long host name fits four times.
pub const HOLDER_BYTES_MAX: usize = 256;

/// A reason or note, in bytes: a sentence or two for the person who asks why.
pub const NOTE_BYTES_MAX: usize = 1024;

/// The name of an API key, in bytes. It stands in front of what a request says of who orders an end, and leaves room for that.
pub const API_KEY_NAME_BYTES_MAX: usize = 64;

/// The shortest TTL, in milliseconds. Below this a heartbeat costs more than the lease protects.
pub const TTL_MS_MIN: u64 = 100;

/// The longest TTL, in milliseconds: 9·10^9 s, which is also the longest that etcd's clients may ask for.
pub const TTL_MS_MAX: u64 = 9_000_000_000_000;

/// Leases alive at once. A bound on memory (about a kilobyte each, and as much again for long labels and reasons as they
/// have bytes), not a figure to aim at.
pub const LEASES_MAX: usize = 16_000_000;

/// What leases, claims, defined resources and instances take together, in bytes, counted with the costs below. They are held
/// in memory; keys and their values are counted apart.
pub const LEDGER_BYTES_MAX: usize = 4_000_000_000;

/// What a lease costs besides its words.
pub const LEASE_COST_BYTES: usize = 1024;

/// What a claim costs besides its name.
pub const CLAIM_COST_BYTES: usize = 512;

/// What a defined resource costs besides its name.
pub const RESOURCE_COST_BYTES: usize = 256;

/// What an instance costs besides what it says of itself and a note of each of its checks.
pub const INSTANCE_COST_BYTES: usize = 2048;

/// Things attached to one lease tree: claims, keys, instances and child leases. What ends in one step must fit into one step.
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

/// Transactions within each other, the outer one included. Clients use one or two; each level of one in the log is two levels
/// of messages, of which a reader takes 100.
pub const TXN_DEPTH_MAX: usize = 8;

/// Operations and conditions of one transaction over all its levels and both of its ways: levels multiply.
pub const TXN_OPS_ALL_MAX: usize = 1024;

/// Keys that one transaction looks at, for its conditions, ranges and deletes. They are looked at on every node, at every replay.
pub const TXN_KEYS_MAX: usize = 200_000;

/// Bytes of keys and values that one transaction answers. Every node counts them, and the one that proposed it holds them.
pub const TXN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of keys and values that all commands of one entry answer.
pub const ENTRY_ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that each command may answer in any case.
pub const TXN_BYTES_EACH: usize = 4096;

/// Instances over all services. They are held in memory, a few kilobytes each.
pub const INSTANCES_MAX: usize = 1_000_000;

/// Services with at least one instance. Whoever looks for one looks by name, and whoever lists them pages.
pub const SERVICES_MAX: usize = 100_000;

/// What an instance says of itself, in bytes: a page of words, and a list of a thousand instances still fits into one
/// answer.
pub const INSTANCE_BYTES_MAX: usize = 16 * 1024;

/// A capability, a zone, a version, the name of a check or the id of an instance, in bytes: a word that fits on a line.
pub const WORD_BYTES_MAX: usize = 128;

/// The scheme of an endpoint, in bytes.
pub const SCHEME_BYTES_MAX: usize = 32;

/// The host of an endpoint, in bytes: as long as a name can be in the DNS.
pub const HOST_BYTES_MAX: usize = 253;

/// Endpoints of one instance: a port for each protocol it speaks, on each of its addresses.
pub const ENDPOINTS_MAX: usize = 16;

/// Capabilities of one instance.
pub const CAPABILITIES_MAX: usize = 64;

/// An expression over capabilities, in bytes: it travels in an address.
pub const WANTED_BYTES_MAX: usize = 1024;

/// `!` and parentheses within each other in an expression over capabilities: reading it calls itself so often.
pub const WANTED_DEPTH_MAX: usize = 16;

/// Checks of one instance. Every result of any of them may change what all who watch it see.
pub const CHECKS_MAX: usize = 8;

/// The highest weight of an instance.
pub const WEIGHT_MAX: u32 = 65_535;

/// The shortest time between two probes of a check, and the shortest for which a pushed status may hold, in milliseconds.
/// Below this the checks cost more than what they check.
pub const CHECK_MS_MIN: u64 = 1000;

/// The longest time between two probes of a check, in milliseconds. What is looked at less often is not being checked.
pub const CHECK_MS_MAX: u64 = 3_600_000;

/// The shortest time that a probe is given, in milliseconds.
pub const PROBE_MS_MIN: u64 = 10;

/// The longest time that a probe is given, in milliseconds. Whoever hangs for longer takes the place of others.
pub const PROBE_MS_MAX: u64 = 10_000;

/// The longest time for which a pushed status may hold without being repeated, in milliseconds: jobs push once a day.
pub const PUSHED_MS_MAX: u64 = 86_400_000;

/// Results in a row that a check may wait for before it changes its mind.
pub const RESULTS_MAX: u32 = 100;

/// The path of an HTTP probe, and the service of a gRPC probe, in bytes.
pub const PROBE_BYTES_MAX: usize = 1024;

/// The longest time that an instance may be left critical before its lease is ended, in milliseconds.
pub const UNHEALTHY_MS_MAX: u64 = 86_400_000;

/// What a fall of an instance costs it, in points: from passing to critical, or an abnormal end after which it comes back.
pub const PENALTY_FALL: u64 = 1000;

/// The time in which those points halve, in milliseconds.
pub const PENALTY_HALF_MS: u64 = 60_000;

/// From so many points on an instance that comes back is held down: the third fall within half a minute.
pub const PENALTY_HELD: u64 = 2500;

/// Below so many points it is not held down any longer. Less than what it takes to be held, so that the two are not in
/// each other's way.
pub const PENALTY_FREE: u64 = 1500;

/// The most points that an instance can have: ten half-lives from being free, which is as long as it is held down.
pub const PENALTY_MAX: u64 = PENALTY_FREE << 10;

/// The longest time for which an instance is held down, in milliseconds, however often it fell.
pub const HELD_MS_MAX: u64 = 600_000;

/// The fewest leases of which it can be told whether they fall silent together. In a smaller cohort one failure is a
/// large part of it.
pub const COHORT_MIN: u64 = 10;

/// How much longer than its deadline a suspect lease is kept at most, in milliseconds; twice its TTL, if that is less.
pub const SUSPECT_MS_MAX: u64 = 300_000;

/// For how long the judgement of a cohort is good for its next lease that falls due, in milliseconds; an eighth of that
/// lease's TTL, if that is less. To judge means to look at every lease of the cohort.
pub const JUDGED_MS: u64 = 250;

/// A judgement is good for at least a millisecond for so many leases of the cohort, so that a large one is not looked at all
/// the time.
pub const JUDGED_PER_MS: u64 = 400;

/// Leases of a cohort that are looked at to answer a question.
pub const COHORT_SHOWN_MAX: usize = 10_000;

/// Leases that one entry looks at to judge cohorts; the first judgement is made in any case. What is due and was not
/// judged is merely late, and the next tick follows at once.
pub const JUDGE_MAX: usize = 131_072;

/// Leases or resources that the revokes by prefix, holder or label of one entry look at. The reply says where to go on.
pub const SCAN_MAX: usize = 65_536;

/// Contended resources that one renewal looks at to tell its holder who waits, by name. An entry may renew many leases.
pub const CONTENDED_MAX: usize = 16;

/// Steps that one acquire may take to look for a deadlock. Past them it is refused.
pub const CHAIN_STEPS_MAX: usize = 65_536;

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

/// Numbers of answered requests that a lease remembers, above the one below which all are answered. A client has fewer requests
/// about one lease open at once.
pub const ANSWERED_MAX: usize = 1024;

/// Ended leases that are remembered, so that a late holder can be told how and when it lost. When there are more, the holder
/// that has the most loses its oldest.
pub const ENDED_LEASES_MAX: usize = 65_536;

/// Epochs that are remembered of holders whose claims have ended, one for each holder of a resource.
pub const ENDED_EPOCHS_MAX: usize = 65_536;

/// Ended claims that are remembered over all resources.
pub const ENDED_CLAIMS_MAX: usize = 65_536;

/// Ended claims that are remembered for one resource.
pub const ENDED_CLAIMS_PER_RESOURCE_MAX: usize = 16;

/// Ended instances that are remembered over all services: their epochs, their points and how they ended.
pub const ENDED_INSTANCES_MAX: usize = 65_536;

/// Ended instances that are remembered for one id of one service.
pub const ENDED_INSTANCES_PER_ID_MAX: usize = 8;

/// Events kept for watches that resume, and as many events of keys by themselves. An older revision is answered with
/// `Compacted`. One revision alone may have more, as a delete of 100,000 keys has.
pub const EVENTS_MAX: usize = 65_536;

/// What the kept events of each of the two kinds may weigh together, in bytes of names and keys.
pub const EVENTS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Changes that the commands of one entry make before the next command is refused, and can be repeated: a tree that ends is a
/// change for each thing on it. No entry of ordinary commands comes near it.
pub const ENTRY_CHANGES_MAX: usize = 32_768;

/// Steps that the commands of one entry take before the next command is refused, and can be repeated: what they look at or touch
/// beside what they change, such as keys, the holders of a resource whose line begins, and waiters in a search for deadlocks.
/// A step takes about a tenth of a microsecond.
pub const ENTRY_STEPS_MAX: usize = 400_000;

/// Things looked at or touched that cost as much as one thing that ends or is seated, where an entry counts those.
pub const LOOKS_A_THING: usize = 64;

/// Places of a line that are counted as fast as one thing is looked at.
pub const PLACES_A_LOOK: usize = 16;

/// Things that one break may end: claims, and the trees of leases that were made for them.
pub const BREAK_ENDS_MAX: usize = 32_768;

/// Claims that one acquire with an epoch may supersede: as many as may hold one resource, and as many as may wait for it.
pub const SUPERSEDED_MAX: usize = 20_000;

/// What a refusal counts or denies, in bytes, as another node sends it: a few words.
pub const WHAT_BYTES_MAX: usize = 128;

/// An outcome in bytes, as a node sends it to another one: the answer of one transaction, and room for the numbers of its
/// operations. The answer to a renewal of [`RENEWALS_MAX`] leases is smaller.
pub const OUTCOME_BYTES_MAX: usize = TXN_BYTES_MAX + 1024 * 1024;

/// Commands in one entry. Renewals batch within one command, so this is rarely reached.
pub const COMMANDS_MAX: usize = 8192;

/// Fences stay below 2^53 so that a JSON number holds them exactly.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// No counter of a ledger comes this far, so none can run over: at a billion a second it would take a month.
pub(crate) const COUNTER_MAX: u64 = FENCE_MAX / 4;
