//! Reads one command of a scenario.

use dhow_core::command::ScaleChange;
use dhow_core::ids::{DeploymentName, NodeId, Revision, RoleName, ServiceName};
use dhow_core::spec::TimeSpan;

use super::action::{Action, NodeAction, TokenAction};
use super::behaviour;
use super::node_shape::NodeShape;

/// What is wrong with the command is said in words, for the scenario's author.
pub(super) fn parse(text: &str) -> Result<Action, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["nodes"] => Ok(Action::Nodes),
        ["nodes", count, shape @ ..] => Ok(Action::AddNodes {
            count: number(count)?,
            shape: NodeShape::parse(shape)?,
        }),
        ["ps"] => Ok(Action::Ps { all: false }),
        ["ps", "--all"] => Ok(Action::Ps { all: true }),
        ["status"] => Ok(Action::Status),
        ["check"] => Ok(Action::Check),
        ["run", span] => Ok(Action::Run(time(span)?)),
        ["wait", span] => Ok(Action::Wait(time(span)?)),
        ["remember", "plan"] => Ok(Action::RememberPlan),
        ["apply", "remembered", "plan"] => Ok(Action::ApplyRememberedPlan),
        ["image", name, words @ ..] => image(name, words),
        ["token", words @ ..] => token(words).map(Action::Token),
        words => match on_node(words) {
            Some(found) => found,
            None => on_deployment(words),
        },
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

fn on_node(words: &[&str]) -> Option<Result<Action, String>> {
    let (id, action) = match words {
        ["cut", id] => (id, NodeAction::Cut),
        ["power", "off", id] => (id, NodeAction::PowerOff),
        ["back", id] => (id, NodeAction::Back),
        ["back", id, "with", "its", "ledger"] => (id, NodeAction::BackWithLedger),
        ["lose", "ledger", id] => (id, NodeAction::LoseLedger),
        ["drain", id] => (id, NodeAction::Drain),
        ["drain", id, options @ ..] => match drain(options) {
            Ok(action) => (id, action),
            Err(what) => return Some(Err(what)),
        },
        ["undrain", id] => (id, NodeAction::Undrain),
        ["label", id, label] => (id, label_change(label)),
        ["rm", "node", id] => (id, NodeAction::Remove),
        ["leader", id] => (id, NodeAction::Lead),
        ["assignments", id, "since", since] => match number(since) {
            Ok(since) => (
                id,
                NodeAction::Assignments {
                    since: Revision(since),
                },
            ),
            Err(what) => return Some(Err(what)),
        },
        _ => return None,
    };
    Some(number(id).map(|id| Action::Node(NodeId(id), action)))
}

/// `--force`, `--deadline 10m`, `--ignore-system`.
fn drain(options: &[&str]) -> Result<NodeAction, String> {
    let (mut deadline, mut ignore_system) = (None, false);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match (*option, deadline) {
            ("--force", None) => deadline = Some(TimeSpan::ZERO),
            ("--deadline", None) => deadline = Some(time(options.next().unwrap_or(&""))?),
            ("--ignore-system", _) => ignore_system = true,
            _ => return Err("a drain has `--force` or `--deadline 10m`, and `--ignore-system`".into()),
        }
    }
    Ok(NodeAction::DrainWith {
        deadline,
        ignore_system,
    })
}

/// `zone=b` sets, `zone-` takes away.
fn label_change(label: &str) -> NodeAction {
    match (label.split_once('='), label.strip_suffix('-')) {
        (Some((key, value)), _) => NodeAction::Label {
            key: key.into(),
            value: Some(value.into()),
        },
        (None, key) => NodeAction::Label {
            key: key.unwrap_or(label).into(),
            value: None,
        },
    }
}

fn on_deployment(words: &[&str]) -> Result<Action, String> {
    match words {
        ["deploy"] => Ok(Action::Deploy),
        ["redeploy", name] => Ok(Action::Redeploy(deployment(name)?)),
        ["manifests", version, from @ ..] => Ok(Action::Manifests {
            version: number(version)?,
            source: match from {
                [] => None,
                ["from", source] => Some((*source).to_owned()),
                _ => return Err("write `manifests 2` or `manifests 2 from SOURCE`".into()),
            },
        }),
        ["history", name] => Ok(Action::History(deployment(name)?)),
        ["explain", path] => service_path(path).map(|(name, service)| Action::Explain(name, service)),
        ["cron", path] => service_path(path).map(|(name, service)| Action::Cron(name, service)),
        ["scale", change] => scale(change),
        ["restart", path] => match path.split_once('/') {
            Some((name, service)) => Ok(Action::Restart {
                deployment: deployment(name)?,
                service: Some(service_name(service)?),
            }),
            None => Ok(Action::Restart {
                deployment: deployment(path)?,
                service: None,
            }),
        },
        ["rollback", name] => Ok(Action::Rollback {
            deployment: deployment(name)?,
            to: None,
        }),
        ["rollback", name, "--to", to] => Ok(Action::Rollback {
            deployment: deployment(name)?,
            to: Some(dhow_core::ids::DeploymentRevision(number(to)?)),
        }),
        ["rm", name] => Ok(Action::Remove(deployment(name)?)),
        _ => Err("there is no such command; scenarios/README.md lists them".into()),
    }
}

/// `shop/web=5`, or with a role `shop/db:reader=3`.
fn scale(text: &str) -> Result<Action, String> {
    let (path, count) = text.split_once('=').ok_or("write `scale DEPLOYMENT/SERVICE=N`")?;
    let (path, role) = match path.split_once(':') {
        Some((path, role)) => (
            path,
            Some(RoleName::new(role).map_err(|error| error.to_string())?),
        ),
        None => (path, None),
    };
    let (deployment, service) = service_path(path)?;
    let replicas = count.parse().map_err(|_| format!("`{count}` is no number"))?;
    Ok(Action::Scale {
        deployment,
        change: ScaleChange {
            service,
            role,
            replicas,
        },
    })
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

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn time(text: &str) -> Result<TimeSpan, String> {
    text.parse()
        .map_err(|error: dhow_core::spec::UnitError| error.to_string())
}

fn deployment(text: &str) -> Result<DeploymentName, String> {
    DeploymentName::new(text).map_err(|error| error.to_string())
}

fn service_name(text: &str) -> Result<ServiceName, String> {
    ServiceName::new(text).map_err(|error| error.to_string())
}

fn service_path(text: &str) -> Result<(DeploymentName, ServiceName), String> {
    let (name, service) = text
        .split_once('/')
        .ok_or_else(|| format!("`{text}` is no `DEPLOYMENT/SERVICE`"))?;
    Ok((deployment(name)?, service_name(service)?))
}
