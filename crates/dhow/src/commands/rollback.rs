//! `dhow rollback DEPLOYMENT`: back to the last good revision, or to the one named.

use dhow_cli::rollback;
pub use dhow_cli::rollback::Args;
use dhow_wire::api::{Deployed, RollbackRequest};

use super::wait::wait_until_stable;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let body = serde_json::to_value(RollbackRequest { to: args.to })?;
    let path = ["deployments", args.deployment.as_str(), "rollback"];
    let deployed: Deployed = client
        .fetch_as(
            Request::post(&path)
                .query_if("suspend", args.suspend.secs())
                .json(body),
        )
        .await?;
    output::note(&rollback::said(args.to, &deployed));
    if !args.wait.wait {
        return Ok(Exit::Done);
    }
    let what = Watch {
        deployment: args.deployment.clone(),
        revision: Some(deployed.revision),
        timeout: args.wait.timeout(),
    };
    wait_until_stable(client, &what).await
}
