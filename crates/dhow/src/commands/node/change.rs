//! The verbs that change a node at once: undrain, label, rm.

use std::collections::BTreeMap;

use dhow_wire::api::{NodeLabelRequest, WriteDone};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

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
    output::note(&format!("node {node} now has {}", said(&args.changes)));
    Ok(Exit::Done)
}

fn said(changes: &[Change]) -> String {
    let each = changes.iter().map(|change| match change {
        Change::Set(key, value) => format!("{key}={value}"),
        Change::Unset(key) => format!("no {key} that people set"),
    });
    each.collect::<Vec<_>>().join(", ")
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
