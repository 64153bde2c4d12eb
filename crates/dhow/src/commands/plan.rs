//! `dhow plan FILE`: what a deployment would change and where its replicas would go. Changes nothing.
//!
//! Asks the daemon; where none answers, it plans for this machine alone, as a fresh single node would.

mod local;

pub use dhow_cli::plan::Args;
use dhow_cli::plan::{self, What};
use dhow_wire::write_deployment;

use super::{deploy, rebalance};
use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;
use crate::source_files::{self, FromFile};

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    if let Some(What::Rebalance(args)) = &args.what {
        return rebalance::plan(args, client).await;
    }
    let read = match source_files::read_for(&args.from, client).await? {
        Ok(read) => read,
        Err(unread) => {
            unread.show();
            return Ok(Exit::BadInput);
        }
    };
    let FromFile {
        name: source, spec, ..
    } = read;
    let request = Request::post(&["plan"])
        .query("source", &source)
        .json(write_deployment(&spec)?);
    let value = match client.fetch(request).await {
        Ok(value) => value,
        Err(ClientError::NoDaemon { was_sent: false, .. }) if !client.is_named() => {
            output::note("no daemon answers: planning for this machine alone");
            match local::plan(&spec) {
                Ok(plan) => serde_json::to_value(plan)?,
                Err(refused) => {
                    output::failure(&format!("`{}` cannot be deployed: {refused}", spec.deployment));
                    return Ok(Exit::BadInput);
                }
            }
        }
        Err(error) => return Err(deploy::without_positions(&source, error).into()),
    };
    if args.json {
        output::json(&value)?;
    } else {
        output::data(&plan::text(&spec, &client.decode(value)?))?;
    }
    Ok(Exit::Done)
}
