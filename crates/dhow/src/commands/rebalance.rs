//! `dhow rebalance`: moves replicas so that services are spread as if they were placed now.

use std::time::Duration;

use anyhow::bail;
pub use dhow_cli::rebalance::Args;
use dhow_cli::rebalance::{self, PlanArgs, Which};
use dhow_wire::api::{RebalancePlan, RebalanceRequest};
use tokio::time::{Instant, sleep};

use super::wait::interrupt;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// How often it is looked whether all has gone where it is to go.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let body = RebalanceRequest {
        deployment: args.which.deployment.as_ref().map(ToString::to_string),
        max: args.which.max,
        stop: args.stop,
    };
    let request = Request::post(&["rebalance"]).json(serde_json::to_value(body)?);
    let plan: RebalancePlan = client.fetch_as(request).await?;
    match args.stop {
        true => output::note(rebalance::STOPPED),
        false => output::note(&rebalance::said(&plan)),
    }
    if !args.wait.wait {
        return Ok(Exit::Done);
    }
    tokio::select! {
        ended = until_moved(client, args.wait.timeout()) => ended,
        () = interrupt() => {
            output::note("what was begun goes on");
            Ok(Exit::Done)
        }
    }
}

async fn until_moved(client: &Client, timeout: Duration) -> anyhow::Result<Exit> {
    let end = Instant::now() + timeout;
    loop {
        let left = looked_up(
            client,
            &Which {
                deployment: None,
                max: Some(1),
            },
        )
        .await?
        .under_way;
        match left {
            0 => return Ok(Exit::Done),
            _ if Instant::now() >= end => {
                bail!("{left} of the replicas have not gone yet; `dhow explain` says why")
            }
            _ => sleep(LOOK_EVERY).await,
        }
    }
}

async fn looked_up(client: &Client, which: &Which) -> anyhow::Result<RebalancePlan> {
    Ok(client.fetch_as(asked(which)).await?)
}

fn asked(which: &Which) -> Request<'_> {
    let mut request = Request::get(&["rebalance"]);
    if let Some(name) = &which.deployment {
        request = request.query("deployment", name.as_str());
    }
    if let Some(max) = which.max {
        request = request.query("max", max.to_string());
    }
    request
}

/// `dhow plan rebalance`: the moves, and nothing is changed.
pub async fn plan(args: &PlanArgs, client: &Client) -> anyhow::Result<Exit> {
    let plan = looked_up(client, &args.which).await?;
    if args.json {
        output::json(&serde_json::to_value(&plan)?)?;
    } else {
        output::data(&rebalance::text(&plan))?;
    }
    Ok(Exit::Done)
}
