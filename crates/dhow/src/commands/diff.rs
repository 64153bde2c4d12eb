//! `dhow diff --from A [--to B] [DEPLOYMENT]`: what differs between two moments of the cluster.

use dhow_cli::events;
use dhow_cli::target;
use dhow_core::ids::DeploymentName;
use dhow_wire::api::PastDifference;

use super::at::{At, at, resolve, told};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Show what differs between two moments of the cluster
///
/// What is asked for of services, and then what else is another: nodes, replicas, rollouts, secrets by their names. How it
/// came about is in `dhow events`.
#[derive(clap::Args)]
pub struct Args {
    /// Only of this one
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    deployment: Option<DeploymentName>,

    /// The first moment: a revision of the state, a time such as `2026-11-19T14:03` or `14:03`, or so long ago, such as `2h`
    #[arg(long, value_name = "REVISION|TIME", value_parser = at)]
    from: At,

    /// The second one, written in the same way; now without it
    #[arg(long, value_name = "REVISION|TIME", value_parser = at)]
    to: Option<At>,

    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let from = resolve(client, args.from).await?;
    let to = resolve(client, args.to.unwrap_or(At::NOW)).await?;
    let request = Request::get(&["past", "difference"])
        .query("from", from.revision)
        .query("to", to.revision)
        .query_if("deployment", args.deployment.as_ref());
    let value = client.fetch(request).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    output::note(&format!("from {} to {}", told(&from), told(&to)));
    let found: PastDifference = client.decode(value)?;
    match text(&found) {
        text if text.is_empty() => output::note("nothing differs"),
        text => output::data(&text)?,
    }
    Ok(Exit::Done)
}

fn text(found: &PastDifference) -> String {
    let mut text = String::new();
    for spec in &found.specs {
        text += &format!("{}/{}\n", spec.deployment, spec.service);
        for line in &spec.lines {
            text += &format!("  {}\n", dhow_cli::human::one_line(line));
        }
    }
    for event in &found.changes {
        text += &format!("{}\n", events::what(event, true));
    }
    if found.more > 0 {
        text += &format!("{} more differences\n", found.more);
    }
    text
}
