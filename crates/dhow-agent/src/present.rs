//! What a node has at the moment, for those who ask the node itself and not the control plane's mirror of it.

use dhow_core::ids::ReplicaName;
use dhow_core::replica::Machine;

/// A replica that is here, or was and is still spoken of.
#[derive(Clone, Debug, PartialEq)]
pub struct PresentReplica {
    pub name: ReplicaName,
    pub machine: Machine,
    pub image: Option<String>,
    /// It starts once a server has confirmed that it is still this node's.
    pub waits: bool,
}
