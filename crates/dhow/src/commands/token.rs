//! `dhow token create|create-worker|ls|revoke`: words with which people and programs call the API from elsewhere, and
//! with which workers join. A token stands on stdout once, alone, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Subcommand, ValueEnum};
use dhow_core::ids::{DeploymentName, NodeId};
use dhow_core::spec::TimeSpan;
use dhow_wire::api::{TokenCreateRequest, TokenCreated, TokenInfo, TokenRole, WorkerTokenCreateRequest};

use super::listing::Listing;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, word};

/// Tokens, with which the API is called from elsewhere and workers join
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a token and print it, alone and only this once
    ///
    /// `DHOW_HOST=https://SERVER:3669 DHOW_TOKEN=...` is all that a client needs: the token also says which cluster to
    /// trust.
    Create {
        /// What its bearer may do
        #[arg(long, value_name = "ROLE")]
        role: Role,

        /// The deployment that a token of the role `deploy` is for: it deploys it and looks at it, and knows of nothing else
        #[arg(long, value_name = "NAME", required_if_eq("role", "deploy"))]
        deployment: Option<DeploymentName>,

        /// Stands as the author of what is done with it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,

        /// How long it is good, for example 30d; without it until it is revoked
        #[arg(long, value_name = "DURATION")]
        ttl: Option<TimeSpan>,
    },
    /// Make a token with which workers join, and print it, alone and only this once
    ///
    /// Put it into a file on the worker: `dhow worker --servers SERVER:3670 --token-file FILE`. It also says which
    /// cluster to trust.
    CreateWorker {
        /// How long it is good
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        ttl: TimeSpan,

        /// How many workers may join with it
        #[arg(long, value_name = "N", default_value_t = 1)]
        uses: u32,

        /// A label that its workers may carry; with the key alone any value. May be repeated. Without it they carry none
        #[arg(long = "label", value_name = "KEY[=VALUE]", conflicts_with = "any_label")]
        labels: Vec<String>,

        /// Its workers may carry any labels but `ingress`, which has to be named
        #[arg(long)]
        any_label: bool,

        /// A node id that one of its workers gets, where it is free. May be repeated. Others get the next one in turn
        #[arg(long = "node-id", value_name = "ID", value_parser = clap::value_parser!(u64).range(1..=NodeId::MAX.0))]
        node_ids: Vec<u64>,
    },
    /// List the tokens, without what they prove themselves with
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// As `dhow token ls` shows it
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// Everything
    Admin,
    /// Look, and change nothing
    Read,
    /// Deploy one deployment and look at it, as a build server does
    Deploy,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Create {
            role,
            deployment,
            name,
            ttl,
        } => {
            let role = match role {
                Role::Admin => TokenRole::Admin,
                Role::Read => TokenRole::Read,
                Role::Deploy => TokenRole::Deploy,
            };
            let asked = TokenCreateRequest {
                role,
                deployment: deployment.as_ref().map(ToString::to_string),
                name: name.clone(),
                ttl_secs: ttl.map(|ttl| ttl.to_std().as_secs()),
            };
            create(client, asked).await
        }
        Command::CreateWorker {
            ttl,
            uses,
            labels,
            any_label,
            node_ids,
        } => {
            let asked = WorkerTokenCreateRequest {
                ttl_secs: ttl.to_std().as_secs(),
                uses: *uses,
                allowed_labels: allowed(labels),
                any_label: *any_label,
                node_ids: node_ids.iter().copied().collect(),
            };
            create_worker(client, asked).await
        }
        Command::Ls { json } => list(client, *json).await,
        Command::Revoke { id } => {
            client.fetch(Request::delete(&["tokens", id])).await?;
            output::note(&format!("token {id} is revoked"));
            Ok(Exit::Done)
        }
    }
}

async fn create(client: &Client, asked: TokenCreateRequest) -> anyhow::Result<Exit> {
    if asked.ttl_secs == Some(0) {
        output::failure("a token that is good for less than a second is of no use: give --ttl more");
        return Ok(Exit::BadInput);
    }
    let asked = serde_json::to_value(asked)?;
    let created: TokenCreated = client.fetch_as(Request::post(&["tokens"]).json(asked)).await?;
    output::data(&format!("{}\n", created.token))?;
    output::note(&format!("token {} is made; it is not shown again", created.id));
    Ok(Exit::Done)
}

fn allowed(labels: &[String]) -> Option<BTreeMap<String, BTreeSet<String>>> {
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for label in labels {
        match label.split_once('=') {
            Some((key, value)) => {
                allowed.entry(key.into()).or_default().insert(value.into());
            }
            None => {
                allowed.entry(label.clone()).or_default();
            }
        }
    }
    Some(allowed).filter(|allowed| !allowed.is_empty())
}

async fn create_worker(client: &Client, asked: WorkerTokenCreateRequest) -> anyhow::Result<Exit> {
    let uses = asked.uses;
    let asked = Request::post(&["tokens", "workers"]).json(serde_json::to_value(asked)?);
    let created: TokenCreated = client.fetch_as(asked).await?;
    output::data(&format!("{}\n", created.token))?;
    output::note(&format!(
        "token {} is made, for {uses} to join; it is not shown again",
        created.id
    ));
    Ok(Exit::Done)
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let listing = Listing {
        path: "tokens",
        none: "no tokens; `dhow token create --role admin` makes one",
        heading: &["ID", "NAME", "ROLE", "AGE", "EXPIRES", "USES LEFT"],
    };
    let now = output::now_unix_secs();
    let row = |token: &TokenInfo| {
        let expires = match token.expires_unix_secs {
            _ if token.revoked => "revoked".to_owned(),
            Some(_) if token.expired => "expired".to_owned(),
            Some(end) => format!("in {}", output::age(now, end)),
            None => "never".to_owned(),
        };
        [
            token.id.clone(),
            token.name.clone(),
            match &token.deployment {
                Some(deployment) => format!("{} {deployment}", word(&token.role)),
                None => word(&token.role),
            },
            token
                .created_unix_secs
                .map_or_else(String::new, |made| output::age(made, now)),
            expires,
            match (token.uses_left, token.uses) {
                (Some(left), Some(all)) => format!("{left} of {all}"),
                (_, _) => String::new(),
            },
        ]
    };
    listing.print(client, json, row).await
}
