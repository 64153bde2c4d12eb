//! `dhow ps [DEPLOYMENT]`: replicas with node, revision, state, health, restarts, age.

use std::io::IsTerminal;

use dhow_cli::ps::{self, Columns};
use dhow_wire::{ProblemCode, ReplicaStatus};

use super::at::{self, At};
use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;

/// Show replicas: node, revision, state, health, restarts, age
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    shown: ps::Args,

    /// As it was then: at a revision of the state such as `1204`, at a time such as `2026-11-19T14:03` or `14:03`, or so
    /// long ago, such as `2h`
    #[arg(long, value_name = "REVISION|TIME", value_parser = at::at)]
    at: Option<At>,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    if args.at.is_some() && (args.shown.live || args.shown.usage) {
        output::failure("what nodes say and use is not kept: leave --live and --usage out, or --at");
        return Ok(Exit::BadInput);
    }
    let moment = at::announced(client, args.at).await?;
    let args = &args.shown;
    let request = |consistency: Option<&str>| {
        Request::get(&["replicas"])
            .query_if("deployment", args.deployment.as_ref())
            .query_if("all", args.all.then_some(true))
            .query_if("live", args.live.then_some(true))
            .query_if("at", moment.map(|moment| moment.revision))
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
    // Ages are those of that moment.
    let then = moment.and_then(|moment| moment.unix_ms);
    let now = then.map_or_else(output::now_unix_secs, |ms| ms.div_euclid(1_000));
    output::show(&ps::shown(&replicas, columns, now))?;
    Ok(Exit::Done)
}
