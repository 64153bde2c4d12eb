//! `dhow scale DEPLOYMENT/SERVICE=N…`: how many replicas services are to have.

use dhow_cli::scale;
pub use dhow_cli::scale::Args;
use dhow_cli::target::ScaleTarget;
use dhow_wire::api::{ScaleItem, ScaleRequest, WriteDone};

use super::wait::wait_until_stable;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    for target in args.releases() {
        let body = serde_json::to_value(ScaleRequest {
            changes: Vec::new(),
            hold_ms: None,
            release: vec![target.name.clone()],
        })?;
        let path = ["deployments", target.deployment.as_str(), "scale"];
        let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
        output::note(&scale::said_released(target));
    }
    let by_deployment = args.by_deployment();
    for (deployment, targets) in &by_deployment {
        let body = serde_json::to_value(ScaleRequest {
            changes: targets.iter().map(|target| item(target)).collect(),
            hold_ms: args.hold.map(dhow_core::spec::TimeSpan::as_millis),
            release: Vec::new(),
        })?;
        let path = ["deployments", deployment.as_str(), "scale"];
        let _: WriteDone = client
            .fetch_as(
                Request::post(&path)
                    .query_if("suspend", args.suspend.secs())
                    .json(body),
            )
            .await?;
        for target in targets {
            output::note(&scale::said(target, args.hold));
        }
    }
    let mut exit = Exit::Done;
    for deployment in by_deployment.into_keys().filter(|_| args.wait.wait) {
        let what = Watch {
            deployment: deployment.clone(),
            revision: None,
            timeout: args.wait.timeout(),
        };
        let this = wait_until_stable(client, &what).await?;
        if this != Exit::Done {
            exit = this;
        }
    }
    Ok(exit)
}

fn item(target: &ScaleTarget) -> ScaleItem {
    ScaleItem {
        service: target.service.to_string(),
        role: target.role.as_ref().map(ToString::to_string),
        replicas: target.replicas,
    }
}
