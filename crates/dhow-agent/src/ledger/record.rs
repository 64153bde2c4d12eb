//! One line of the ledger.

use std::sync::Arc;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{ReplicaName, SettingsId};
use dhow_core::replica::{Machine, ReplicaEvent};
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::PortBinding;
use serde::{Deserialize, Serialize};

/// A ledger of another version is not read: the node begins a new life.
pub const VERSION: u32 = 1;

/// One record of the ledger: what the node is, an event of a replica, or how far the control plane has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first of a file.
    Begin {
        version: u32,
        incarnation: u64,
        seq: u64,
        durable_seq: u64,
        /// The start of the host in which a server last confirmed what this node runs; absent before the first time,
        /// and in files of versions that did not ask.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot_id: Option<String>,
    },
    /// A replica that this node has, and what it is made from.
    Track {
        name: ReplicaName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spec: Option<Arc<ServiceSpec>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ports: Vec<PortBinding>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<Machine>,
        /// Settings that it tries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<AssignedSettings>,
        /// The last ones that it has passed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        passed: Option<SettingsId>,
    },
    /// What happened to one, and what it is after it.
    Event {
        seq: u64,
        name: ReplicaName,
        event: ReplicaEvent,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<Machine>,
    },
    /// Nothing of it is left here.
    Forget { name: ReplicaName },
    /// Everything up to here is durable at the control plane.
    Durable { seq: u64 },
}
