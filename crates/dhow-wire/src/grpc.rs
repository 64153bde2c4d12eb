//! The nodes' protocol, `dhow.v1.Nodes`, and that of the servers that hold their sessions, `dhow.v1.Holders`: the types
//! made from the files below `proto/dhow/v1`, and the way between them and the core's.
//!
//! Used by the servers' gateway and by the agent's session; it opens no connection and decides nothing. What comes
//! from the other side may be anything: reading it never panics and says what is wrong.

mod assembly;
mod assignment;
mod directory;
mod holder_beat;
mod keep_alive;
mod malformed;
mod node_info;
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "the code is generated and brings its own"
)]
pub mod proto;
mod refusal;
mod report;
mod rollout;
mod sparing_codec;
mod spec_texts;
mod usage;

pub use assembly::Assembly;
pub use assignment::{SpecReader, to_parts};
pub use directory::{DirectoryAssembly, MeshPass, from_service_names, to_directory_parts, to_service_names};
pub use holder_beat::{
    fit_acks, from_answer, from_beat, from_session, held_report_bytes, open_session_bytes, to_answer,
    to_beat, to_session,
};
pub use keep_alive::KeepAlive;
pub use malformed::Malformed;
pub use node_info::{from_node_info, to_node_info};
pub use proto::holders_client::HoldersClient;
pub use proto::holders_server::{Holders, HoldersServer};
pub use proto::nodes_client::NodesClient;
pub use proto::nodes_server::{Nodes, NodesServer};
pub use refusal::{LeaderHint, Refusal};
pub use report::{from_body, to_body};
pub use rollout::{from_open_rollout, to_open_rollout};
pub use spec_texts::SpecTexts;
pub use usage::{from_usage, to_usage};

/// The largest message either way. Parts of an assignment are far smaller, but for one spec that is as large as an
/// entry of the log may be, 8 MiB, whose JSON may escape what its own form does not.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest report that a server takes: an inventory of 16,384 replicas at about 400 bytes each is 6.5 MiB.
pub const REPORT_BYTES_MAX: usize = 8 * 1024 * 1024;

#[cfg(test)]
mod tests;
