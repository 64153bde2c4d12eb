//! The verbs that change a node: drain, undrain, label, rm.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dhow_core::spec::TimeSpan;
use dhow_wire::api::{NodeDrainRequest, NodeLabelRequest, WriteDone};
use dhow_wire::{NodeState, NodeStatus};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// How often a drain is looked at. It moves replicas one after the other, each for seconds.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Move a node's replicas elsewhere and give it no new ones
///
/// New replicas run before old ones end, by the rules of each service's rollout. Returns when nothing of the cluster's
/// is left on the node: then it is safe to stop it.
#[derive(clap::Args)]
pub struct DrainArgs {
    #[arg(value_name = "NODE_ID")]
    node: u64,

    /// Also end the node's daemon once the last replica has gone
    #[arg(long)]
    shutdown: bool,

    /// Return once it is durable
    #[arg(long)]
    detach: bool,

    /// How long to wait at most; the drain goes on after that
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    timeout: TimeSpan,
}

/// Let a node have replicas again
#[derive(clap::Args)]
pub struct UndrainArgs {
    #[arg(value_name = "NODE_ID")]
    node: u64,
}

/// Set labels with KEY=VALUE and take them away with KEY-
#[derive(clap::Args)]
pub struct LabelArgs {
    #[arg(value_name = "NODE_ID")]
    node: u64,

    #[arg(value_name = "KEY=VALUE|KEY-", required = true, value_parser = change)]
    changes: Vec<Change>,
}

/// Forget a node that is drained or cannot be reached
#[derive(clap::Args)]
pub struct RmArgs {
    #[arg(value_name = "NODE_ID")]
    node: u64,

    /// Also one that is believed to be alive: what it runs is placed elsewhere at once
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Set(String, String),
    Unset(String),
}

fn change(text: &str) -> Result<Change, String> {
    if let Some((key, value)) = text.split_once('=') {
        return Ok(Change::Set(key.into(), value.into()));
    }
    match text.strip_suffix('-') {
        Some(key) if !key.is_empty() => Ok(Change::Unset(key.into())),
        Some(_) | None => Err("write KEY=VALUE to set a label, KEY- to take it away".into()),
    }
}

pub async fn drain(args: &DrainArgs, client: &Client) -> anyhow::Result<Exit> {
    let (id, node) = (args.node, args.node.to_string());
    let body = serde_json::to_value(NodeDrainRequest {
        shutdown: args.shutdown,
    })?;
    let path = ["nodes", node.as_str(), "drain"];
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    if args.detach {
        output::note(&format!("node {id} drains"));
        return Ok(Exit::Done);
    }
    let began = Instant::now();
    let mut told = None;
    loop {
        let status: NodeStatus = client.fetch_as(Request::get(&["nodes", &node])).await?;
        match status.status {
            NodeState::Drained => {
                output::note(&format!(
                    "node {id} is drained: nothing of the cluster's runs there, it is safe to stop it"
                ));
                return Ok(Exit::Done);
            }
            NodeState::Unreachable => {
                output::failure(&format!(
                    "node {id} cannot be reached: what it runs is placed elsewhere, but nobody can say whether it \
                     has stopped there"
                ));
                return Ok(Exit::Failed);
            }
            NodeState::Ready => {
                output::failure(&format!("somebody has ended the drain of node {id}"));
                return Ok(Exit::Failed);
            }
            NodeState::Draining => {}
        }
        if told != Some(status.replicas) {
            output::note(&format!(
                "node {id} drains: {} replicas are left",
                status.replicas
            ));
            told = Some(status.replicas);
        }
        if began.elapsed() > args.timeout.to_std() {
            output::failure(&format!(
                "node {id} still has {} replicas; the drain goes on, `dhow explain` says what holds a replica up",
                status.replicas
            ));
            return Ok(Exit::Failed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub async fn undrain(args: &UndrainArgs, client: &Client) -> anyhow::Result<Exit> {
    let node = args.node.to_string();
    let path = ["nodes", node.as_str(), "undrain"];
    let _: WriteDone = client.fetch_as(Request::post(&path)).await?;
    output::note(&format!("node {node} takes replicas again"));
    Ok(Exit::Done)
}

pub async fn label(args: &LabelArgs, client: &Client) -> anyhow::Result<Exit> {
    let mut request = NodeLabelRequest {
        set: BTreeMap::new(),
        unset: Vec::new(),
    };
    for change in &args.changes {
        match change {
            Change::Set(key, value) => {
                request.set.insert(key.clone(), value.clone());
            }
            Change::Unset(key) => request.unset.push(key.clone()),
        }
    }
    let node = args.node.to_string();
    let path = ["nodes", node.as_str(), "labels"];
    let body = serde_json::to_value(request)?;
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    output::note(&format!("node {node} is labelled"));
    Ok(Exit::Done)
}

pub async fn remove(args: &RmArgs, client: &Client) -> anyhow::Result<Exit> {
    let node = args.node.to_string();
    let path = ["nodes", node.as_str()];
    let mut request = Request::delete(&path);
    if args.force {
        request = request.query("force", true);
    }
    let _: WriteDone = client.fetch_as(request).await?;
    output::note(&format!("node {node} is forgotten"));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_and_taken_away() {
        assert_eq!(change("zone=a"), Ok(Change::Set("zone".into(), "a".into())));
        assert_eq!(change("zone=a=b"), Ok(Change::Set("zone".into(), "a=b".into())));
        assert_eq!(change("zone-"), Ok(Change::Unset("zone".into())));
        assert!(change("-").is_err());
        assert!(change("zone").is_err());
    }
}
