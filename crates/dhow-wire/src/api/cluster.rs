//! Writes that change who is a server of the cluster.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server that is to join; it already runs and waits to be asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberAddRequest {
    #[schema(minimum = 1)]
    pub node_id: u64,
    #[schema(value_type = String)]
    pub raft_addr: SocketAddr,
    #[schema(value_type = String)]
    pub api_addr: SocketAddr,
}
