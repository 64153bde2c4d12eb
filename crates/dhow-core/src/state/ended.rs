//! What is remembered of a replica that is gone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, NodeId, Slot};
use crate::replica::Exit;
use crate::time::ClusterTime;

/// A replica that is gone, as `ps --all` and `explain` recall it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedReplica {
    pub slot: Slot,
    pub generation: Generation,
    pub node: NodeId,
    pub exit: Option<Exit>,
    pub restarts: u32,
    pub ended: ClusterTime,
    pub message: Option<Arc<str>>,
}
