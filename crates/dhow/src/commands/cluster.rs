//! `dhow cluster …`: the cluster as a whole.

mod backup;
mod members;
mod offline;

use clap::Subcommand;
use dhow_wire::ClusterStatus;

use super::wait::yes_no;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table, word};

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
    Add(members::AddArgs),
    Remove(members::RemoveArgs),
    Backup(backup::Args),
    Restore(offline::RestoreArgs),
    Recover(offline::RecoverArgs),
}

/// The verbs that work on this machine's own files, without a daemon; none where it is another one.
pub fn run_offline(args: &Args) -> Option<anyhow::Result<Exit>> {
    match &args.command {
        Command::Restore(args) => Some(offline::restore(args)),
        Command::Recover(args) => Some(offline::recover(args)),
        Command::Status { .. } | Command::Add(_) | Command::Remove(_) | Command::Backup(_) => None,
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Restore(args) => offline::restore(args),
        Command::Recover(args) => offline::recover(args),
        Command::Status { json } => status(client, *json).await,
        Command::Add(args) => members::add(args, client).await,
        Command::Remove(args) => members::remove(args, client).await,
        Command::Backup(args) => backup::run(args, client).await,
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
    if !status.members.is_empty() {
        let mut table = Table::new(&["SERVER", "VOTE", "REACHABLE", "API", "RAFT"]);
        for member in &status.members {
            table.row([
                member.node_id.to_string(),
                yes_no(member.voter),
                yes_no(member.reachable),
                member.api_addr.clone(),
                member.raft_addr.clone().unwrap_or_default(),
            ]);
        }
        output::data(&format!("\n{}", table.render()))?;
    }
    for notice in &status.notices {
        output::note(notice);
    }
    Ok(Exit::Done)
}
