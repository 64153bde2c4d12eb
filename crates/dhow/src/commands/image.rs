//! `dhow image ls|pull|import|rm|prune`: the images of the node that answers.

mod pull;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use dhow_wire::api::{ImageImportRequest, ImageInfo, ImageName, ImagesRemoved};
use serde_json::Value;

use super::listing::Listing;
use crate::client::{Client, DaemonAddress, Request};
use crate::exit::Exit;
use crate::output;

/// A digest is shown as much as tells images apart.
const DIGEST_CHARS: usize = 12;

/// The images of the node that answers
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the images
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Pull an image from its registry
    Pull {
        #[arg(value_name = "IMAGE")]
        image: String,

        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Import an archive or a layout directory of the node
    Import {
        /// The archive or directory; `PATH:TAG` where it holds several images
        #[arg(value_name = "PATH[:TAG]")]
        path: PathBuf,

        /// What the image is to be called; else what the archive says
        #[arg(long)]
        name: Option<String>,

        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Remove images by name, or by their digest as `ls` shows it
    Rm {
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
    /// Remove all images that no replica uses
    Prune {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Ls { json } => list(client, *json).await,
        Command::Pull { image, json } => pull::pull(client, image, *json).await,
        Command::Import { path, name, json } => import(client, path, name.clone(), *json).await,
        Command::Rm { images } => remove(client, images).await,
        Command::Prune { json } => prune(client, *json).await,
    }
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let listing = Listing {
        path: "images",
        none: "no images",
        heading: &["IMAGE", "DIGEST", "SIZE", "LAST USED", "IN USE"],
    };
    let now = output::now_unix_secs();
    let row = |image: &ImageInfo| {
        let digest = image
            .digest
            .split_once(':')
            .map_or(image.digest.as_str(), |(_, hex)| hex);
        [
            image.name.clone(),
            digest.chars().take(DIGEST_CHARS).collect(),
            output::bytes(image.size_bytes),
            image
                .last_used_unix_secs
                .map(|last_used| output::age(last_used, now))
                .unwrap_or_default(),
            output::yes_no(image.in_use),
        ]
    };
    listing.print(client, json, row).await
}

async fn import(client: &Client, path: &Path, name: Option<String>, json: bool) -> anyhow::Result<Exit> {
    let path = match client.host() {
        DaemonAddress::Unix(_) => std::path::absolute(path)?,
        // The path is the node's: what it is relative to here means nothing there.
        DaemonAddress::Http(_) if !path.is_absolute() => {
            output::failure("the daemon is reached over the network: name an absolute path on its machine");
            return Ok(Exit::BadInput);
        }
        DaemonAddress::Http(_) => path.to_owned(),
    };
    let Some(path) = path.to_str() else {
        output::failure("the path is no valid UTF-8: rename the file");
        return Ok(Exit::BadInput);
    };
    let body = serde_json::to_value(ImageImportRequest {
        path: path.into(),
        name,
    })?;
    let mut events_or_value = client
        .fetch_slow(Request::post(&["images", "import"]).json(body))
        .await?;
    print_name(client, &mut events_or_value, json)?;
    Ok(Exit::Done)
}

/// `name@digest`, for scripts to take up.
fn print_name(client: &Client, value: &mut Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(value);
    }
    let image: ImageName = client.decode(value.take())?;
    let names = std::iter::once(&image.name).chain(&image.other_names);
    let lines: String = names.map(|name| full_name(name, &image.digest) + "\n").collect();
    output::data(&lines)
}

fn full_name(name: &str, digest: &str) -> String {
    match name.contains('@') {
        true => name.to_owned(),
        false => format!("{name}@{digest}"),
    }
}

async fn remove(client: &Client, images: &[String]) -> anyhow::Result<Exit> {
    for image in images {
        let request = Request::delete(&["images"]).query("name", image);
        let value = client.fetch_slow(request).await?;
        let removed: ImagesRemoved = client.decode(value)?;
        output::note(&removal(image, &removed));
    }
    Ok(Exit::Done)
}

/// What a removal did: a name may go while its image stays.
fn removal(image: &str, removed: &ImagesRemoved) -> String {
    let stays = match removed.kept_as.is_empty() {
        true => "the image stays".to_owned(),
        false => format!("the image stays as {}", removed.kept_as.join(", ")),
    };
    match (removed.removed.is_empty(), removed.untagged.is_empty()) {
        (true, _) => format!("the name {image} is removed; {stays}"),
        (false, true) => format!("{image} is removed, {} freed", output::bytes(removed.freed_bytes)),
        (false, false) => format!(
            "{} removed, {} freed; of another one only the name is removed, {stays}",
            count(removed.removed.len()),
            output::bytes(removed.freed_bytes)
        ),
    }
}

async fn prune(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let value = client.fetch_slow(Request::post(&["images", "prune"])).await?;
    if json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let removed: ImagesRemoved = client.decode(value)?;
    for image in &removed.removed {
        output::data(&format!("{image}\n"))?;
    }
    output::note(&format!(
        "{} removed, {} freed",
        count(removed.removed.len()),
        output::bytes(removed.freed_bytes)
    ));
    Ok(Exit::Done)
}

fn count(images: usize) -> String {
    match images {
        1 => "1 image".into(),
        more => format!("{more} images"),
    }
}
