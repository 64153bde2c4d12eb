//! `dhow cluster status`: the cluster as the node that answers sees it.

use clap::Subcommand;
use dhow_wire::ClusterStatus;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, word};

/// The cluster as a whole
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show mode, leader, term and the last applied revision
    Status {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match args.command {
        Command::Status { json } => status(client, json).await,
    }
}

async fn status(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let value = client.fetch(Request::get(&["cluster"])).await?;
    if json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let status: ClusterStatus = client.decode(value)?;
    let leader = status.leader_id.map_or("none".to_owned(), |id| id.to_string());
    output::data(&format!(
        "mode:      {}\ncluster:   {}\nnode:      {}\nleader:    {leader}\nterm:      {}\nrevision:  {}\nnodes:     {}\n",
        word(&status.mode),
        status.cluster_id,
        status.node_id,
        status.term,
        status.revision,
        status.nodes
    ))?;
    Ok(Exit::Done)
}
