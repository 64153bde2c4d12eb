//! How a scripted workload behaves.

use std::collections::BTreeMap;

use dhow_core::ids::NodeId;
use dhow_core::spec::{Check, HealthSpec, TimeSpan};

/// What a simulated workload does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// From being started to running.
    pub start: TimeSpan,
    /// It cannot be started at all.
    pub cannot_start: bool,
    /// The step before it that does not end well, by its number, with its exit code.
    pub failing_step: Option<(u32, i32)>,
    /// Its image cannot be fetched.
    pub cannot_pull: bool,
    /// From running to healthy; none is never.
    pub healthy_after: Option<TimeSpan>,
    /// From healthy to unhealthy: then it is ended and started again.
    pub unhealthy_after: Option<TimeSpan>,
    /// From running to its own end.
    pub exit_after: Option<TimeSpan>,
    pub exit_code: i32,
    /// From being asked to end to having ended.
    pub stop: TimeSpan,
    /// The one port that it answers checks on; none is any.
    pub port: Option<u16>,
}

impl Behaviour {
    /// Whether a check would pass.
    pub fn passes(&self, health: Option<&HealthSpec>) -> bool {
        match (health.map(|health| &health.check), self.port) {
            (Some(Check::Tcp { port }), Some(own)) => *port == own,
            (Some(Check::Tcp { .. } | Check::Http { .. } | Check::Command { .. }) | None, _) => true,
        }
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            start: TimeSpan::from_millis(500),
            cannot_start: false,
            failing_step: None,
            cannot_pull: false,
            healthy_after: Some(TimeSpan::from_secs(1)),
            unhealthy_after: None,
            exit_after: None,
            exit_code: 0,
            stop: TimeSpan::from_millis(200),
            port: None,
        }
    }
}

/// How images behave, everywhere or on one node. What nothing is said of works.
#[derive(Clone, Debug, Default)]
pub struct Behaviours {
    everywhere: BTreeMap<String, Behaviour>,
    on_nodes: BTreeMap<(NodeId, String), Behaviour>,
}

impl Behaviours {
    pub fn insert(&mut self, image: String, behaviour: Behaviour) {
        self.everywhere.insert(image, behaviour);
    }

    /// Wins over what is said of the image everywhere.
    pub fn insert_on(&mut self, node: NodeId, image: String, behaviour: Behaviour) {
        self.on_nodes.insert((node, image), behaviour);
    }

    pub(super) fn of(&self, node: NodeId, image: &str) -> Behaviour {
        let here = self.on_nodes.get(&(node, image.to_owned()));
        here.or_else(|| self.everywhere.get(image))
            .copied()
            .unwrap_or_default()
    }
}
