//! Options of verbs that mean nothing in a scenario: what needs a stream, a measurement, a node to ask, or a program
//! that reads.

use std::path::Path;

use dhow_cli::{cron, node, rollout};

use crate::scenario::action::Verb;

const NO_WAIT: &str = "a scenario does not wait: leave --wait out, and let time pass with `run 10s`";

/// What the scenario's author is told.
pub(super) fn check(verb: &Verb) -> Result<(), String> {
    let wrong = match verb {
        verb if is_json(verb) => Some("a scenario shows what people see: leave --json out"),
        Verb::Deploy(args) if !args.detach || !is_stdin(args.from.file.as_deref()) => {
            Some("write `deploy --detach -` with the file below it, and let time pass with `run 10s`")
        }
        Verb::Plan(args) if args.what.is_none() && !is_stdin(args.from.file.as_deref()) => {
            Some("write `plan -` with the file below it")
        }
        Verb::Ps(args) if args.live || args.usage => {
            Some("nothing is measured and no node can be asked: leave --usage and --live out")
        }
        Verb::Scale(args) => args.wait.wait.then_some(NO_WAIT),
        Verb::Stop(args) => args.wait.then_some(NO_WAIT),
        Verb::Start(args) => args.wait.wait.then_some(NO_WAIT),
        Verb::Rebalance(args) => args.wait.wait.then_some(NO_WAIT),
        Verb::Restart(args) => args.wait.wait.then_some(NO_WAIT),
        Verb::Rollback(args) => args.wait.wait.then_some(NO_WAIT),
        Verb::Rm(args) => args.wait.then_some(NO_WAIT),
        Verb::Rollout(args) => args.command.wait().and_then(|wait| wait.wait.then_some(NO_WAIT)),
        Verb::Cron(args) => is_waiting(&args.command).then_some(NO_WAIT),
        Verb::Deploy(_)
        | Verb::Plan(_)
        | Verb::Status(_)
        | Verb::Ps(_)
        | Verb::History(_)
        | Verb::Explain(_)
        | Verb::Node(_) => None,
    };
    wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
}

fn is_waiting(command: &cron::Command) -> bool {
    match command {
        cron::Command::Run(args) => args.wait,
        cron::Command::Ls(_) | cron::Command::Next(_) => false,
    }
}

fn is_stdin(file: Option<&Path>) -> bool {
    file == Some(Path::new("-"))
}

fn is_json(verb: &Verb) -> bool {
    match verb {
        Verb::Deploy(args) => args.json,
        Verb::Plan(args) => args.json,
        Verb::Status(args) => args.json,
        Verb::Ps(args) => args.json,
        Verb::History(args) => args.json,
        Verb::Explain(args) => args.json,
        Verb::Rollout(args) => matches!(args.command, rollout::Command::Ls { json: true }),
        Verb::Node(args) => match args.command {
            node::Command::Ls { json } | node::Command::Show { json, .. } => json,
            node::Command::Drain(_)
            | node::Command::Undrain(_)
            | node::Command::Label(_)
            | node::Command::Rm(_) => false,
        },
        Verb::Cron(args) => match &args.command {
            cron::Command::Ls(args) => args.json,
            cron::Command::Next(args) => args.json,
            cron::Command::Run(_) => false,
        },
        Verb::Scale(_)
        | Verb::Rebalance(_)
        | Verb::Stop(_)
        | Verb::Start(_)
        | Verb::Restart(_)
        | Verb::Rm(_)
        | Verb::Rollback(_) => false,
    }
}
