//! `dhow node drain`: moves a node's replicas away and shows how that comes along.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dhow_core::spec::TimeSpan;
use dhow_wire::api::{NodeDrainRequest, WriteDone};
use dhow_wire::{DrainWait, NodeState, NodeStatus};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// How often a drain is looked at. It moves replicas one after the other, each for seconds.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Move a node's replicas elsewhere and give it no new ones
///
/// New replicas run before old ones end, by the rules of each service's rollout: the next one leaves when the one
/// before has a healthy replacement. Replicas that no other node takes stay and are named, until --deadline or --force
/// ends them. Returns when nothing of the cluster's is left on the node: then it is safe to stop it.
#[derive(clap::Args)]
pub struct DrainArgs {
    #[arg(value_name = "NODE_ID")]
    node: u64,

    /// Also end the node's daemon once the last replica has gone
    #[arg(long)]
    shutdown: bool,

    /// End what is left after so long, whatever that costs its services
    #[arg(long, value_name = "DURATION", conflicts_with = "force")]
    deadline: Option<TimeSpan>,

    /// End everything at once, whatever that costs its services
    #[arg(long)]
    force: bool,

    /// Leave the replicas of `system` services where they are
    #[arg(long, conflicts_with = "shutdown")]
    ignore_system: bool,

    /// Return once it is durable
    #[arg(long)]
    detach: bool,

    /// How long to wait at most; the drain goes on after that
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    timeout: TimeSpan,
}

pub async fn drain(args: &DrainArgs, client: &Client) -> anyhow::Result<Exit> {
    let (id, node) = (args.node, args.node.to_string());
    let body = serde_json::to_value(NodeDrainRequest {
        shutdown: args.shutdown,
        deadline_secs: match args.force {
            true => Some(0),
            false => args.deadline.map(|span| span.as_millis().div_ceil(1_000)),
        },
        ignore_system: args.ignore_system,
    })?;
    let path = ["nodes", node.as_str(), "drain"];
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    if args.detach {
        output::note(&format!("node {id} drains"));
        return Ok(Exit::Done);
    }
    let began = Instant::now();
    let mut told = ShownDrain::default();
    loop {
        let status: NodeStatus = client.fetch_as(Request::get(&["nodes", &node])).await?;
        if let Some(exit) = ended(&status, args.ignore_system) {
            return Ok(exit);
        }
        told.tell(&status).iter().for_each(|line| output::note(line));
        if began.elapsed() > args.timeout.to_std() {
            output::failure(&timed_out(&status));
            return Ok(Exit::Failed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What the drain has come to, where it is over.
fn ended(status: &NodeStatus, ignore_system: bool) -> Option<Exit> {
    let id = status.node_id;
    match status.status {
        NodeState::Drained => {
            let left = match (ignore_system, status.replicas) {
                (true, 1..) => "only replicas of `system` services run there",
                (true, 0) | (false, _) => "nothing of the cluster's runs there",
            };
            output::note(&format!("node {id} is drained: {left}, it is safe to stop it"));
            Some(Exit::Done)
        }
        NodeState::Unreachable => {
            output::failure(&format!(
                "node {id} cannot be reached: what it runs is placed elsewhere, but nobody can say whether it \
                 has stopped there"
            ));
            Some(Exit::Failed)
        }
        NodeState::Ready => {
            output::failure(&format!("somebody has ended the drain of node {id}"));
            Some(Exit::Failed)
        }
        NodeState::Draining => None,
    }
}

/// What the command has shown of the drain already: it shows each thing once.
#[derive(Default)]
struct ShownDrain {
    replicas: Option<u32>,
    waits: BTreeSet<String>,
}

impl ShownDrain {
    fn tell(&mut self, status: &NodeStatus) -> Vec<String> {
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

fn timed_out(status: &NodeStatus) -> String {
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
            os: None,
            arch: None,
            api_addr: None,
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
