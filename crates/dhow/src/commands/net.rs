//! `dhow net check A B`: whether one service reaches another, tried from inside a replica.

use clap::Subcommand;
use dhow_cli::net::{self, CheckArgs};
use dhow_wire::api::{NetCheck, NetVerdict};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// The network between services
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(CheckArgs),
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Check(args) => check(args, client).await,
    }
}

async fn check(args: &CheckArgs, client: &Client) -> anyhow::Result<Exit> {
    let path = ["deployments", args.from.deployment.as_str(), "net-check"];
    let to = format!("{}/{}", args.to.deployment, args.to.service);
    let mut request = Request::get(&path)
        .query("from", &args.from.name)
        .query("to", &to);
    if let Some(endpoint) = &args.to.endpoint {
        request = request.query("endpoint", endpoint);
    }
    let value = client.fetch(request).await?;
    let checked: NetCheck = client.decode(value.clone())?;
    match args.json {
        true => output::json(&value)?,
        false => output::data(&net::text(&checked))?,
    };
    Ok(match checked.verdict {
        NetVerdict::Reachable => Exit::Done,
        NetVerdict::NoName | NetVerdict::Refused | NetVerdict::NoReplica | NetVerdict::NotConnected => {
            Exit::Failed
        }
    })
}
