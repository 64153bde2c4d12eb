//! `dhow doctor`: what this host has and lacks for a daemon, and what to do about it. It looks and tries out; it changes
//! nothing, and what it makes for a trial is gone when it ends.

mod containers;
mod host;
mod place;
mod ports;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use dhow_wire::DaemonConfig;
use serde::Serialize;
use serde_json::{Value, json};

use super::daemon::config_of;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Check what this host has and lacks for a daemon, and what to do
///
/// Looks at the configuration, the data directory and its disk, key files, ports, the runtime for containers (a trial
/// container is started and removed, as root), control groups, name servers, the clock and limits. A daemon need not run.
/// Ends with 1 where something keeps a daemon from working.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  dhow doctor\n  sudo dhow doctor --config /etc/dhow/dhow.yaml\n  dhow doctor --json"
)]
pub struct Args {
    /// The daemon's configuration file
    #[arg(long, value_name = "FILE", env = "DHOW_CONFIG", hide_env = true)]
    config: Option<PathBuf>,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Weight {
    Ok,
    /// Something that people use will not work, or not well.
    Lacks,
    /// The daemon does not work.
    Broken,
}

/// What one check has found.
#[derive(Debug, Serialize)]
struct Found {
    check: &'static str,
    weight: Weight,
    what: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Found {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            check,
            weight: Weight::Ok,
            what: what.into(),
            hint: None,
        }
    }

    fn lacks(check: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            check,
            weight: Weight::Lacks,
            what: what.into(),
            hint: Some(hint.into()),
        }
    }

    fn broken(check: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            weight: Weight::Broken,
            ..Self::lacks(check, what, hint)
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let config = match config_of(args.config.as_deref(), &[]) {
        Ok(config) => config,
        Err(findings) => {
            output::findings(&findings);
            return Ok(Exit::BadInput);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let found = runtime.block_on(look(&config, args.config.is_some()));
    runtime.shutdown_background();
    match args.json {
        true => output::json(&json!(found))?,
        false => output::data(&rendered(&found))?,
    }
    let worst = found.iter().map(|found| found.weight).max();
    Ok(match worst {
        Some(Weight::Broken) => Exit::Failed,
        Some(Weight::Ok | Weight::Lacks) | None => Exit::Done,
    })
}

async fn look(config: &DaemonConfig, has_file: bool) -> Vec<Found> {
    let answer = daemon(config).await;
    let mut found = vec![
        Found::ok("configuration", what_is_configured(config, has_file)),
        told_of_daemon(config, answer.as_ref()),
        host::user(),
    ];
    found.extend(place::data_dir(config));
    found.extend(place::key_files(config));
    found.extend(ports::all(config, answer.is_some()));
    found.extend(containers::all().await);
    found.extend([
        host::name_servers(),
        host::clock(config),
        host::open_files(),
        host::service_group(),
    ]);
    found
}

/// What the daemon says of its cluster, where one answers.
async fn daemon(config: &DaemonConfig) -> Option<Value> {
    let at = format!("unix://{}", std::path::absolute(&config.socket).ok()?.display());
    let client = Client::from_env(Some(&at)).ok()?;
    client.fetch(Request::get(&["cluster"])).await.ok()
}

fn what_is_configured(config: &DaemonConfig, has_file: bool) -> String {
    let from = match has_file {
        true => "the file is sound",
        false => "no file was given: defaults",
    };
    format!("{from}; mode {}", config.cluster.name())
}

fn told_of_daemon(config: &DaemonConfig, answer: Option<&Value>) -> Found {
    let socket = config.socket.display();
    match answer {
        None => Found::ok("daemon", format!("none answers at {socket}")),
        Some(cluster) => {
            let leads = match cluster.get("leader_id").is_some_and(Value::is_u64) {
                true => "the cluster has a leader",
                false => "NO leader is known",
            };
            Found::ok("daemon", format!("one answers at {socket}; {leads}"))
        }
    }
}

/// One line for each, with what to do below.
fn rendered(found: &[Found]) -> String {
    let width = found.iter().map(|found| found.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for found in found {
        let mark = match found.weight {
            Weight::Ok => "ok     ",
            Weight::Lacks => "lacks  ",
            Weight::Broken => "BROKEN ",
        };
        // Writing into a text cannot fail.
        let _ = writeln!(text, "{mark} {:width$}  {}", found.check, found.what);
        if let Some(hint) = &found.hint {
            let _ = writeln!(text, "{:indent$}{hint}", "", indent = mark.len() + width + 3);
        }
    }
    let count = |weight| found.iter().filter(|found| found.weight == weight).count();
    let _ = match (count(Weight::Broken), count(Weight::Lacks)) {
        (0, 0) => writeln!(text, "this host has all that a daemon needs"),
        (0, 1) => writeln!(text, "a daemon works here; 1 of what it can do is missing"),
        (0, lacks) => writeln!(text, "a daemon works here; {lacks} of what it can do are missing"),
        (broken, _) => writeln!(text, "a daemon does not work here yet: {broken} to mend"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_stands_below_what_was_found() {
        let found = [
            Found::ok("user", "root"),
            Found::lacks("containers", "neither crun nor runc", "apt-get install crun"),
        ];
        assert_eq!(
            rendered(&found),
            "ok      user        root\n\
             lacks   containers  neither crun nor runc\n                    apt-get install crun\n\
             a daemon works here; 1 of what it can do is missing\n"
        );
        let broken = [Found::broken("disk", "full", "make room")];
        assert!(rendered(&broken).ends_with("a daemon does not work here yet: 1 to mend\n"));
        assert!(rendered(&[]).ends_with("all that a daemon needs\n"));
    }
}
