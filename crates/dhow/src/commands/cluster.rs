//! `dhow cluster status|keygen`: the cluster as the node that answers sees it, and the key that its servers share.

use clap::Subcommand;
use dhow_server::keys::ClusterKey;
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
    /// Make a cluster key and print it, alone; asks no daemon
    ///
    /// One server makes it, all servers have the same: `(umask 077; dhow cluster keygen > cluster.key)`, then copy the
    /// file to where `cluster_key_file` says. Whoever has it is a server of the cluster.
    Keygen,
}

impl Args {
    /// The one verb that asks no daemon.
    pub fn is_keygen(&self) -> bool {
        match self.command {
            Command::Keygen => true,
            Command::Status { .. } => false,
        }
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match args.command {
        Command::Status { json } => status(client, json).await,
        Command::Keygen => keygen(),
    }
}

/// A key of random numbers.
pub fn keygen() -> anyhow::Result<Exit> {
    let mut line = ClusterKey::generate()?.reveal();
    line.push('\n');
    output::data(&line)?;
    Ok(Exit::Done)
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
