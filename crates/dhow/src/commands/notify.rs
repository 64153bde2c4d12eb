//! `dhow notify …`: who is told of what goes wrong.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use dhow_wire::api::{NoticeKind, NotifySetRequest, NotifyStatus, WriteDone};

use super::listing::Listing;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, word};

/// Tell others what goes wrong: signed notices to an address
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tell an address from now on; one of that name is changed
    ///
    /// Each notice is a POST of a JSON document with an id, which stays the same where it comes twice, and a signature over
    /// time and body. Without --key-file a key is drawn and printed, alone and only this once.
    Add {
        #[arg(value_name = "NAME")]
        name: String,

        /// Where to: https://HOST/PATH, or http:// on the servers' own host
        #[arg(value_name = "URL")]
        url: String,

        /// The file with the key of the signatures, which the receiver knows as well
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,

        /// What it is told of; may be given several times, everything without it
        #[arg(long = "on", value_name = "NOTICE", value_delimiter = ',')]
        on: Vec<On>,

        /// Also over http:// to other hosts, for everybody on the way to read
        #[arg(long)]
        plain_http: bool,
    },
    /// List who is told, and how that goes
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Tell it no more
    Rm {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Send one notice now, and say whether it was taken
    Test {
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum On {
    /// A rollout has failed for good
    RolloutFailed,
    /// A rollout has failed, or was aborted, and is taken back
    RolloutReverted,
    /// A node is lost
    NodeLost,
    /// A run of a schedule has failed
    RunFailed,
    /// A source was refused, or something else that people should look at
    Alarm,
}

impl From<On> for NoticeKind {
    fn from(on: On) -> Self {
        match on {
            On::RolloutFailed => Self::RolloutFailed,
            On::RolloutReverted => Self::RolloutReverted,
            On::NodeLost => Self::NodeLost,
            On::RunFailed => Self::RunFailed,
            On::Alarm => Self::Alarm,
        }
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Add {
            name,
            url,
            key_file,
            on,
            plain_http,
        } => {
            let drawn = key_file.is_none();
            let key = match key_file {
                Some(file) => {
                    let text = std::fs::read_to_string(file);
                    let text = text.with_context(|| format!("{} cannot be read", file.display()))?;
                    text.trim_end_matches(['\n', '\r']).to_owned()
                }
                None => format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()),
            };
            let asked = NotifySetRequest {
                url: url.clone(),
                key: key.clone(),
                on: on.iter().map(|on| (*on).into()).collect(),
                plain_http: *plain_http,
            };
            let path = ["notify", name.as_str()];
            let request = Request::put(&path).json(serde_json::to_value(asked)?);
            let _: WriteDone = client.fetch_as(request).await?;
            if drawn {
                output::data(&format!("{key}\n"))?;
            }
            output::note(&format!(
                "{name} is told from now on; `dhow notify test {name}` tries it"
            ));
            Ok(Exit::Done)
        }
        Command::Ls { json } => list(client, *json).await,
        Command::Rm { name } => {
            let _: WriteDone = client.fetch_as(Request::delete(&["notify", name])).await?;
            output::note(&format!("{name} is told no more"));
            Ok(Exit::Done)
        }
        Command::Test { name } => {
            let path = ["notify", name.as_str(), "test"];
            let _: NotifyStatus = client.fetch_as(Request::post(&path)).await?;
            output::note(&format!("{name} has taken it"));
            Ok(Exit::Done)
        }
    }
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let listing = Listing {
        path: "notify",
        none: "nobody is told; `dhow notify add NAME URL` tells somebody",
        heading: &["NAME", "ADDRESS", "ON", "SENT", "LAST", "GIVEN UP", "PROBLEM"],
    };
    let now = output::now_unix_secs();
    let row = |target: &NotifyStatus| {
        let on: Vec<String> = target.on.iter().map(word).collect();
        let last = target.last_sent_unix_secs;
        [
            target.name.clone(),
            target.address.clone(),
            on.join(","),
            target.sent.to_string(),
            last.map_or_else(|| "-".to_owned(), |then| output::age(then, now)),
            target.given_up.to_string(),
            output::one_line(target.problem.as_deref().unwrap_or_default()),
        ]
    };
    listing.print(client, json, row).await
}
