//! Every limit of the runtime, with its arithmetic.

use std::time::Duration;

use crate::plane::log::store::limits::MAX_QUEUED_REQUESTS;

/// Inputs that may wait for the reducer. 30,000 workers send at most 50 heartbeats a second together, and changes
/// once a second each where they change: 1,024 inputs are about a second of a cluster in turmoil, and at some
/// 10 µs each they are worked off in 10 ms.
pub const INBOX_MAX: usize = 1_024;

/// Seconds after which a caller that met a full inbox tries again: a full inbox is empty long before.
pub const RETRY_AFTER_SECS: u32 = 1;

/// Proposals that may be on their way to the log. The log keeps a place for the event of each one, and holds
/// as many requests; the reducer takes no more inputs before it meets a full log, so that the inbox is where
/// callers are turned away.
pub const IN_FLIGHT_MAX: usize = MAX_QUEUED_REQUESTS;

/// Events of the log that are applied before the state is published and the callers are answered. Larger batches
/// save wake-ups; at some 10 µs each, 256 keep an answer waiting for 3 ms at most.
pub const APPLY_BATCH_MAX: usize = 256;

/// Commands of a plan in one proposal. A proposal is one write of the log.
pub const PLAN_CHUNK_COMMANDS: usize = 256;

/// Encoded bytes of a plan's commands in one proposal: what a raft log sends in one message without holding up
/// its heartbeats.
pub const PLAN_CHUNK_BYTES: usize = 512 * 1024;

/// How long the reducer waits after an applied batch before it plans, so that a burst is planned once.
pub const PLAN_DEBOUNCE_MS: u64 = 10;

/// Replicas that a plan looks at in a millisecond, on a slow machine.
pub const PLANNED_PER_MS: u64 = 250;

/// The longest wait after a plan for the time that it takes.
pub const PLAN_REST_MAX_MS: u64 = 1_000;

/// The longest wait between plans whose commands were all refused as stale: 10 ms doubled seven times.
pub const PLAN_STALE_WAIT_MAX_MS: u64 = 1_280;

/// How often a plan is asked for although nothing has happened. Deadlines have their own wake-up; this is the
/// safety net behind it.
pub const PLAN_TICK_MS: u64 = 5_000;

/// A heartbeat that has waited this long for the reducer is answered without a look: whoever sent it has given
/// up, and what it says is old.
pub const HEARTBEAT_STALE_MS: u64 = 5_000;

/// Rollouts handed to one node in one answer. What a node is to run comes by its assignment anyway.
pub const BOOTSTRAP_MAX: usize = 256;

/// Events in one report of a node. At most 300 bytes each, so that a report stays below 512 KiB; an agent that has
/// more sends several.
pub const REPORT_EVENTS_MAX: usize = 1_024;

/// Replicas in one inventory. It is one entry of the log: at about 200 bytes each, 16,384 make 3 MiB.
pub const INVENTORY_MAX: usize = 16_384;

/// Batches of effects that may wait for the applier. A batch names each node once, so 64 are 64 × 40,000 node
/// ids at the very most, 40 MiB; what does not fit is merged into the next one.
pub const EFFECT_BATCHES_MAX: usize = 64;

/// Records in one message to the event log writer.
pub const EVENT_CHUNK_RECORDS: usize = 256;

/// Messages that may wait for the event log writer.
pub const EVENT_MESSAGES_MAX: usize = 4_096;

/// Records that may wait for the event log writer: of about 300 bytes each, 5 MiB.
pub const EVENTS_WAITING_MAX: usize = 64 * EVENT_CHUNK_RECORDS;

/// Events are written at most so often: what comes meanwhile goes into one write. Nothing waits for it, and the next
/// start makes what a crash takes away again from the log.
pub const EVENT_WRITE_EVERY: Duration = Duration::from_millis(20);

/// Records that are kept in memory for those who follow: at about 300 bytes each 1.2 MiB.
pub const EVENT_HUB_MAX: usize = 4_096;

/// Records that a replay hands to the event log: more than the log holds between two snapshots.
pub const REPLAYED_EVENTS_MAX: usize = 65_536;

/// Events that are made of the differences in a state that came from another server as a whole: as many as are kept in
/// memory. Whoever wants to know of more reads the state itself.
pub const INSTALLED_EVENTS_MAX: usize = EVENT_HUB_MAX;

/// Refused or diverged reports of a node become an event at most so often, in the cluster's time: of 40,000 nodes that
/// are all refused 700 a second, which the event log writes in its stride.
pub const REPORT_DOUBT_EVERY_MS: u64 = 60_000;

/// Size at which a file of the event log is closed and the next one is begun.
pub const EVENT_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Files of the event log that are kept: 64 MiB, at about 300 bytes some 200,000 events.
pub const EVENT_FILES_MAX: usize = 8;

/// The same of what somebody asked for, which stands there a second time: 32 MiB, some 100,000 deeds. No node can cause
/// one more often than once a minute.
pub const AUDIT_FILES_MAX: usize = 4;

/// Applied entries after which a snapshot is made. A replay runs at some 100,000 entries a second, so that a
/// start takes well below a second.
pub const SNAPSHOT_ENTRIES: u64 = 10_000;

/// Bytes of applied entries after which a snapshot is made: four segments of the log.
pub const SNAPSHOT_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// How long the writer of the past rests after it has written: entries of that time are one frame, and a question about the
/// newest revision has it write at once.
pub const PAST_PAUSE_MS: u64 = 500;
/// How often it looks where nothing happens.
pub const PAST_TICK_MS: u64 = 5_000;
/// How often it makes durable what it has written. What a power cut takes is read from the log again.
pub const PAST_SYNC_MS: u64 = 15_000;

/// How often the directory of manifests is looked at.
pub const MANIFEST_POLL_MS: u64 = 5_000;

/// How often a server elsewhere is asked.
pub const REMOTE_POLL_MS: u64 = 60_000;

/// However often somebody calls a source's webhook: the pause between two looks at it.
pub const REMOTE_GAP_MS: u64 = 5_000;

/// Looks at what is elsewhere at a time: each may hold some hundred megabytes.
pub const REMOTE_LOOKS_MAX: usize = 2;

/// Distinct reasons of refusal that are remembered so that each is logged once.
pub const REFUSALS_REMEMBERED_MAX: usize = 64;

/// How long the other tasks have after the reducer's deadline to write what they hold.
pub const FLUSH_DEADLINE_MS: u64 = 1_000;

/// Changes of the directory that are taken together. What happens in a moment of a rollout goes as one; the nodes that
/// hear of it a twentieth of a second later lose nothing, because a replica that is asked in vain refuses before a byte.
pub const DIRECTORY_QUIET_MS: u64 = 50;
/// The same after more nodes than [`DIRECTORY_QUIET_NODES_MAX`] were woken.
pub const DIRECTORY_LOAD_MS: u64 = 500;
/// 200 nodes at the quiet pace are 4,000 messages a second.
pub const DIRECTORY_QUIET_NODES_MAX: usize = 200;
/// The same after more nodes than [`DIRECTORY_LOAD_NODES_MAX`] were woken: three servers with 3,333 nodes each send 10,000
/// small messages a second, at some 40 microseconds each less than half a core, and a node hears of a change within two
/// seconds.
pub const DIRECTORY_STORM_MS: u64 = 1_000;
/// The task that keeps the index rests for so many times as long as it has worked, so that it takes a fifth of a core.
pub const DIRECTORY_REST: u64 = 4;
/// 2,000 nodes every half second are 4,000 messages a second too.
pub const DIRECTORY_LOAD_NODES_MAX: usize = 2_000;
