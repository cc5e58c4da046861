//! The limits of a running node, each with its reason. What the ledger itself limits is in the core's own file.

use std::time::Duration;

/// How far one stamp may go beyond what was last seen applied: the longest stall that runs at full rate.
pub(crate) const STEP_MAX: Duration = Duration::from_millis(500);

/// The tick while any lease lives. It bounds how late an expiry is when nothing else happens.
pub const TICK: Duration = Duration::from_millis(200);

/// After a stall the first entry waits so long for renewals that lie unread in sockets. The timer goes through the same
/// driver as the sockets, so when it fires every ready connection has been looked at.
pub(crate) const PASS: Duration = Duration::from_millis(10);

/// Places in each of the two queues. An order takes one, and one more for so many bytes that it has: that is 128 MiB at
/// worst.
pub(crate) const QUEUE_MAX: usize = 65_536;
pub(crate) const QUEUE_BYTES_A_PLACE: usize = 1024;

/// What a client is told to wait when a queue is full: a few entries later there is room.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Leases renewed in one entry, over all its commands: a bound on the time an entry takes to apply.
pub(crate) const ENTRY_RENEWALS_MAX: usize = 65_536;

/// Bytes after which an entry takes no further command. With the largest request on top it stays far below what one
/// write to the log may have.
pub(crate) const ENTRY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Entries proposed and not yet applied. Two keep the disk busy while the next one is gathered; more would only make
/// smaller entries.
pub(crate) const IN_FLIGHT_MAX: usize = 2;

/// How long a client waits for the log before it is told that the outcome is unknown.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request, in bytes; the same as etcd's.
pub(crate) const REQUEST_BYTES_MAX: usize = 1_572_864;

/// Requests in flight on one stream; what is beyond waits in the socket.
pub(crate) const STREAM_IN_FLIGHT_MAX: usize = 4096;

/// Claims in line on one stream. They do not count as in flight: nothing is under way for them.
pub(crate) const STREAM_WAITS_MAX: usize = 16_384;

/// Claims in line that somebody listens for, over all streams.
pub(crate) const PLACES_MAX: usize = 262_144;

/// Answers ready to be sent on one stream: what a client that does not read can make the server hold.
pub(crate) const STREAM_ANSWERS_MAX: usize = 64;

/// Calls and streams open at once on one connection.
pub(crate) const CONNECTION_STREAMS_MAX: u32 = 256;

/// Connections open at once, unless the process may open fewer files.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Connections of one address, unless the operator says otherwise: half of all. A proxy, or a network behind one address, may
/// have very many clients, and others find room all the same.
pub const CONNECTIONS_PER_ADDRESS: usize = CONNECTIONS_MAX / 2;

/// Files that connections leave free for the log, the snapshots and the data directory, and for probes.
pub const FILES_RESERVED: usize = 128 + PROBES_QUICK_MAX + PROBES_SLOW_MAX;

/// A pause after an accept that failed, so that a lack of files does not become a lack of processor too.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often an idle connection is asked whether it is still there, and how long it may take to answer.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(20);

/// What is under way gets so long to end when the server stops.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Headers of one call, in bytes.
pub(crate) const HEADER_BYTES_MAX: u32 = 16 * 1024;

/// Items on one page of a list: by default, and at most.
pub(crate) const PAGE: usize = 1000;
pub(crate) const PAGE_MAX: usize = 10_000;

/// A page ends after so many bytes, too.
pub(crate) const PAGE_BYTES: usize = 1024 * 1024;

/// Things attached to one lease, holders, waiters and so on that an answer names; the rest is counted.
pub(crate) const LISTED_MAX: usize = 100;

/// Items that one page of a filtered list looks at, so that a filter that lets nothing through does not hold up the
/// ledger. The answer says where to go on.
pub(crate) const LOOKS_MAX: usize = 65_536;

/// Events on one page of the history, unless it is said.
pub(crate) const HISTORY_PAGE: usize = 100;

/// Events in one message to a watcher.
pub(crate) const WATCH_EVENTS_MAX: usize = 100;

/// Starts of names that one watch may ask for: each event is held against all of them.
pub(crate) const WATCH_PREFIXES_MAX: usize = 100;

/// How often a watcher over HTTP hears that the stream lives, so that proxies do not close it.
pub(crate) const WATCH_PULSE: Duration = Duration::from_secs(15);

/// How often a claim that waits over HTTP is renewed at most, whatever its TTL.
pub(crate) const POLL_RENEWAL_MIN: Duration = Duration::from_millis(30);

/// The longest that a look at instances waits for a change: proxies give up on a silent request before that, and whoever
/// asked and is gone without a word takes a place for no longer.
pub(crate) const DISCOVER_WAIT_MAX: Duration = Duration::from_secs(300);

/// How long a connection whose peer has vanished without a word is kept.
pub(crate) const PEER_PATIENCE: Duration = Duration::from_secs(60);

/// How long a client may take to send the body of an HTTP request, or one message of gRPC.
pub(crate) const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// A message to a service that needs no key, or that only describes the others: a name, or a name with a password.
pub(crate) const SMALL_BYTES_MAX: usize = 4096;

/// Bytes of HTTP bodies and of gRPC messages that are arriving at once, in units of a KiB.
pub(crate) const BODIES_KIB_MAX: usize = 128 * 1024;

/// Bytes of answers that are encoded and that their clients have not read, over all connections, in units of a KiB: four times the
/// largest answer. What the node holds for its clients otherwise is small beside it. Buffers may be twice as large.
pub(crate) const ANSWERS_KIB_MAX: usize = 512 * 1024;

/// Parts of answers below this are not counted: a connection costs as much without them.
pub(crate) const ANSWER_CHARGED_MIN: usize = 8 * 1024;

/// Bytes of keys and values in one answer to a range. A client asks page by page for more, as etcd's own clients do.
pub(crate) const RANGE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Keys or leases that are looked at before the ledger is let go: less than a millisecond.
pub(crate) const SLICE_LOOKS: usize = 2048;

/// How often a look at what is now begins again when what it looks at was compacted meanwhile.
pub(crate) const SLICED_TRIES: u32 = 8;

/// How long a stranger may take to say which protocol it speaks.
pub(crate) const FIRST_WORD_PATIENCE: Duration = Duration::from_secs(10);

/// Log bytes after which a snapshot is taken and the log before it is dropped.
pub(crate) const SNAPSHOT_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// How often the log's growth is looked at on the way to a snapshot. Each look wakes a task, so not at every batch.
pub(crate) const SNAPSHOT_LOOKS: u64 = 64;

/// Entry bytes that are kept in memory for replication and apply; older ones are read from disk.
pub(crate) const TAIL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long a stop waits for the log to be sealed. Without the seal the next start is as after a crash.
pub(crate) const SEAL_TIMEOUT: Duration = Duration::from_secs(10);

/// What an entry costs beside its bytes, in memory and to replay: ticks are small, and three days of them are many.
pub(crate) const ENTRY_COST_BYTES: usize = 256;

/// Records beyond this many bytes wait for the next batch, so that no batch comes near the log's own limit.
pub(crate) const BATCH_BYTES_SOFT_MAX: usize = 8 * 1024 * 1024;

/// A write to the log that takes longer is worth a line in the log: a tick is late by then, and every answer waits.
pub(crate) const WRITE_SLOW: Duration = TICK;

/// Writes waiting for the disk.
pub(crate) const WRITES_MAX: usize = 4096;

/// What is read of a request that is refused at the entrance, and for how long: enough for whoever forgot its key.
pub(crate) const REFUSED_BYTES_MAX: usize = 64 * 1024;
pub(crate) const REFUSED_PATIENCE: Duration = Duration::from_secs(1);

/// API keys that one server knows: all of them are looked at for every request.
pub(crate) const API_KEYS_MAX: usize = 1000;

/// Prefixes of one API key, and the bytes of one: each is compared with every name of a request.
pub(crate) const API_KEY_PREFIXES_MAX: usize = 16;
pub(crate) const API_KEY_PREFIX_BYTES_MAX: usize = 256;

/// Names that one line of the audit log tells, and the bytes of one: enough for any acquire, and a bound for a transaction.
pub(crate) const AUDIT_NAMES_MAX: usize = 16;
pub(crate) const AUDIT_NAME_BYTES_MAX: usize = 256;

/// The highest limit that the line of an API key may set. Without one there is no limit.
pub(crate) const KEY_LIMIT_MAX: u32 = 1_000_000_000;

/// Nodes of a cluster, voters and learners together. More than seven voters only make every write wait for more disks.
pub const PEERS_MAX: usize = 32;

/// How long a connection to a peer may take to be made, and how long a peer may leave a ping unanswered.
pub(crate) const PEER_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(crate) const PEER_SILENCE_MAX: Duration = Duration::from_secs(2);

/// Numbers of peers whose newest certificates are remembered: more than a cluster has nodes, so that those that join are among
/// them.
pub(crate) const PEERS_SEEN_MAX: usize = 256;

/// Different sentences about certificates of peers that are logged, each once: a peer that makes up numbers fills no log.
pub(crate) const REFUSALS_TOLD_MAX: usize = 256;

/// Removed nodes whose newest certificate the membership remembers. Beyond it the one with the oldest certificate is forgotten,
/// which is the first to expire.
pub(crate) const REMOVED_MAX: usize = 256;

/// A message between peers: the largest entry with room to spare.
pub(crate) const PEER_MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What may be on its way to a peer before it says that it has read it: some entries of the usual size.
pub(crate) const PEER_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// Entries sent in one message end after so many bytes; the largest entry goes alone.
pub(crate) const APPEND_BYTES_SOFT_MAX: usize = 2 * 1024 * 1024;

/// A part of a snapshot.
pub(crate) const SNAPSHOT_PART_BYTES: usize = 1024 * 1024;

/// The largest snapshot that a node takes from another: it is held in memory while it comes.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// How long a part of a snapshot may take, and the last one, which is answered when it is installed.
pub(crate) const SNAPSHOT_PART_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const SNAPSHOT_INSTALL_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a node waits for a peer's answer to a question of its own.
pub(crate) const PEER_PATIENCE_SHORT: Duration = Duration::from_secs(2);

/// How often a node that waits for others asks again.
pub(crate) const KNOCK_INTERVAL: Duration = Duration::from_millis(300);

/// How long a node of `--peers` waits for entries from a cluster that others formed, before it says that it has to be let in:
/// longer than elections that fail a few times.
pub(crate) const FIRST_ENTRIES_PATIENCE: Duration = Duration::from_secs(10);

/// How often a node that does not lead asks its leader, or all peers, whether it was removed, and how many times in a row they must
/// say so: a peer that lags behind may not know yet that it was let in.
pub(crate) const REMOVAL_LOOK_INTERVAL: Duration = Duration::from_secs(5);
pub(crate) const REMOVAL_LOOKS_MIN: u32 = 2;

/// How many looks later a removed node says so again: about each minute.
pub(crate) const REMOVAL_LOOKS_AGAIN: u32 = 12;

/// How long a new member may take to catch up before its admission is given up.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);

/// Log bytes that are kept behind a snapshot, for followers that are only a little behind.
pub(crate) const KEPT_LOG_BYTES: u64 = 16 * 1024 * 1024;

/// How long a follower hears nothing before it stands for election: long enough for a busy machine, short enough to serve
/// again within three seconds.
pub(crate) const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the lead may take to be handed on.
pub(crate) const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads that wait for the leader to make sure that it leads.
pub(crate) const READS_WAITING_MAX: usize = 65_536;

/// How long a read waits for a leader that can be sure of itself.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the leader asks a quorum whether it still leads, for the reads that wait.
pub(crate) const READ_ROUND_TIMEOUT: Duration = Duration::from_secs(2);

/// How long one voter may take to answer in such a round, and the pause before it is asked again.
pub(crate) const READ_ASK_TIMEOUT: Duration = Duration::from_millis(500);
pub(crate) const READ_ASK_PAUSE: Duration = Duration::from_millis(50);

/// How often a node that starts looks whether it can be used.
pub(crate) const READY_INTERVAL: Duration = Duration::from_millis(20);

/// Answers to the leader's entries that wait to be sent.
pub(crate) const APPENDS_MAX: usize = 64;

/// The address of a node: a name in DNS and a port.
pub(crate) const ADDRESS_BYTES_MAX: usize = 260;

/// A part of a backup on its way to a client.
pub(crate) const BACKUP_PART_BYTES: usize = 256 * 1024;

/// When entries are on their way for so long and none comes back, whoever waits behind them is told so.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(3);

/// How often the replicas compare what they hold, and how often they look for what the others have noted.
pub(crate) const AUDIT_INTERVAL: Duration = Duration::from_secs(60);

/// Noting a hash may hold entries up for a thousandth of the time.
pub(crate) const AUDIT_SHARE: u32 = 1_000;

/// Hashes that a node keeps for others to compare with.
pub(crate) const AUDITS_KEPT: usize = 16;

/// A new member votes once it lacks no more entries than this: they take it a moment.
pub(crate) const CAUGHT_UP_WITHIN: u64 = 5_000;

/// How often a change of the members is tried, a tick apart, while the leader has not heard from a majority, and for how
/// many ticks it waits for another change.
pub(crate) const CHANGE_TRIES: u32 = 25;

/// How long a node that is to take the lead may take to answer, before another one is asked.
pub(crate) const HAND_OVER_PATIENCE: Duration = Duration::from_millis(500);

/// The longest pause before a peer that does not answer is tried again.
pub(crate) const PEER_PAUSE_MAX: Duration = Duration::from_secs(2);

/// How far a term may be ahead of the newest that a node knows: more elections than there can be while it is away.
pub(crate) const TERM_LEAP_MAX: u64 = 1 << 40;

/// What a call of the etcd dialect may take on the wire: a request, and room for what is around it. What is larger than
/// a request is refused in etcd's words.
pub(crate) const ETCD_MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + 512 * 1024;

/// How long a call of the etcd dialect waits for somebody to lead: longer than an election takes.
pub(crate) const LEADER_PATIENCE: Duration = Duration::from_secs(5);

/// How often it looks meanwhile.
pub(crate) const LEADER_PAUSE: Duration = Duration::from_millis(50);

/// Renewals of one stream that are ordered together, and answers to them that wait to be read.
pub(crate) const KEEP_ALIVES_MAX: usize = 1024;

/// Lots of those that are on their way through the log at once: as many as entries are.
pub(crate) const KEEP_ALIVE_LOTS_MAX: usize = IN_FLIGHT_MAX;

/// Watchers of keys on one stream.
pub(crate) const BELLS_PER_WATCH_MAX: usize = 16_384;

/// Bytes of the keys that the watchers of one stream watch, and of the ends of their ranges.
pub(crate) const WATCHED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Watchers of keys over all streams, and those who wait for a lock.
pub(crate) const BELLS_MAX: usize = 1_048_576;

/// Answers of a stream of watchers that wait to be read.
pub(crate) const WATCH_ANSWERS_MAX: usize = 16;

/// Changes of keys that are looked at, for one stream, before the ledger is let go.
pub(crate) const WATCH_CHANGES_MAX: usize = 4096;

/// The same in bytes of keys and values, which a stream keeps from being forgotten while it tells them. They are shared by all
/// streams, and with the ledger; a revision is taken whole.
pub(crate) const WATCH_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Events in the answers of a stream that wait to be read, or those of one answer. Some hundred bytes each, beside the
/// keys and values that they share.
pub(crate) const WATCH_QUEUED_EVENTS_MAX: usize = 4096;

/// Watchers that are looked at in one go before others on the same thread have their turn.
pub(crate) const WATCH_TURN: usize = 4096;

/// How often a watcher that wants to know is told that nothing has happened, as with etcd.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

/// How often old revisions of keys are forgotten, where so many are kept.
pub(crate) const COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

/// How often the revision is looked at in the age that is kept: what is forgotten is older by a tenth at most.
pub(crate) const COMPACTION_SAMPLES: u32 = 10;

/// How long a stream that needs a leader does without.
pub(crate) const LEADERLESS_MAX: Duration = Duration::from_secs(3);

/// How often a node that is to join is looked for, a tick apart: it may have been started a moment ago.
pub(crate) const HELLO_TRIES: u32 = 25;

/// Instances that are counted, or looked at for how long they are valid, before the ledger is let go.
pub(crate) const COUNTED_MAX: usize = 4096;

/// How long what was worked out for one watcher about the validity of a service is good for the others at most. It is a
/// quarter of the time of whoever ends first, if that is less, but not less than `FRESH_MIN`.
pub(crate) const FRESH_SHARED: Duration = Duration::from_secs(1);

/// How often watchers of instances are told how long these are valid: at the most, and at the least.
pub(crate) const FRESH_MIN: Duration = Duration::from_millis(250);
pub(crate) const FRESH_MAX: Duration = Duration::from_secs(15);

/// How long it may take to find out how long they are: changes wait for it.
pub(crate) const FRESH_PATIENCE: Duration = Duration::from_secs(1);

/// Services whose validity is kept for others who watch them.
pub(crate) const FRESH_SERVICES_MAX: usize = 4096;

/// Instances that are named one by one because they were put after the validity of their service was worked out. When
/// there are more it is worked out anew.
pub(crate) const FRESH_RECENT_MAX: usize = 256;

/// Instances of which one message tells how long they are valid.
pub(crate) const FRESH_ITEMS_MAX: usize = 4096;

/// Targets in one answer to Prometheus, which asks for all at once.
pub(crate) const TARGETS_MAX: usize = 50_000;

/// The same in bytes, most of which are labels.
pub(crate) const TARGETS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Networks that probes may go to: each address is held against all of them.
pub(crate) const PROBE_NETWORKS_MAX: usize = 64;

/// A probe that is not answered within this is one that takes long. Whoever is near and well answers a hundred times faster.
pub(crate) const PROBE_QUICK: Duration = Duration::from_millis(250);

/// Probes under way at once that have not taken long yet: by the time above, half a thousand hanging targets a second are
/// found out, and whoever answers within 10 ms is probed at 12,800 a second.
pub(crate) const PROBES_QUICK_MAX: usize = 128;

/// Probes under way at once that take long. Together with the above they are files that connections leave free.
pub(crate) const PROBES_SLOW_MAX: usize = 256;

/// Names that are being looked up at once, for quick and for slow probes each: every one of them holds a thread, and cannot
/// be called off.
pub(crate) const PROBE_LOOKUPS_MAX: usize = 64;

/// Addresses of one name: all of them are looked at, and a probe tries one after the other.
pub(crate) const PROBE_ADDRESSES_MAX: usize = 64;

/// What is read of an answer to a probe, in bytes: the head, and what of the body comes with it. The status is all that
/// counts.
pub(crate) const PROBE_HEAD_BYTES_MAX: usize = 16 * 1024;

/// What is read of an answer of the gRPC health service, and of its headers: it is a number.
pub(crate) const PROBE_MESSAGE_BYTES_MAX: u32 = 4 * 1024;

/// What a target may send of such an answer before it was read, in bytes: as little as HTTP/2 lets one say.
pub(crate) const PROBE_WINDOW: u32 = 65_535;

/// The first probe of a new instance is due within this, however long its interval is: until then nobody uses it.
pub(crate) const PROBE_SPREAD_MAX: Duration = Duration::from_secs(1);

/// How often it is said at most that probes are late.
pub(crate) const PROBES_LATE_PAUSE: Duration = Duration::from_secs(60);

/// Instances that are looked at for probes before the ledger is let go.
pub(crate) const PROBE_LOOKS_MAX: usize = 4096;

/// Events that are looked at by whoever follows the registry before the ledger is let go.
pub(crate) const FOLLOWED_EVENTS_MAX: usize = 4096;

/// Services that one Envoy may want to know of on one stream.
pub(crate) const XDS_NAMES_MAX: usize = 10_000;

/// Bytes of their names, which are kept three times.
pub(crate) const XDS_NAMES_BYTES_MAX: usize = 1024 * 1024;

/// Services that are looked at for one message to Envoy, before the ledger is let go.
pub(crate) const XDS_PAGE: usize = 100;

/// Endpoints of one service that Envoy is told: their weights, all of them the greatest, still fit into the sum that it
/// makes of them.
pub(crate) const XDS_ENDPOINTS_MAX: usize = 65_536;

/// What happens within this time is told to Envoy at once. It is small beside what Envoy takes to act on it.
pub(crate) const XDS_GATHER: Duration = Duration::from_millis(10);

/// For so long beyond the end of its leases Envoy may rely on what it was told: leases end late by a tick and by the time
/// without a leader, and Envoy would otherwise drop all endpoints because one of them is about to end.
pub(crate) const XDS_SLACK: Duration = Duration::from_secs(5);
