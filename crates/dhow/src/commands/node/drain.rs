//! `dhow node drain`: moves a node's replicas away and shows how that comes along.

use std::time::{Duration, Instant};

use dhow_cli::node::{DrainArgs, DrainEnd, ShownDrain, timed_out};
use dhow_wire::NodeStatus;
use dhow_wire::api::WriteDone;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// How often a drain is looked at. It moves replicas one after the other, each for seconds.
const LOOK_EVERY: Duration = Duration::from_millis(300);

pub async fn drain(args: &DrainArgs, client: &Client) -> anyhow::Result<Exit> {
    let node = args.node.to_string();
    let body = serde_json::to_value(args.request())?;
    let path = ["nodes", node.as_str(), "drain"];
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    if args.detach {
        output::note(&args.said());
        return Ok(Exit::Done);
    }
    let began = Instant::now();
    let mut told = ShownDrain::default();
    loop {
        let status: NodeStatus = client.fetch_as(Request::get(&["nodes", &node])).await?;
        match DrainEnd::of(&status, args.ignore_system) {
            None => {}
            Some(DrainEnd::Drained(text)) => {
                output::note(&text);
                return Ok(Exit::Done);
            }
            Some(DrainEnd::Failed(text)) => {
                output::failure(&text);
                return Ok(Exit::Failed);
            }
        }
        told.tell(&status).iter().for_each(|line| output::note(line));
        if began.elapsed() > args.timeout.to_std() {
            output::failure(&timed_out(&status));
            return Ok(Exit::Failed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
