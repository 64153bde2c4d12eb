//! `dhow stop DEPLOYMENT[/SERVICE]`: nothing of it runs until it is started again.

use std::time::Duration;

use dhow_cli::stop;
pub use dhow_cli::stop::Args;
use dhow_cli::target::Target;
use dhow_wire::api::{Deployed, StopRequest};
use dhow_wire::{ReplicaStateName, ReplicaStatus};
use tokio::time::Instant;

use super::wait::interrupt;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// How often it is looked at while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(300);

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let done = ask(client, &args.target, "stop").await?;
    output::note(&stop::said(&args.target, done.changed));
    if !args.wait {
        return Ok(Exit::Done);
    }
    let name = args.target.shown();
    let ends = Instant::now() + args.timeout.to_std();
    loop {
        let left = still_there(client, &args.target).await?;
        if left.is_empty() {
            output::note(&format!("{name} is stopped"));
            return Ok(Exit::Done);
        }
        if Instant::now() >= ends {
            let left = left.join(", ");
            output::failure(&format!(
                "`{name}` did not stop within {:?}: {left}\n  it goes on: `dhow ps {}` shows how far it is",
                args.timeout.to_std(),
                args.target.deployment
            ));
            return Ok(Exit::Failed);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = interrupt() => {
                output::note(&format!("no longer watching; `{name}` stops without it"));
                return Ok(Exit::Interrupted);
            }
        }
    }
}

/// Asks for a stop or a start; it is durable when this returns.
pub async fn ask(client: &Client, target: &Target, verb: &str) -> anyhow::Result<Deployed> {
    let body = serde_json::to_value(StopRequest {
        service: target.name.clone(),
    })?;
    let path = ["deployments", target.deployment.as_str(), verb];
    Ok(client.fetch_as(Request::post(&path).json(body)).await?)
}

/// Replicas that have not ended.
async fn still_there(client: &Client, target: &Target) -> anyhow::Result<Vec<String>> {
    let request = Request::get(&["replicas"]).query_if("deployment", Some(&target.deployment));
    let all: Vec<ReplicaStatus> = client.fetch_as(request).await?;
    let is_meant = |replica: &ReplicaStatus| {
        let has_ended = matches!(replica.state, ReplicaStateName::Exited | ReplicaStateName::Failed);
        let name = target.name.as_ref();
        !has_ended && name.is_none_or(|name| *name == replica.service)
    };
    let left = all.into_iter().filter(is_meant);
    Ok(left
        .map(|replica| format!("{} is {}", replica.id, replica.state))
        .collect())
}
