//! Every limit of the agent, with its arithmetic.

use std::time::Duration;

/// What happened to replicas and waits for the keeper. A runner makes a handful of events in its life and the
/// keeper takes them by the hundred: 1,024 are a second of a node in turmoil.
pub const HAPPENINGS_MAX: usize = 1_024;

/// Questions about what is here that wait for the keeper: each is answered at once, and few ask.
pub const ASKS_MAX: usize = 16;

/// Events in one report: as many as the control plane takes at a time.
pub const REPORT_EVENTS_MAX: usize = 1_024;

/// Events that the control plane has not made durable. A node that cannot reach it for days keeps its newest
/// history by an inventory instead: at 200 bytes each, 65,536 are 13 MiB.
pub const LEDGER_PENDING_MAX: usize = 65_536;

/// Events that are durable and kept all the same: a control plane that was put back to an earlier state asks for them
/// again. As many as one report holds; at 200 bytes each 200 KiB.
pub const LEDGER_KEPT_MAX: usize = REPORT_EVENTS_MAX;

/// Rollouts that a node has prepared for and names: more are never under way on one node in earnest.
pub const ROLLOUTS_KNOWN_MAX: usize = 64;

/// Size at which the ledger is written anew, if most of it is history.
pub const LEDGER_COMPACT_BYTES: u64 = 4 * 1024 * 1024;

/// Room on the disk that is set aside for the ledger: at 400 bytes each, 2,500 events of a node whose disk is full.
pub const LEDGER_RESERVE_BYTES: u64 = 1024 * 1024;

/// One record of the ledger: a spec of at most 1 MiB and what is around it.
pub const LEDGER_RECORD_MAX_BYTES: usize = 4 * 1024 * 1024;

/// How long a replica without a check runs before it counts as healthy.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(1);

/// A run this long makes earlier failures forgotten.
pub const STEADY_AFTER: Duration = Duration::from_secs(60);

/// Between checks of a replica that has not been healthy yet: doubled from the first to the last, so that a quick
/// start is seen quickly and a slow one is not hammered.
pub const FIRST_CHECK_PAUSE: Duration = Duration::from_millis(50);
pub const FIRST_CHECK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A check that has failed for so long within `start_grace` is reported with its reason: most starts are quicker.
pub const TELL_AFTER: Duration = Duration::from_secs(2);
/// Reasons that one run reports within its `start_grace`. Each is a write of the cluster, and three tell a start that goes
/// through stages, such as refused, 503, 404.
pub const TOLD_MAX: u32 = 3;

/// How long requests in flight may keep a replica from its stop signal, beside its own grace.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Between attempts to reach a control plane that did not answer.
pub const RETRY_FIRST: Duration = Duration::from_millis(50);
pub const RETRY_MAX: Duration = Duration::from_secs(5);

/// How often the agent compares itself with its mirror, where the control plane does not say.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);

/// How long one call to a control plane across a network may take, the wait for a connection included: above the
/// two seconds that an election takes, and below any lease.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// Calls in a row that a server may leave unanswered, 40 seconds together: one that has too much to do answers again in less,
/// one that hangs is known by its silence, and one that never answers and is not silent is left.
pub const UNANSWERED_MAX: u32 = 5;

/// The same for a node with such a lease: it leaves while half of that is left, so that it finds another server in time.
pub fn unanswered_max(ttl_secs: u32) -> u32 {
    let half_ms = u128::from(ttl_secs) * 500;
    let calls = half_ms.div_ceil(CALL_TIMEOUT.as_millis());
    u32::try_from(calls)
        .unwrap_or(UNANSWERED_MAX)
        .clamp(1, UNANSWERED_MAX)
}

/// How long a connection may take to be made, and a server to open a session on it: a new leader may keep a node
/// waiting for three seconds until it knows everything.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a node tries to open a session with the server that it belongs to. Until then it is told nothing new by the one
/// that it has; its reports go on.
pub const MOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that was not heard for so long is left: it pings at least every 21 seconds. With the search for another one
/// a node is back within 40 seconds, before a new leader takes it for dead.
pub const SERVER_SILENT_MAX: Duration = Duration::from_secs(25);

/// So long before that a node looks for the first time, and leaves its server only where it is silent at both looks.
pub const SECOND_LOOK: Duration = Duration::from_secs(1);

/// How often in a row a node goes at once where a server sends it: two servers may each believe in the other.
pub const HINTS_MAX: u32 = 3;

/// Between attempts of a replica to open the ports of new settings, which somebody else has.
pub const CLAIM_RETRY: Duration = Duration::from_secs(2);

/// Between attempts to remove what could not be removed.
pub const REMOVE_RETRY: Duration = Duration::from_secs(5);

/// How long an agent that ends waits for what has ended to be removed: milliseconds each, and half of what a daemon
/// gives its agent to end.
pub const CLEAR_WITHIN: Duration = Duration::from_secs(5);

/// Replicas whose last words are kept after they were removed, and how many lines of each: 64 × 100 lines of at
/// most 1 KiB are 6 MiB.
pub const LAST_WORDS_REPLICAS_MAX: usize = 64;
pub const LAST_WORDS_LINES: usize = 100;

/// The last lines of a replica that a reader of logs gets at a time: as many as the API promises, so that a reader
/// that comes back after a restart of the daemon finds what it missed. At 200 bytes each, 2 MiB.
pub const LOG_TAIL_LINES_MAX: usize = 10_000;

/// What is kept of the output of a check's command.
pub const CHECK_OUTPUT_MAX_BYTES: usize = 4 * 1024;

/// Characters of a message in an event: it goes into the log, and 1,024 events make one entry.
pub const MESSAGE_MAX_CHARS: usize = 400;

/// The longest pause where requests wait for the replica.
pub const AWAITED_CHECK_PAUSE: Duration = Duration::from_millis(100);

/// How often a node says again that requests wait for a first replica, and measures meanwhile.
pub const CALLING_EVERY: Duration = Duration::from_secs(1);

/// Starts and stops under way at the same time, for each core. More only make each other slower.
pub const WORK_PER_CORE: usize = 4;

/// How often what the node and its replicas use is measured: a handful of small files each.
pub const USAGE_EVERY: Duration = Duration::from_secs(10);

/// The same while a canary is called through this node, or the counts of services go by their load: a bad one is found, and
/// a crowd is met, within seconds.
pub const FOLLOWED_EVERY: Duration = Duration::from_secs(2);

/// How long after a replica has come or gone: at most one measurement a second.
pub const USAGE_SETTLES: Duration = Duration::from_secs(1);

/// Until the files of a running replica are asked for again where the control plane did not give them.
pub const FILES_RETRY: Duration = Duration::from_secs(2);

/// Contents of files in one question: a server takes 1,024, and more than a few are in no answer anyway where they are
/// large.
pub const FILES_ASKED_MAX: usize = 256;
