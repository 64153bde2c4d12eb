//! `dhow secret set|ls|rm`: values that replicas get and nobody else sees. A value never stands on the command line,
//! where every user of the machine could read it.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use dhow_wire::api::{SECRET_BYTES_MAX, SecretInfo};

use super::listing::Listing;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Secrets, by name; no value is ever shown
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set a secret from stdin or a file, byte for byte
    ///
    /// `printf %s "$VALUE" | dhow secret set db-password`: a line end that is piped in is part of the value.
    Set {
        /// What `$S:NAME` in a deployment file names
        #[arg(value_name = "NAME")]
        name: String,

        /// Read the value from this file instead of stdin
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
    },
    /// List the names
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Remove a secret
    Rm {
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Set { name, from_file } => set(client, name, from_file.as_deref()).await,
        Command::Ls { json } => list(client, *json).await,
        Command::Rm { name } => {
            client.fetch(Request::delete(&["secrets", name])).await?;
            output::note(&format!("secret {name} is removed"));
            Ok(Exit::Done)
        }
    }
}

async fn set(client: &Client, name: &str, file: Option<&Path>) -> anyhow::Result<Exit> {
    let value = match read(file) {
        Ok(value) => value,
        Err(error) => {
            output::error(&error);
            return Ok(Exit::BadInput);
        }
    };
    if value.is_empty() || value.len() > SECRET_BYTES_MAX {
        let what = if value.is_empty() {
            "is empty"
        } else {
            "is too long"
        };
        output::failure(&format!(
            "the value of {name} {what}: it has 1 to {SECRET_BYTES_MAX} bytes"
        ));
        return Ok(Exit::BadInput);
    }
    client
        .fetch(Request::put(&["secrets", name]).bytes(value))
        .await?;
    output::note(&format!("secret {name} is set"));
    Ok(Exit::Done)
}

/// One byte more than may be, to know that it is too much.
fn read(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let limit = SECRET_BYTES_MAX as u64 + 1;
    let mut value = Vec::new();
    match file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
            file.take(limit)
                .read_to_end(&mut value)
                .with_context(|| format!("{} cannot be read", path.display()))?;
        }
        None if io::stdin().is_terminal() => anyhow::bail!(
            "the value comes from stdin or a file, so that it stays off the screen: \
             `dhow secret set NAME < FILE`, or --from-file FILE"
        ),
        None => {
            io::stdin()
                .lock()
                .take(limit)
                .read_to_end(&mut value)
                .context("stdin cannot be read")?;
        }
    }
    Ok(value)
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let listing = Listing {
        path: "secrets",
        none: "no secrets; `dhow secret set NAME` makes one",
        heading: &["NAME", "REVISION"],
    };
    let row = |secret: &SecretInfo| [secret.name.clone(), secret.revision.to_string()];
    listing.print(client, json, row).await
}
