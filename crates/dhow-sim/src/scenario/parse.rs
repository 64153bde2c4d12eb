//! Reads one command of a scenario. Verbs of the product are read by its own parser.

use clap::Parser;
use dhow_cli::target;
use dhow_core::command::ApplyReason;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::rollout::{Counted, Figures};
use dhow_core::scaler::Load;
use dhow_core::spec::{ByteSize, Cpu, TimeSpan};

use super::action::{Action, ManifestAction, NodeAction, TokenAction, Verb};
use super::behaviour;
use super::node_shape::NodeShape;

/// What is wrong with the command is said in words, for the scenario's author.
pub(super) fn parse(text: &str) -> Result<Action, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["nodes", count, shape @ ..] => Ok(Action::AddNodes {
            count: number(count)?,
            shape: NodeShape::parse(shape)?,
        }),
        ["check"] => Ok(Action::Check),
        ["run", span] => Ok(Action::Run(time(span)?)),
        ["wait", span] => Ok(Action::Wait(time(span)?)),
        ["remember", "plan"] => Ok(Action::RememberPlan),
        ["apply", "remembered", "plan"] => Ok(Action::ApplyRememberedPlan),
        ["image", name, words @ ..] => image(name, words),
        ["token", words @ ..] => token(words).map(Action::Token),
        ["redeploy", name, force @ ..] => Ok(Action::Redeploy {
            name: target::deployment(name)?,
            force: match force {
                [] => false,
                ["--force"] => true,
                _ => return Err("write `redeploy shop` or `redeploy shop --force`".into()),
            },
        }),
        ["calls", path, "canary", canary, "beside", base] => Ok(Action::Calls {
            service: target::named_target(path)?,
            figures: Figures {
                canary: counted(canary)?,
                base: counted(base)?,
            },
        }),
        ["load", path, words @ ..] => Ok(Action::Load {
            service: target::named_target(path)?,
            load: load(words)?,
        }),
        ["due", path, rest @ ..] => Ok(Action::Due {
            target: target::named_target(path)?,
            again: match rest {
                [] => false,
                ["again"] => true,
                _ => return Err("write `due DEPLOYMENT/SERVICE`, or the same with `again`".into()),
            },
        }),
        ["manifests", version, rest @ ..] => manifests(number(version)?, rest).map(Action::Manifests),
        words => match on_node(words)? {
            Some((node, action)) => Ok(Action::Node(node, action)),
            None => verb(words),
        },
    }
}

fn manifests(version: u64, rest: &[&str]) -> Result<ManifestAction, String> {
    let usage = "write `manifests 2`, `manifests 2 from SOURCE`, and behind it `at COMMIT`, `accepted`, `again` or `retried`";
    let (source, rest) = match rest {
        ["from", source, rest @ ..] => (Some((*source).to_owned()), rest),
        rest => (None, rest),
    };
    let (commit, rest) = match rest {
        ["at", commit, rest @ ..] => (Some((*commit).to_owned()), rest),
        rest => (None, rest),
    };
    let why = match rest {
        [] => ApplyReason::Newer,
        ["accepted"] => ApplyReason::Accepted,
        ["again"] => ApplyReason::SuspensionOver,
        ["retried"] => ApplyReason::Retry,
        _ => return Err(usage.into()),
    };
    Ok(ManifestAction {
        version,
        source,
        commit,
        why,
    })
}

fn verb(words: &[&str]) -> Result<Action, String> {
    match Verb::try_parse_from(words) {
        Ok(verb) => Ok(Action::Verb(Box::new(verb))),
        Err(error) => Err(format!(
            "scenarios/README.md lists the commands, and this is no verb of the product either: {error}"
        )),
    }
}

fn image(name: &str, words: &[&str]) -> Result<Action, String> {
    let (words, node) = match words {
        [words @ .., "on", "node", id] => (words, Some(NodeId(number(id)?))),
        words => (words, None),
    };
    Ok(Action::Image {
        name: name.into(),
        behaviour: behaviour::parse(words).ok_or(behaviour::USAGE)?,
        node,
    })
}

fn on_node(words: &[&str]) -> Result<Option<(NodeId, NodeAction)>, String> {
    let (id, action) = match words {
        ["cut", id] => (id, NodeAction::Cut),
        ["power", "off", id] => (id, NodeAction::PowerOff),
        ["back", id] => (id, NodeAction::Back),
        ["back", id, "with", "its", "ledger"] => (id, NodeAction::BackWithLedger),
        ["lose", "ledger", id] => (id, NodeAction::LoseLedger),
        ["leader", id] => (id, NodeAction::Lead),
        ["assignments", id, "since", since] => {
            let since = Revision(number(since)?);
            (id, NodeAction::Assignments { since })
        }
        _ => return Ok(None),
    };
    Ok(Some((NodeId(number(id)?), action)))
}

fn token(words: &[&str]) -> Result<TokenAction, String> {
    match words {
        ["issue", name, options @ ..] => {
            let (mut uses, mut ttl) = (1, TimeSpan::from_secs(3_600));
            for option in options {
                match option.split_once('=') {
                    Some(("uses", value)) => {
                        uses = value.parse().map_err(|_| format!("`{value}` is no number"))?;
                    }
                    Some(("ttl", value)) => ttl = time(value)?,
                    Some(_) | None => return Err("a token has `uses=1` and `ttl=1h`".into()),
                }
            }
            Ok(TokenAction::Issue {
                name: (*name).into(),
                uses,
                ttl,
            })
        }
        ["use", name, "by", key] => Ok(TokenAction::Use {
            name: (*name).into(),
            key: (*key).into(),
        }),
        ["revoke", name] => Ok(TokenAction::Revoke { name: (*name).into() }),
        _ => Err(
            "write `token issue NAME uses=1 ttl=1h`, `token use NAME by KEY` or `token revoke NAME`".into(),
        ),
    }
}

/// `cpu=0.9 memory=512Mi rps=400 in_flight=30 waiting=2`; with `partly` a node has not told anything.
fn load(words: &[&str]) -> Result<Load, String> {
    const USAGE: &str = "write `load shop/web cpu=0.9 memory=512Mi rps=400 in_flight=30 waiting=2`, or some of these, and \
                         `partly` where a node tells nothing";
    let mut load = Load {
        is_whole: true,
        ..Load::default()
    };
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            match *word {
                "partly" => load.is_whole = false,
                _ => return Err(USAGE.into()),
            }
            continue;
        };
        let unit = |error: dhow_core::spec::UnitError| error.to_string();
        match name {
            "cpu" => load.cpu_milli = value.parse::<Cpu>().map_err(unit)?.0,
            "memory" => load.memory_bytes = value.parse::<ByteSize>().map_err(unit)?.0,
            "rps" => load.requests_milli = number(value)?.saturating_mul(1_000),
            "in_flight" => load.in_flight = number(value)?,
            "waiting" => load.waiting = number(value)?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(load)
}

/// `41/200`: errors of requests.
fn counted(text: &str) -> Result<Counted, String> {
    let (errors, requests) = text
        .split_once('/')
        .ok_or("write `calls shop/web canary 41/200 beside 16/8000`, each as errors of requests")?;
    Ok(Counted {
        requests: number(requests)?,
        errors: number(errors)?,
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn time(text: &str) -> Result<TimeSpan, String> {
    text.parse()
        .map_err(|error: dhow_core::spec::UnitError| error.to_string())
}
