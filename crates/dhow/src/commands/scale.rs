//! `dhow scale DEPLOYMENT/SERVICE=N…`: how many replicas services are to have.

use std::collections::BTreeMap;

use dhow_core::ids::DeploymentName;
use dhow_wire::api::{ScaleItem, ScaleRequest, WriteDone};

use super::target::{self, ScaleTarget};
use super::wait::{WaitArgs, wait_until_stable};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

/// Set how many replicas services have
///
/// Returns once it is durable. Where one deployment is named several times, all of its changes happen or none.
#[derive(clap::Args)]
pub struct Args {
    /// `shop/web=3`; `shop/db/reader=2` for one role of a service
    #[arg(required = true, value_name = "DEPLOYMENT/SERVICE=N", value_parser = target::scale_target)]
    targets: Vec<ScaleTarget>,

    #[command(flatten)]
    wait: WaitArgs,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let mut by_deployment: BTreeMap<&DeploymentName, Vec<ScaleItem>> = BTreeMap::new();
    for target in &args.targets {
        by_deployment
            .entry(&target.deployment)
            .or_default()
            .push(ScaleItem {
                service: target.service.to_string(),
                role: target.role.as_ref().map(ToString::to_string),
                replicas: target.replicas,
            });
    }
    for (deployment, changes) in &by_deployment {
        let body = serde_json::to_value(ScaleRequest {
            changes: changes.clone(),
        })?;
        let path = ["deployments", deployment.as_str(), "scale"];
        let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
        for change in changes {
            let role = change
                .role
                .as_ref()
                .map(|role| format!("/{role}"))
                .unwrap_or_default();
            output::note(&format!(
                "{deployment}/{}{role} is to have {}",
                change.service, change.replicas
            ));
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
