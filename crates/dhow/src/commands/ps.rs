//! `dhow ps [DEPLOYMENT]`: replicas with node, revision, state, health, restarts, age.

use std::io::IsTerminal;

pub use dhow_cli::ps::Args;
use dhow_cli::ps::{self, Columns};
use dhow_wire::{ProblemCode, ReplicaStatus};

use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let request = |consistency: Option<&str>| {
        Request::get(&["replicas"])
            .query_if("deployment", args.deployment.as_ref())
            .query_if("all", args.all.then_some(true))
            .query_if("live", args.live.then_some(true))
            .query_if("consistency", consistency)
    };
    let answer = match args.live {
        true => client.fetch_slow(request(None)).await,
        false => client.fetch(request(None)).await,
    };
    let value = match answer {
        Err(ClientError::Problem(problem)) if problem.code == ProblemCode::NoLeader.as_str() => {
            output::note(
                "the cluster has no leader: this is what the node that was asked knows, which may be old",
            );
            client.fetch(request(Some("stale"))).await?
        }
        answer => answer?,
    };
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let replicas: Vec<ReplicaStatus> = client.decode(value)?;
    let columns = Columns {
        usage: args.usage,
        live: args.live,
        whole: !std::io::stdout().is_terminal(),
    };
    output::show(&ps::shown(&replicas, columns, output::now_unix_secs()))?;
    Ok(Exit::Done)
}
