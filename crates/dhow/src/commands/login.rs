//! `dhow login REGISTRY` and `dhow logout REGISTRY`: what the cluster's nodes show to a registry. A password never stands on
//! the command line, where every user of the machine could read it.

use std::io::{self, IsTerminal, Read};

use dhow_core::registries;
use dhow_wire::api::{LOGIN_CHARS_MAX, RegistryInfo, RegistryLogin};

use super::listing::Listing;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Keep credentials of a registry in the cluster, for the nodes that pull from it
///
/// They are sealed in the cluster's state, given to the nodes whose replicas run images of that registry while they pull, and
/// shown to nobody. What a node's own Docker configuration says stays the fallback. The credentials are not tried here.
#[derive(clap::Args)]
pub struct Args {
    /// Its host, such as `ghcr.io`, `docker.io` or `registry.example:5000`
    #[arg(value_name = "REGISTRY", value_parser = host, required_unless_present = "ls")]
    registry: Option<String>,

    /// Who asks the registry
    #[arg(long, short, value_name = "USER", required_unless_present = "ls")]
    user: Option<String>,

    /// Read the password or token from stdin; the line end behind it does not count
    #[arg(long, required_unless_present = "ls")]
    password_stdin: bool,

    /// List the registries that the cluster has credentials for
    #[arg(long, conflicts_with_all = ["registry", "user", "password_stdin"])]
    ls: bool,

    /// Print the API's JSON on stdout
    #[arg(long, requires = "ls")]
    json: bool,
}

/// Forget the credentials of a registry
#[derive(clap::Args)]
pub struct LogoutArgs {
    #[arg(value_name = "REGISTRY", value_parser = host)]
    registry: String,
}

fn host(text: &str) -> Result<String, String> {
    let wrong =
        || "a registry is written as its host, such as `ghcr.io` or `registry.example:5000`".to_owned();
    registries::parse_host(text).ok_or_else(wrong)
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let (Some(registry), Some(user)) = (&args.registry, &args.user) else {
        return list(client, args.json).await;
    };
    let password = match password() {
        Ok(password) => password,
        Err(why) => {
            output::failure(&why);
            return Ok(Exit::BadInput);
        }
    };
    let login = RegistryLogin {
        user: user.clone(),
        password,
    };
    let body = serde_json::to_value(login)?;
    client
        .fetch(Request::put(&["registries", registry]).json(body))
        .await?;
    output::note(&format!("nodes that pull from {registry} do so as {user}"));
    Ok(Exit::Done)
}

pub async fn logout(args: &LogoutArgs, client: &Client) -> anyhow::Result<Exit> {
    let registry = &args.registry;
    client.fetch(Request::delete(&["registries", registry])).await?;
    output::note(&format!("the credentials for {registry} are removed"));
    Ok(Exit::Done)
}

fn password() -> Result<String, String> {
    if io::stdin().is_terminal() {
        return Err(
            "the password comes from stdin, so that it stays off the screen: `dhow login … --password-stdin < FILE`".into(),
        );
    }
    let mut text = String::new();
    let limit = LOGIN_CHARS_MAX as u64 + 2;
    let read = io::stdin().lock().take(limit).read_to_string(&mut text);
    read.map_err(|error| format!("stdin cannot be read: {error}"))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    match password.len() {
        0 => Err("the password is empty".into()),
        length if length > LOGIN_CHARS_MAX => {
            Err(format!("the password has more than {LOGIN_CHARS_MAX} bytes"))
        }
        _ => Ok(password.to_owned()),
    }
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let listing = Listing {
        path: "registries",
        none: "no credentials for registries; `dhow login REGISTRY` keeps some",
        heading: &["REGISTRY", "REVISION"],
    };
    let row = |info: &RegistryInfo| [info.registry.clone(), info.revision.to_string()];
    listing.print(client, json, row).await
}
