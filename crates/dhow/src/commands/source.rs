//! `dhow source …`: places of signed deployment files that the cluster follows.

mod add;
mod sign;

use clap::Subcommand;
use dhow_wire::api::{SourceAcceptRequest, SourceStatus, SourceSynced, WriteDone};

use dhow_cli::human;

use super::listing::Listing;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

const NO_SOURCES: &str = "no sources; `dhow source add NAME PLACE --key KEY` follows one";

/// Places of signed deployment files that the cluster follows
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Add(add::AddArgs),
    /// List the sources with the version in force
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Follow a source no longer; its deployments stay
    Rm {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Look at a source now, or at all of them, and put what is new in force
    Sync {
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Say yes to a set that waits for it, because it would remove most of what the source has brought
    // `--version` is the set's here, not the program's.
    #[command(disable_version_flag = true)]
    Accept {
        #[arg(value_name = "NAME")]
        name: String,

        /// Only this version, as `dhow source ls` shows it
        #[arg(long, value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Try again what was taken back of the set in force
    Retry {
        #[arg(value_name = "NAME")]
        name: String,
    },
    Keygen(sign::KeygenArgs),
    Sign(sign::SignArgs),
}

impl Args {
    /// Whether it needs no daemon.
    pub fn is_offline(&self) -> bool {
        match self.command {
            Command::Keygen(_) | Command::Sign(_) => true,
            Command::Add(_)
            | Command::Ls { .. }
            | Command::Rm { .. }
            | Command::Sync { .. }
            | Command::Accept { .. }
            | Command::Retry { .. } => false,
        }
    }
}

pub fn run_offline(args: &Args) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Keygen(args) => sign::keygen(args),
        Command::Sign(args) => sign::sign(args),
        Command::Add(_)
        | Command::Ls { .. }
        | Command::Rm { .. }
        | Command::Sync { .. }
        | Command::Accept { .. }
        | Command::Retry { .. } => Ok(Exit::BadInput),
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Add(args) => add::add(client, args).await,
        Command::Ls { json } => list(client, *json).await,
        Command::Rm { name } => {
            let _: WriteDone = client.fetch_as(Request::delete(&["sources", name])).await?;
            output::note(&format!(
                "source {name} is not followed any more; what it has brought stays"
            ));
            Ok(Exit::Done)
        }
        Command::Sync { name } => sync(client, name.as_deref()).await,
        Command::Accept { name, version } => {
            let body = serde_json::to_value(SourceAcceptRequest { version: *version })?;
            let path = ["sources", name, "accept"];
            let synced: SourceSynced = client.fetch_as(Request::post(&path).json(body)).await?;
            output::note(&format!("{name}: version {} is in force now", synced.version));
            Ok(Exit::Done)
        }
        Command::Retry { name } => {
            let path = ["sources", name, "retry"];
            let synced: SourceSynced = client.fetch_as(Request::post(&path)).await?;
            output::note(&format!("{name}: version {} is tried again", synced.version));
            Ok(Exit::Done)
        }
        Command::Keygen(_) | Command::Sign(_) => run_offline(args),
    }
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let listing = Listing {
        path: "sources",
        none: NO_SOURCES,
        heading: &[
            "NAME",
            "VERSION",
            "COMMIT",
            "DEPLOYMENTS",
            "FROM",
            "PLACE",
            "LOOKED",
            "PROBLEM",
        ],
    };
    let row = |source: &SourceStatus| {
        let from = match source.configured {
            true => "configuration",
            false => "added",
        };
        [
            source.name.clone(),
            source.version.map_or("-".into(), |version| version.to_string()),
            source.commit.as_deref().map_or("-".into(), short_commit),
            deployments(source),
            from.into(),
            source.dir.clone(),
            source.looked_unix_secs.map_or("-".into(), |then| {
                format!("{} ago", human::age(then, output::now_unix_secs()))
            }),
            output::one_line(source.problem.as_deref().unwrap_or_default()),
        ]
    };
    listing.print(client, json, row).await
}

/// As much of a commit as git shows.
fn short_commit(commit: &str) -> String {
    commit.chars().take(12).collect()
}

/// What it has brought, and of what people have the last word.
fn deployments(source: &SourceStatus) -> String {
    let one = |name: &String| match source.suspended.contains(name) {
        true => format!("{name} (suspended)"),
        false => name.clone(),
    };
    source.deployments.iter().map(one).collect::<Vec<_>>().join(",")
}

async fn sync(client: &Client, name: Option<&str>) -> anyhow::Result<Exit> {
    let names: Vec<String> = match name {
        Some(name) => vec![name.to_owned()],
        None => {
            let all: Vec<SourceStatus> = client.fetch_as(Request::get(&["sources"])).await?;
            all.into_iter().map(|source| source.name).collect()
        }
    };
    for name in &names {
        let synced: SourceSynced = client.fetch_as(Request::post(&["sources", name, "sync"])).await?;
        let how = if synced.changed {
            "is in force now"
        } else {
            "is in force already"
        };
        output::note(&format!("{name}: version {} {how}", synced.version));
    }
    if names.is_empty() {
        output::note(NO_SOURCES);
    }
    Ok(Exit::Done)
}
