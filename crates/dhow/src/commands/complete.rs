//! `dhow complete-names WORD…`: what a shell offers for the last of these words, from the daemon that the others would ask.
//! The scripts of `dhow completions` call it. It never says a word on its own: where no daemon answers, it offers nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use clap::Arg;
use dhow_wire::api::ImageInfo;
use dhow_wire::{DeploymentStatus, NodeStatus, ReplicaStatus};
use serde::de::DeserializeOwned;

use crate::cli::Cli;
use crate::client::{Client, Request};
use crate::output;

/// The word that the scripts call.
pub const WORD: &str = "complete-names";
/// Whoever presses a key waits no longer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(800);
/// More are no help on a screen.
const OFFERED_MAX: usize = 500;
/// The longest command line that is looked at.
const WORDS_MAX: usize = 1_000;

/// Prints what there is, one in each line. Always ends well: a shell has no use for an error here.
pub fn main(words: impl Iterator<Item = OsString>) -> i32 {
    let words: Vec<String> = words
        .take(WORDS_MAX)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let Some((current, before)) = words.split_last() else {
        return 0;
    };
    let wanted = wanted(&Cli::offered(), before, current);
    let Some(wanted) = wanted else { return 0 };
    let Ok(client) = Client::from_env(wanted.host.as_deref()) else {
        return 0;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return 0 };
    let asked = async {
        let names = tokio::time::timeout(ANSWER_TIMEOUT, names(&client, wanted.kind)).await;
        names.unwrap_or_default()
    };
    let found = runtime.block_on(asked);
    let offered = found.iter().filter(|name| name.starts_with(current.as_str()));
    let lines: String = offered
        .take(OFFERED_MAX)
        .map(|name| format!("{name}\n"))
        .collect();
    // A reader that has gone wants nothing any more.
    let _ = output::raw_stdout(lines.as_bytes());
    0
}

/// What stands at a place of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deployments,
    /// Deployments too, where the place takes them.
    Services {
        or_deployments: bool,
    },
    /// Services and replicas.
    Names {
        or_deployments: bool,
    },
    Nodes,
    Images,
}

impl Kind {
    /// By what the help calls the value.
    fn of(value_name: &str) -> Option<Self> {
        let or_deployments = value_name.starts_with("DEPLOYMENT[");
        match value_name {
            "DEPLOYMENT" => Some(Self::Deployments),
            "NODE" | "NODE_ID" => Some(Self::Nodes),
            "IMAGE" => Some(Self::Images),
            name if name.starts_with("DEPLOYMENT[/SERVICE") || name.starts_with("DEPLOYMENT/SERVICE") => {
                Some(Self::Services { or_deployments })
            }
            name if name.starts_with("DEPLOYMENT") => Some(Self::Names { or_deployments }),
            _ => None,
        }
    }
}

/// What is to be offered, and which daemon knows.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    kind: Kind,
    host: Option<String>,
}

/// Follows the words as the command line would be read. None where the place takes nothing that a daemon knows.
fn wanted(root: &clap::Command, before: &[String], current: &str) -> Option<Wanted> {
    let (mut command, mut place, mut host) = (root, 0, None);
    let mut waits: Option<&Arg> = None;
    for word in before {
        if let Some(option) = waits.take() {
            if option.get_id() == "host" {
                host = Some(word.clone());
            }
            continue;
        }
        if word == "--" {
            // What follows is another program's.
            return None;
        }
        if let Some(rest) = word.strip_prefix("--") {
            match rest.split_once('=') {
                Some(("host", value)) => host = Some(value.to_owned()),
                Some(_) => {}
                None => waits = option(root, command, |arg| arg.get_long() == Some(rest)),
            }
            continue;
        }
        if let Some(last) = word.strip_prefix('-').and_then(|flags| flags.chars().last()) {
            waits = option(root, command, |arg| arg.get_short() == Some(last));
            continue;
        }
        match command.find_subcommand(word).filter(|_| place == 0) {
            Some(inner) => command = inner,
            None => place += 1,
        }
    }
    let arg = match waits {
        Some(option) => option,
        None if current.starts_with('-') || (place == 0 && command.has_subcommands()) => return None,
        None => positional(command, place)?,
    };
    let name = arg.get_value_names()?.first()?;
    let kind = Kind::of(name)?;
    Some(Wanted { kind, host })
}

/// An option that takes a value, of the verb or of all.
fn option<'a>(
    root: &'a clap::Command,
    command: &'a clap::Command,
    is_it: impl Fn(&Arg) -> bool,
) -> Option<&'a Arg> {
    let mut all = command.get_arguments().chain(root.get_arguments());
    all.find(|arg| !arg.is_positional() && arg.get_action().takes_values() && is_it(arg))
}

/// The value at that place; the last one takes all that follows where it takes several.
fn positional(command: &clap::Command, place: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = command.get_positionals().collect();
    let is_list = |arg: &&&Arg| matches!(arg.get_action(), clap::ArgAction::Append);
    let found = all.get(place).or_else(|| all.last().filter(is_list));
    found.copied()
}

async fn names(client: &Client, kind: Kind) -> BTreeSet<String> {
    match kind {
        Kind::Deployments => deployments(client, true, false).await,
        Kind::Services { or_deployments } => deployments(client, or_deployments, true).await,
        Kind::Names { or_deployments } => {
            let (mut names, replicas) = tokio::join!(
                deployments(client, or_deployments, true),
                asked::<ReplicaStatus>(client, &["replicas"])
            );
            let replicas = replicas.into_iter();
            names.extend(replicas.map(|replica| format!("{}/{}", replica.deployment, replica.id)));
            names
        }
        Kind::Nodes => {
            let nodes = asked::<NodeStatus>(client, &["nodes"]).await;
            nodes.into_iter().map(|node| node.node_id.to_string()).collect()
        }
        Kind::Images => {
            let images = asked::<ImageInfo>(client, &["images"]).await;
            images.into_iter().map(|image| image.name).collect()
        }
    }
}

async fn deployments(client: &Client, themselves: bool, services: bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for status in asked::<DeploymentStatus>(client, &["deployments"]).await {
        let of = &status.deployment;
        let all = status.services.iter().filter(|_| services);
        names.extend(all.map(|service| format!("{of}/{}", service.name)));
        if themselves {
            names.insert(status.deployment);
        }
    }
    names
}

/// A listing; nothing where it cannot be had.
async fn asked<T: DeserializeOwned>(client: &Client, path: &[&str]) -> Vec<T> {
    client.fetch_as(Request::get(path)).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Option<Wanted> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (current, before) = words.split_last().unwrap();
        wanted(&Cli::offered(), before, current)
    }

    fn kind_at(line: &str) -> Option<Kind> {
        at(line).map(|wanted| wanted.kind)
    }

    #[test]
    fn the_place_says_what_is_offered() {
        let services = |or_deployments| Some(Kind::Services { or_deployments });
        let names = |or_deployments| Some(Kind::Names { or_deployments });
        for (line, expected) in [
            ("rm ", Some(Kind::Deployments)),
            ("rm sh", Some(Kind::Deployments)),
            ("stop ", services(true)),
            ("restart --wait ", services(true)),
            ("scale shop/web=3 ", services(false)),
            ("logs -f -n 5 ", names(true)),
            ("exec -it ", names(false)),
            ("explain shop", names(false)),
            ("node drain ", Some(Kind::Nodes)),
            ("image rm ", Some(Kind::Images)),
            ("rollout pause sh", services(true)),
            // Other programs', verbs and values that no daemon knows.
            ("exec shop/web -- ", None),
            ("", None),
            ("sta", None),
            ("node ", None),
            ("rm --", None),
            ("rm shop ", None),
            ("deploy ", None),
            ("logs shop --since ", None),
        ] {
            assert_eq!(kind_at(line), expected, "{line:?}");
        }
    }

    #[test]
    fn the_daemon_that_is_named_is_asked() {
        for line in ["--host http://a:1 rm ", "rm --host=http://a:1 "] {
            assert_eq!(at(line).unwrap().host.as_deref(), Some("http://a:1"), "{line:?}");
        }
    }
}
