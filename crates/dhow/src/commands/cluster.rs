//! `dhow cluster …`: the cluster as a whole.

mod backup;
mod members;
mod offline;
mod upgrade;

use clap::Subcommand;
use dhow_cli::human::{bytes, time};
use dhow_server::net::keys::ClusterKey;
use dhow_wire::ClusterStatus;
use dhow_wire::api::{PastWindow, WorkerCaRotated};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table, word, yes_no};

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
    Add(members::AddArgs),
    Remove(members::RemoveArgs),
    Backup(backup::Args),
    Restore(offline::RestoreArgs),
    Recover(offline::RecoverArgs),
    UpgradeCheck(upgrade::Args),
    /// Make a new CA of the workers; the one before is believed until the last certificate of it is of no use
    ///
    /// Nothing stops for it: workers take certificates of the new one by themselves.
    RotateWorkerCa,
}

impl Args {
    /// Whether the verb asks no daemon.
    pub fn is_offline(&self) -> bool {
        match self.command {
            Command::Keygen | Command::Restore(_) | Command::Recover(_) => true,
            Command::Status { .. }
            | Command::Add(_)
            | Command::Remove(_)
            | Command::Backup(_)
            | Command::UpgradeCheck(_)
            | Command::RotateWorkerCa => false,
        }
    }
}

/// The verbs that work on this machine's own files; the others ask a daemon.
pub fn run_offline(args: &Args) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Keygen => keygen(),
        Command::Restore(args) => offline::restore(args),
        Command::Recover(args) => offline::recover(args),
        Command::Status { .. }
        | Command::Add(_)
        | Command::Remove(_)
        | Command::Backup(_)
        | Command::UpgradeCheck(_)
        | Command::RotateWorkerCa => Ok(Exit::BadInput),
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Status { json } => status(client, *json).await,
        Command::Add(args) => members::add(args, client).await,
        Command::Remove(args) => members::remove(args, client).await,
        Command::Backup(args) => backup::run(args, client).await,
        Command::UpgradeCheck(args) => upgrade::run(args, client).await,
        Command::RotateWorkerCa => rotate_worker_ca(client).await,
        Command::Keygen | Command::Restore(_) | Command::Recover(_) => run_offline(args),
    }
}

/// A key of random numbers.
fn keygen() -> anyhow::Result<Exit> {
    let mut line = ClusterKey::generate()?.reveal();
    line.push('\n');
    output::data(&line)?;
    Ok(Exit::Done)
}

async fn rotate_worker_ca(client: &Client) -> anyhow::Result<Exit> {
    let request = Request::post(&["cluster", "worker-ca", "rotate"]);
    let rotated: WorkerCaRotated = client.fetch_as(request).await?;
    let days = (rotated.believed_until_unix_secs - output::now_unix_secs()) / 86_400;
    output::note(&format!(
        "generation {} of the workers' CA makes certificates from now on; the one before is believed for {days} more days",
        rotated.generation
    ));
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
    if let Some(past) = &status.past {
        output::data(&format!("past:      {}\n", past_line(past)))?;
    }
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

/// How far back the node that answers can tell what was, and what that costs.
fn past_line(past: &PastWindow) -> String {
    let cost = format!("{} of {}", bytes(past.bytes), bytes(past.bytes_max));
    let (Some(first), Some(last)) = (past.first_revision, past.last_revision) else {
        return format!("nothing yet, {cost}");
    };
    let since = past.first_unix_ms.map_or_else(String::new, |ms| {
        format!(", since {}", time(ms.saturating_mul(1_000)))
    });
    let gaps = past
        .gaps
        .iter()
        .map(|gap| format!("; without {} to {}", gap.from_revision, gap.to_revision));
    let gaps: String = gaps.collect();
    let problem = past
        .problem
        .as_ref()
        .map_or_else(String::new, |why| format!("; not written for now: {why}"));
    format!("revisions {first} to {last}{since}, {cost}{gaps}{problem}")
}
