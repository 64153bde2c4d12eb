//! `dhow node drain`: moves a node's replicas away and shows how that comes along.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::spec::TimeSpan;
use dhow_wire::api::NodeDrainRequest;
use dhow_wire::{DrainWait, NodeState, NodeStatus};

/// Move a node's replicas elsewhere and give it no new ones
///
/// New replicas run before old ones end, by the rules of each service's rollout: the next one leaves when the one
/// before has a healthy replacement. Replicas that no other node takes stay and are named, until --deadline or --force
/// ends them. Returns when nothing of the cluster's is left on the node: then it is safe to stop it.
#[derive(clap::Args)]
pub struct DrainArgs {
    #[arg(value_name = "NODE_ID")]
    pub node: u64,

    /// Also end the node's daemon once the last replica has gone
    #[arg(long)]
    pub shutdown: bool,

    /// End what is left after so long, whatever that costs its services
    #[arg(long, value_name = "DURATION", conflicts_with = "force")]
    pub deadline: Option<TimeSpan>,

    /// End everything at once, whatever that costs its services
    #[arg(long)]
    pub force: bool,

    /// Leave the replicas of `system` services where they are
    #[arg(long, conflicts_with = "shutdown")]
    pub ignore_system: bool,

    /// Return once it is durable
    #[arg(long, short, conflicts_with = "timeout")]
    pub detach: bool,

    /// How long to wait at most; the drain goes on after that
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub timeout: TimeSpan,
}

impl DrainArgs {
    /// What is asked for.
    pub fn request(&self) -> NodeDrainRequest {
        NodeDrainRequest {
            shutdown: self.shutdown,
            deadline_secs: match self.force {
                true => Some(0),
                false => self.deadline.map(|span| span.as_millis().div_ceil(1_000)),
            },
            ignore_system: self.ignore_system,
        }
    }

    /// What was begun, where nobody waits for it.
    pub fn said(&self) -> String {
        format!("node {} drains", self.node)
    }
}

/// What a drain has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    Drained(String),
    Failed(String),
}

impl DrainEnd {
    /// None while it goes on.
    pub fn of(status: &NodeStatus, ignore_system: bool) -> Option<Self> {
        let id = status.node_id;
        match status.status {
            NodeState::Drained => {
                let left = match (ignore_system, status.replicas) {
                    (true, 1..) => "only replicas of `system` services run there",
                    (true, 0) | (false, _) => "nothing of the cluster's runs there",
                };
                Some(Self::Drained(format!(
                    "node {id} is drained: {left}, it is safe to stop it"
                )))
            }
            NodeState::Unreachable => Some(Self::Failed(format!(
                "node {id} cannot be reached: what it runs is placed elsewhere, but nobody can say whether it has \
                 stopped there"
            ))),
            NodeState::Ready => Some(Self::Failed(format!("somebody has ended the drain of node {id}"))),
            NodeState::Draining => None,
        }
    }
}

/// What a command has shown of a drain already: it shows each thing once.
#[derive(Default)]
pub struct ShownDrain {
    replicas: Option<u32>,
    waits: BTreeSet<String>,
}

impl ShownDrain {
    /// What is new.
    pub fn tell(&mut self, status: &NodeStatus) -> Vec<String> {
        let mut lines = Vec::new();
        if self.replicas != Some(status.replicas) {
            lines.push(format!(
                "node {} drains: {} left",
                status.node_id,
                counted(status.replicas)
            ));
            self.replicas = Some(status.replicas);
        }
        for line in told_waits(waits(status)) {
            if self.waits.insert(line.clone()) {
                lines.push(line);
            }
        }
        lines
    }
}

/// What holds replicas up: each that cannot move, and the others together where they wait for the same.
fn told_waits(waits: &[DrainWait]) -> Vec<String> {
    let stuck = waits.iter().filter(|wait| wait.cannot_move);
    let mut lines: Vec<String> = stuck
        .map(|wait| format!("{} cannot move: {}", wait.replica, wait.why))
        .collect();
    let mut others: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| !wait.cannot_move) {
        let (_, count) = others.entry(&wait.why).or_insert((&wait.replica, 0));
        *count += 1;
    }
    lines.extend(others.into_iter().map(|(why, (first, count))| match count {
        1 => format!("{first}: {why}"),
        more => format!("{first} and {} more: {why}", more - 1),
    }));
    lines
}

fn waits(status: &NodeStatus) -> &[DrainWait] {
    status
        .drain
        .as_ref()
        .map_or(&[], |drain| drain.waiting.as_slice())
}

fn counted(replicas: u32) -> String {
    match replicas {
        1 => "1 replica is".into(),
        many => format!("{many} replicas are"),
    }
}

/// What is said where nobody waits any longer.
pub fn timed_out(status: &NodeStatus) -> String {
    let mut text = format!(
        "node {} still drains and {} left; the drain goes on",
        status.node_id,
        counted(status.replicas)
    );
    for line in told_waits(waits(status)) {
        text.push_str("\n  ");
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(replicas: u32, waiting: &[(&str, bool)]) -> NodeStatus {
        let waiting = waiting.iter().map(|(replica, cannot_move)| DrainWait {
            replica: (*replica).into(),
            why: "the only node is draining".into(),
            cannot_move: *cannot_move,
        });
        NodeStatus {
            node_id: 1,
            role: dhow_wire::NodeRole::Peer,
            status: NodeState::Draining,
            leader: true,
            labels: Default::default(),
            replicas,
            runs_replicas: true,
            os: None,
            arch: None,
            api_addr: None,
            mesh_addr: None,
            drain: Some(dhow_wire::NodeDrainStatus {
                waiting: waiting.collect(),
                ..Default::default()
            }),
            resources: None,
            lease: None,
            failures: None,
        }
    }

    #[test]
    fn what_waits_is_named_once() {
        let mut told = ShownDrain::default();
        let first = told.tell(&status(
            2,
            &[("shop/db-default-0", true), ("shop/web-default-0", false)],
        ));
        assert_eq!(
            first,
            [
                "node 1 drains: 2 replicas are left",
                "shop/db-default-0 cannot move: the only node is draining",
                "shop/web-default-0: the only node is draining"
            ]
        );
        assert!(told.tell(&status(2, &[("shop/db-default-0", true)])).is_empty());
        let one = told.tell(&status(1, &[("shop/db-default-0", true)]));
        assert_eq!(one, ["node 1 drains: 1 replica is left"]);
        assert_eq!(
            timed_out(&status(1, &[("shop/db-default-0", true)])),
            "node 1 still drains and 1 replica is left; the drain goes on\n  shop/db-default-0 cannot move: the only \
             node is draining"
        );
    }
}
