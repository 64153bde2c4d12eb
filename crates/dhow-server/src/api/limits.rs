//! Every limit of the API, with its arithmetic.

use std::time::Duration;

/// The longest deployment file: 1 MiB of configs, each byte of which takes two where it has to be escaped, and 1 MiB of the
/// rest.
pub(super) const DEPLOYMENT_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The longest body of any other JSON: a scale of 1,000 services at 150 bytes each.
pub(super) const JSON_BYTES_MAX: usize = 256 * 1024;

/// The longest body of a webhook's call. It is only hashed; what a git server says of hundreds of commits is less.
pub(super) const HOOK_BYTES_MAX: usize = 1024 * 1024;

/// The longest idempotency key.
pub(super) const KEY_CHARS_MAX: usize = 128;

/// Changes in one scale request.
pub(super) const SCALE_CHANGES_MAX: usize = 1_000;

/// Labels that one request sets or unsets.
pub(super) const LABELS_MAX: usize = 64;

/// How long a write waits for its answer. The log answers within milliseconds; a disk that takes longer than this is
/// not coming back soon.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a caller waits for a leader where there is none: an election takes about a second. The time in which a leader
/// had the request does not count; with it, nothing is tried again after [`WRITE_TIMEOUT`].
pub(super) const LEADER_WAIT: Duration = Duration::from_secs(5);

/// The pause before a request is tried again, unless another server leads before.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How long an answer of the leader is held until this server's own state has what it is about: entries follow within
/// a heartbeat, a tenth of a second.
pub(super) const FOLLOW_WAIT: Duration = Duration::from_millis(500);

/// The longest scale request of a leader: the specs of several generations of a service at 1 MiB of file each, and a
/// million indices at 8 bytes.
pub(super) const SCALE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The longest problem document of another server that is read.
pub(super) const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// Messages of a stream that wait for a slow client: 64 of at most some KiB.
pub(super) const FEED_MAX: usize = 64;

/// A quiet stream says something this often, so that whoever stands between does not close it.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events that are read from the log at a time.
pub(super) const EVENTS_AT_ONCE: usize = 256;

/// Moments of a schedule that are told at a time.
pub(super) const CRON_NEXT_MAX: usize = 100;

/// The most lines that are sorted for the tail of a log: at 200 bytes each 2 MiB.
pub(super) const LOG_TAIL_MAX: usize = 10_000;

/// The longest text that lines of a log are searched for.
pub(super) const GREP_BYTES_MAX: usize = 1_024;

/// A node that has not sent the tail by then is followed, but not waited for.
pub(super) const LOG_TAIL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a follower of logs looks for new replicas at most.
pub(super) const LOG_LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The longest that progress is followed: a day.
pub(super) const PROGRESS_SECS_MAX: u64 = 86_400;

/// Progress is followed for so long where nobody says.
pub(super) const PROGRESS_SECS: u64 = 120;

/// Words of a command that is run in a replica, and their bytes together.
pub(super) const EXEC_WORDS_MAX: usize = 1_024;
pub(super) const EXEC_COMMAND_BYTES_MAX: usize = 64 * 1024;

/// The longest path or name of an image.
pub(super) const IMAGE_TEXT_BYTES_MAX: usize = 4_096;

/// Connections of the Unix socket that have said nothing yet, and those of one user: each has buffers of some 20 KiB, so
/// that these are 20 MiB. Those over TCP have a lobby of their own, so that strangers never lock out the users of the host.
pub(super) const UNIX_MAX: usize = 1_024;

/// Callers of one TCP address that have not shown yet who they are: a half-open handshake has some 10 KiB, so that these
/// are 40 MiB.
pub(super) const GUESTS_MAX: usize = 4_096;

/// Connections of one server, worker or token: a server has one for each log that is followed on another one.
pub(super) const PER_CALLER_MAX: usize = 1_024;

/// How long a connection that has lost its place in the lobby has to finish its requests.
pub(super) const PARTING: Duration = Duration::from_secs(1);

/// A caller that has not proved who it is by then is not waited for.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a token of the API may be good for: 100 years.
pub(super) const TOKEN_TTL_SECS_MAX: u64 = 100 * 365 * 86_400;

/// The longest that a worker's token may be good for: 30 days. It lies in files, and a new one is made in a second.
pub(super) const WORKER_TOKEN_TTL_SECS_MAX: u64 = 30 * 86_400;

/// A client that has not sent its header by then is not waited for.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the body of a request from outside may take: the longest of 1 MiB at 35 KiB a second.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The head of a request over HTTP/1, and what of its body is read at a time: the longest header is a token of some
/// hundred bytes.
pub(super) const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The same over HTTP/2, where continued frames count together.
pub(super) const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;

/// Requests under way on one connection over HTTP/2: a server follows the logs of as many replicas of another node.
pub(super) const STREAMS_MAX: u32 = 256;

/// Requests that were taken back before they were looked at, on one connection; with one more it ends.
pub(super) const RESET_STREAMS_MAX: usize = 20;

/// What waits of one answer for a caller that does not read: at 256 of them 16 MiB.
pub(super) const SEND_BYTES_MAX: usize = 64 * 1024;

/// A long connection of another node is asked this often whether it is still there, and is over when no answer comes:
/// a link that was cut is noticed within 5 s, which is less than the grace of a lease.
pub(super) const PING_EVERY: Duration = Duration::from_secs(2);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// How long open requests have after the daemon began to end.
pub(super) const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
