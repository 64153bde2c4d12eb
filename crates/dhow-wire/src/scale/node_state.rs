//! What a node says about its replicas of one service.

use serde::{Deserialize, Serialize};

/// What one node runs of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeServiceState {
    pub node_id: u64,
    pub running: u32,
    /// True where none run.
    pub healthy: bool,
    pub containers: Vec<ClusterContainerSummary>,
}

impl NodeServiceState {
    /// The sum over nodes: how many run, and whether every node that runs any says they are healthy.
    pub fn total<'a>(states: impl IntoIterator<Item = &'a Self>) -> (u32, bool) {
        states.into_iter().fold((0, true), |(running, healthy), state| {
            (
                running.saturating_add(state.running),
                healthy && (state.running == 0 || state.healthy),
            )
        })
    }
}

/// One replica of a service on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterContainerSummary {
    pub node_id: u64,
    /// `{service}-{role}-{index}`.
    pub id: String,
    pub service: String,
    pub replica: u32,
    pub image: String,
    /// In lower case.
    pub state: String,
    pub pid: Option<u32>,
    pub overlay_ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
}
