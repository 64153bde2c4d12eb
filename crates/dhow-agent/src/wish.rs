//! What the keeper and the runners of replicas say to each other: what is wished of a replica, and what happened to it.

use std::sync::Arc;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{ReplicaName, SettingsId};
use dhow_core::replica::{Machine, ReplicaEvent};
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::PortBinding;

/// What a replica is to run, and the settings that it is to try beside.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    pub spec: Arc<ServiceSpec>,
    pub next: Option<AssignedSettings>,
}

impl Assigned {
    /// Whether a running replica has to be replaced to become the one that is assigned now. Judged as servers of every
    /// feature level do, so that nothing is replaced that one of them takes over in place.
    pub fn is_replaced_by(&self, told: &Self) -> bool {
        self.spec.rolls_into_at(&told.spec, 1)
    }
}

/// What is wished of a replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// It was found, and nobody has said yet what is to become of it: watch it, and start nothing.
    Undecided,
    Run(Assigned),
    /// It ran before the host was started again, and may run elsewhere by now: start it once that is known.
    Confirmed(Assigned),
    /// For good: the name is not used again.
    Stop,
}

/// What a runner tells the keeper, in order.
#[derive(Clone, Debug)]
pub enum Happening {
    Event {
        name: ReplicaName,
        event: ReplicaEvent,
        machine: Machine,
    },
    /// What it is made from, before it is.
    Track {
        name: ReplicaName,
        spec: Arc<ServiceSpec>,
        ports: Vec<PortBinding>,
        next: Option<AssignedSettings>,
        passed: Option<SettingsId>,
    },
    /// Nothing of it is left here, and its runner has ended.
    Gone { name: ReplicaName },
}
