//! Every limit of the nodes' door, with its arithmetic.

use std::time::Duration;

/// Reports, heartbeats and sessions of one node. A worker reports at most once a second and a server's own node a few
/// times, and a heartbeat comes every ten seconds: twenty a second with room for a burst leave plenty for retries.
pub const CALLS_PER_SECOND: u32 = 20;
pub const CALLS_BURST: u32 = 100;

/// New certificates of one worker: one a minute, and ten after a rest. A worker needs one in sixteen hours and asks once a
/// minute where it got no answer; each is an event that is kept for long.
pub const RENEWAL_SECS: u32 = 60;
pub const RENEWALS_BURST: u32 = 10;

/// Questions of one worker whether it can be dialled, each of which the server answers by dialling: one in ten seconds, and
/// six after a rest. A worker asks at its start and every ten minutes.
pub const REACH_SECS: u32 = 10;
pub const REACHES_BURST: u32 = 6;

/// Registrations of all workers together, and the same again of all who have no token of this cluster: a token is proved
/// in about 100 µs, so that 1,000 a second are a tenth of a core whoever sends them, and 30,000 workers that join at once
/// are in within half a minute.
pub const JOINS_PER_SECOND: u32 = 1_000;
pub const JOINS_BURST: u32 = 2_000;

/// What of one worker's reports may be written into the log. A report of one change is some hundred bytes, so that a
/// worker whose replicas change 200 times a second for good is heard; a whole account of the largest worker fits in at any
/// time, twice. More than this would fill the servers' disks faster than old entries are dropped.
pub const REPORT_BYTES_PER_SECOND: u32 = 64 * 1024;
pub const REPORT_BYTES_BURST: u32 = 16 * 1024 * 1024;

/// What a change of a node's account of itself counts as: a handful of short texts.
pub const INFO_BYTES: u32 = 1_024;

/// What is kept of a message that a node sends: as much as an agent keeps itself.
pub const MESSAGE_CHARS_MAX: usize = 400;

/// Secrets are asked for at every start of a replica: a node that begins with 500 replicas asks 500 times.
pub const SECRETS_PER_SECOND: u32 = 100;
pub const SECRETS_BURST: u32 = 1_000;

/// Contents of files in one answer: all configs of a deployment, and its secrets as far as they fit.
pub const FILE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Secrets in one question: a service's environment names a handful.
pub const SECRET_NAMES_MAX: usize = 1_024;

/// Nodes whose rates are remembered: twice what a cluster may have. Above it, those that have been quiet are
/// forgotten. At about 100 bytes each, 8 MiB.
pub const RATES_MAX: usize = 2 * dhow_core::state::State::NODES_MAX;

/// Connections that are served at a time: one for each node, and as many again that are being replaced.
pub const CONNECTIONS_MAX: usize = 2 * dhow_core::state::State::NODES_MAX;

/// Workers that are asked every two seconds whether they still answer: at some 30 microseconds each, 100 are
/// 1.5 thousandths of a core. Those that come when there are more are asked less often.
pub const ASKED_OFTEN_MAX: usize = 100;

/// Callers of the workers' port that have not proved yet who they are: as many as one of three servers has of the largest
/// cluster's, because all of them may come together when it has started. A handshake costs some 300 microseconds of a core
/// and 10 KiB.
pub const GUESTS_MAX: usize = 12_000;

/// Connections of one worker: the one that it has, and those that are being replaced.
pub const PER_WORKER_MAX: usize = 8;

/// A worker that has not proved who it is by then, from its turn on, is not waited for.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls under way on one connection: one session, one report, one heartbeat and the secrets of replicas that start
/// together. More wait at the node.
pub const STREAMS_MAX: u32 = 64;

/// Calls that were taken back before they were looked at, on one connection; with one more it ends.
pub const RESET_STREAMS_MAX: usize = 20;

/// Headers of one call: an authority, a path and a handful of short metadata.
pub const HEADER_BYTES_MAX: u32 = 16 * 1024;

/// How long a new leader may take until its state has everything that was written before it; who comes earlier waits
/// for that.
pub const WARM_UP_MS: u64 = 3_000;

/// How long a server may take to make sure that it still leads, before whoever asked is sent on: a round among the
/// servers takes milliseconds, and a node waits five seconds for its session.
pub const BARRIER_MAX_MS: u64 = 3_000;

/// How long a report may take to become durable before its node is told to try again: below the eight seconds after
/// which a node believes that its server is gone.
pub const REPORT_ANSWER_MAX_MS: u64 = 5_000;

/// How long connections have to end when the server does, after their sessions were told.
pub const DRAIN_DEADLINE_MS: u64 = 2_000;

/// How long a holder of more than [`ASKED_OFTEN_MAX`] sessions gathers heartbeats. Ten thousand nodes send seventeen a second
/// to each of three servers, so that four go together; a node waits eight seconds for the answer.
pub const HEARTBEATS_GATHER_MS: u64 = 250;

/// How soon a holder asks again for sessions where nobody leads: an election takes about a second.
pub const LEADER_AGAIN_MS: u64 = 100;

/// The answers in one message to a holder: half of what it takes. Without its open rollouts an answer has some 20 bytes.
pub const ACKS_BYTES_MAX: usize = dhow_wire::grpc::MESSAGE_BYTES_MAX / 2;

/// The longest name of a cluster that a node may have followed.
pub const CLUSTER_NAME_BYTES_MAX: usize = 128;

/// The connections to the leader: it is connected to in this time, and asked whether it is there.
pub const DOOR_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
pub const DOOR_PING_EVERY: Duration = Duration::from_secs(1);
pub const DOOR_PING_TIMEOUT: Duration = Duration::from_secs(2);
