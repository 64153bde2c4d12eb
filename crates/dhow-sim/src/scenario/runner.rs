//! Runs a scenario against a cluster in memory.

mod deploying;
mod listing;
mod perform;
mod unsuited;
mod verbs;

use std::collections::BTreeMap;

use dhow_core::command::{PlanCommand, RequestId};
use dhow_core::ids::{DeploymentName, Term};
use dhow_core::invariants;
use dhow_core::state::Request;

use super::error::BadScript;
use super::parse::parse;
use super::script::{Block, Invocation, Script};
use crate::lab::{Lab, TraceLine};

/// What came out of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The file as it would read with what was really printed.
    pub text: String,
    /// What must hold at the end of every scenario and does not.
    pub broken: Vec<String>,
}

/// Runs a script from an empty cluster. The lab compares every plan with one made without a cache, and panics
/// where they differ.
pub fn run(script: &Script) -> Result<Ran, BadScript> {
    let mut runner = Runner::new();
    let mut outputs = Vec::new();
    for block in &script.blocks {
        if let Block::Command(invocation) = block {
            let output = runner.invoke(invocation).map_err(|what| BadScript {
                line: invocation.line,
                what,
            })?;
            outputs.push(output);
        }
    }
    Ok(Ran {
        text: script.with_outputs(&outputs),
        broken: runner.broken(),
    })
}

struct Runner {
    lab: Lab,
    /// The files of deployments, as they were last deployed.
    files: BTreeMap<DeploymentName, String>,
    /// A plan of a leader, kept to be applied late.
    remembered: Option<(Term, Vec<PlanCommand>)>,
    /// The last moment of a schedule that came.
    due_unix_secs: i64,
}

impl Runner {
    fn new() -> Self {
        let mut lab = Lab::new();
        lab.compare_with_cold = true;
        Self {
            lab,
            files: BTreeMap::new(),
            remembered: None,
            due_unix_secs: 0,
        }
    }

    /// What a command prints.
    fn invoke(&mut self, invocation: &Invocation) -> Result<Vec<String>, String> {
        self.lab.trace.clear();
        let text = match invocation.text.strip_prefix("request ") {
            None => invocation.text.as_str(),
            Some(rest) => {
                let (key, command) = rest.split_once(' ').ok_or("write `request KEY COMMAND`")?;
                self.lab.request = Some(request(key, command, &invocation.input));
                command
            }
        };
        self.perform(&parse(text)?, &invocation.input)
    }

    /// What came of something that happened to the cluster, without the time: it is that of the command.
    fn told(&mut self) -> Vec<String> {
        let lines = std::mem::take(&mut self.lab.trace);
        lines.iter().map(TraceLine::text).collect()
    }

    fn broken(&self) -> Vec<String> {
        let mut broken: Vec<String> = invariants::check(&self.lab.state)
            .iter()
            .map(ToString::to_string)
            .collect();
        if self.lab.replay().hash() != self.lab.state.hash() {
            broken.push("the log does not replay to the same state".into());
        }
        broken
    }
}

fn request(key: &str, command: &str, input: &[String]) -> RequestId {
    let body = format!("{command}\n{}", input.join("\n"));
    RequestId {
        request: Request {
            principal: "user".into(),
            key: key.into(),
        },
        body_hash: *blake3::hash(body.as_bytes()).as_bytes(),
    }
}
