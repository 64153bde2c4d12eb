//! The verbs that change a node at once: undrain, label, rm.

use dhow_cli::node::{LabelArgs, RmArgs, UndrainArgs};
use dhow_wire::NodeStatus;
use dhow_wire::api::WriteDone;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

pub async fn undrain(args: &UndrainArgs, client: &Client) -> anyhow::Result<Exit> {
    let node = args.node.to_string();
    let before: NodeStatus = client.fetch_as(Request::get(&["nodes", node.as_str()])).await?;
    let path = ["nodes", node.as_str(), "undrain"];
    let _: WriteDone = client.fetch_as(Request::post(&path)).await?;
    output::note(&args.said(&before));
    Ok(Exit::Done)
}

pub async fn label(args: &LabelArgs, client: &Client) -> anyhow::Result<Exit> {
    let node = args.node.to_string();
    let path = ["nodes", node.as_str(), "labels"];
    let body = serde_json::to_value(args.request())?;
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    output::note(&args.said());
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
    output::note(&args.said());
    Ok(Exit::Done)
}
