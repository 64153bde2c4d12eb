//! `dhow volume ls|show|rm|prune|backup|restore`: the volumes of all nodes.

mod archive;

use std::io::{self, BufRead, IsTerminal};

use anyhow::Context;
use clap::Subcommand;
use dhow_cli::target::{self, NamedTarget};
use dhow_cli::volume::{HEADING, VolumeRow, details, row};
use dhow_core::ids::DeploymentName;
use dhow_wire::api::{VolumeInfo, VolumeListing, VolumeRemoved};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table};

/// The volumes of all nodes: what they hold, who uses them, copies of them
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the volumes of every node
    Ls {
        /// Of this deployment alone
        #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
        deployment: Option<DeploymentName>,

        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Say all that is known of a volume
    Show {
        #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
        volume: NamedTarget,

        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Remove a volume that no replica uses, with all that is in it
    Rm {
        #[command(flatten)]
        which: Which,
    },
    /// Remove all volumes that no present or kept revision names
    Prune {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Write what is in a volume into a tar archive
    ///
    /// A volume that is in use is taken as each file is when its turn comes: stop what writes to it for a copy of one
    /// moment.
    Backup {
        #[command(flatten)]
        which: Which,

        /// The file, which must not exist yet; `-` for stdout
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// Put what a tar archive has in the place of what is in a volume
    ///
    /// The services that mount it must be stopped, by `dhow stop`. It is put back whole or not at all.
    Restore {
        #[command(flatten)]
        which: Which,

        /// What `dhow volume backup` or `tar` wrote; `-` for stdin
        #[arg(value_name = "FILE")]
        file: String,
    },
}

/// One volume of one node.
#[derive(clap::Args)]
struct Which {
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    volume: NamedTarget,

    /// The node, where several have a volume of that name
    #[arg(long, value_name = "NODE")]
    node: Option<u64>,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Ls { deployment, json } => list(client, deployment.as_ref(), *json).await,
        Command::Show { volume, json } => show(client, volume, *json).await,
        Command::Rm { which } => remove(client, which).await,
        Command::Prune { yes } => prune(client, *yes).await,
        Command::Backup { which, file } => archive::backup(client, which, file).await,
        Command::Restore { which, file } => archive::restore(client, which, file).await,
    }
}

async fn list(client: &Client, deployment: Option<&DeploymentName>, json: bool) -> anyhow::Result<Exit> {
    let request = Request::get(&["volumes"]).query_if("deployment", deployment);
    let value = client.fetch(request).await?;
    if json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let listing: VolumeListing = client.decode(value)?;
    tell_silent(&listing);
    if listing.volumes.is_empty() {
        output::note("no volumes");
        return Ok(Exit::Done);
    }
    output::data(&table(&listing.volumes))?;
    Ok(Exit::Done)
}

fn table(volumes: &[VolumeInfo]) -> String {
    let now = output::now_unix_secs();
    let mut table = Table::new(&HEADING);
    for volume in volumes {
        let VolumeRow(columns) = row(volume, now);
        table.row(columns);
    }
    table.render()
}

fn tell_silent(listing: &VolumeListing) {
    for silent in &listing.silent {
        output::note(&format!("node {} was not heard: {}", silent.node_id, silent.why));
    }
}

async fn show(client: &Client, volume: &NamedTarget, json: bool) -> anyhow::Result<Exit> {
    let request = Request::get(&["volumes"])
        .query("deployment", &volume.deployment)
        .query("name", &volume.name);
    let value = client.fetch(request).await?;
    let listing: VolumeListing = client.decode(value.clone())?;
    if json {
        output::json(&value)?;
    } else {
        tell_silent(&listing);
        let now = output::now_unix_secs();
        let texts: Vec<String> = listing
            .volumes
            .iter()
            .map(|volume| details(volume, now))
            .collect();
        output::data(&texts.join("\n"))?;
    }
    if listing.volumes.is_empty() {
        output::failure(&format!(
            "there is no volume `{}/{}`",
            volume.deployment, volume.name
        ));
        return Ok(Exit::Refused);
    }
    Ok(Exit::Done)
}

async fn remove(client: &Client, which: &Which) -> anyhow::Result<Exit> {
    let NamedTarget { deployment, name } = &which.volume;
    let path = ["volumes", deployment.as_str(), name];
    let request = Request::delete(&path).query_if("node", which.node);
    let value = client.fetch_slow(request).await?;
    let removed: VolumeRemoved = client.decode(value)?;
    output::note(&format!(
        "{deployment}/{name} is removed from node {}, {} freed",
        removed.node_id,
        output::bytes(removed.freed_bytes)
    ));
    Ok(Exit::Done)
}

async fn prune(client: &Client, yes: bool) -> anyhow::Result<Exit> {
    let listing: VolumeListing = client.fetch_as(Request::get(&["volumes"])).await?;
    tell_silent(&listing);
    let unnamed: Vec<&VolumeInfo> = listing.volumes.iter().filter(|volume| !volume.is_named).collect();
    if unnamed.is_empty() {
        output::note("every volume is named by a present or kept revision");
        return Ok(Exit::Done);
    }
    let shown: Vec<VolumeInfo> = unnamed.iter().map(|volume| (*volume).clone()).collect();
    output::data(&table(&shown))?;
    if !yes && !is_agreed(unnamed.len())? {
        return Ok(Exit::BadInput);
    }
    let mut freed_bytes = 0_u64;
    for volume in &unnamed {
        let path = ["volumes", volume.deployment.as_str(), volume.name.as_str()];
        let request = Request::delete(&path)
            .query("node", volume.node_id)
            .query("unnamed", true);
        let value = client.fetch_slow(request).await?;
        let removed: VolumeRemoved = client.decode(value)?;
        freed_bytes = freed_bytes.saturating_add(removed.freed_bytes);
    }
    let s = if unnamed.len() == 1 { "" } else { "s" };
    output::note(&format!(
        "{} volume{s} removed, {} freed",
        unnamed.len(),
        output::bytes(freed_bytes)
    ));
    Ok(Exit::Done)
}

/// Asks at a terminal; elsewhere nobody can answer.
fn is_agreed(volumes: usize) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        output::failure("nothing is removed unasked: add --yes, or run it at a terminal");
        return Ok(false);
    }
    let what = if volumes == 1 {
        "this volume"
    } else {
        "these volumes"
    };
    output::note(&format!("remove {what} with all that is in them? [y/N]"));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.context("the answer cannot be read")?;
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    if !agreed {
        output::note("nothing is removed");
    }
    Ok(agreed)
}
