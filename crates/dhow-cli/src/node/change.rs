//! The verbs that change a node at once: undrain, label, rm.

use std::collections::BTreeMap;

use dhow_wire::api::NodeLabelRequest;
use dhow_wire::{NodeState, NodeStatus};

/// Let a node have replicas again
#[derive(clap::Args)]
pub struct UndrainArgs {
    #[arg(value_name = "NODE_ID")]
    pub node: u64,
}

/// Set labels with KEY=VALUE and take them away with KEY-
#[derive(clap::Args)]
pub struct LabelArgs {
    #[arg(value_name = "NODE_ID")]
    pub node: u64,

    #[arg(value_name = "KEY=VALUE|KEY-", required = true, value_parser = change)]
    changes: Vec<Change>,
}

/// Forget a node that runs nothing or cannot be reached
///
/// A worker that is removed ends what it runs, and itself. Its id is never given again. A server is taken out with `dhow
/// cluster remove` first.
#[derive(clap::Args)]
pub struct RmArgs {
    #[arg(value_name = "NODE_ID")]
    pub node: u64,

    /// Also one that is believed to be alive: what it runs is placed elsewhere at once
    #[arg(long)]
    pub force: bool,
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

impl UndrainArgs {
    /// What was done, to a node that was so before.
    pub fn said(&self, before: &NodeStatus) -> String {
        let node = self.node;
        match before.status {
            NodeState::Ready => format!("node {node} was not drained: nothing has changed"),
            NodeState::Unreachable if before.drain.is_none() => {
                format!("node {node} was not drained: nothing has changed, and it cannot be reached")
            }
            NodeState::Unreachable => {
                format!(
                    "node {node} is drained no longer; it cannot be reached, and takes replicas once it is back"
                )
            }
            NodeState::Draining | NodeState::Drained if !before.runs_replicas => {
                format!("node {node} is drained no longer; it is a server that runs no replicas")
            }
            NodeState::Draining | NodeState::Drained => {
                format!("node {node} takes replicas again; what has left it stays where it is now")
            }
        }
    }
}

impl RmArgs {
    /// What was done.
    pub fn said(&self) -> String {
        format!("node {} is forgotten", self.node)
    }
}

impl LabelArgs {
    /// What is asked for.
    pub fn request(&self) -> NodeLabelRequest {
        let mut request = NodeLabelRequest {
            set: BTreeMap::new(),
            unset: Vec::new(),
        };
        for change in &self.changes {
            match change {
                Change::Set(key, value) => {
                    request.set.insert(key.clone(), value.clone());
                }
                Change::Unset(key) => request.unset.push(key.clone()),
            }
        }
        request
    }

    /// What was done.
    pub fn said(&self) -> String {
        let each = self.changes.iter().map(|change| match change {
            Change::Set(key, value) => format!("{key}={value}"),
            Change::Unset(key) => format!("no {key} that people set"),
        });
        format!(
            "node {} now has {}",
            self.node,
            each.collect::<Vec<_>>().join(", ")
        )
    }
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

    #[test]
    fn a_server_that_runs_nothing_is_not_said_to_take_replicas() {
        let args = UndrainArgs { node: 1 };
        let mut node: NodeStatus = serde_json::from_str(
            r#"{"node_id":1,"role":"server","status":"drained","leader":false,"labels":{},"replicas":0,
                "runs_replicas":false}"#,
        )
        .unwrap();
        assert_eq!(
            args.said(&node),
            "node 1 is drained no longer; it is a server that runs no replicas"
        );
        node.runs_replicas = true;
        assert!(args.said(&node).starts_with("node 1 takes replicas again"));
    }
}
