//! Carries out one command of a scenario.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_cli::target::NamedTarget;
use dhow_core::command::{ClusterCommand, Command, JobCommand, Outcome, PlanCommand};
use dhow_core::ids::{NodeId, ServiceName};
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::rollout::Figures;
use dhow_core::scaler::Load;
use dhow_core::spec::TimeSpan;
use dhow_core::state::NodeRole;

use super::Runner;
use super::verbs::printed;
use crate::lab::Agent;
use crate::scenario::action::{Action, NodeAction, TokenAction};
use crate::scenario::assignments::assignments;
use crate::scenario::node_shape::NodeShape;

impl Runner {
    /// What it prints. An error is one of the scenario's author; a refusal by the cluster is output.
    pub(super) fn perform(&mut self, action: &Action, input: &[String]) -> Result<Vec<String>, String> {
        let output = match action {
            Action::Verb(verb) => printed(self.verb(verb, input)?),
            Action::AddNodes { count, shape } => self.add_nodes(*count, shape),
            Action::Redeploy { name, force } => printed(self.redeploy((name, *force), input)?),
            Action::Manifests(set) => self.manifests(set, input),
            Action::Run(span) => self.run(*span),
            Action::Wait(span) => {
                self.lab.run(*span);
                Vec::new()
            }
            Action::Image {
                name,
                behaviour,
                node,
            } => {
                match node {
                    Some(node) => self.lab.behaviours.insert_on(*node, name.clone(), *behaviour),
                    None => self.lab.behaviours.insert(name.clone(), *behaviour),
                }
                Vec::new()
            }
            Action::Node(node, action) => self.on_node(*node, action),
            Action::RememberPlan => self.remember_plan(),
            Action::ApplyRememberedPlan => self.apply_remembered_plan(),
            Action::Calls { service, figures } => self.calls(service, *figures)?,
            Action::Load { service, load } => self.load(service, *load)?,
            Action::Due { target, again } => self.due(target, *again)?,
            Action::Token(action) => self.token(action),
            Action::Check => match self.broken() {
                broken if broken.is_empty() => {
                    vec!["every invariant holds, and the log replays to the same state".into()]
                }
                broken => broken,
            },
        };
        Ok(output)
    }

    fn add_nodes(&mut self, count: u64, shape: &NodeShape) -> Vec<String> {
        for place in 0..count {
            let id = self.lab.state.last_node_id.next();
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let _ = self.lab.add_node(id, shape.info(place, NodeRole::Peer));
        }
        Vec::new()
    }

    /// The steps of a start and of an end are left out: when they begin and what comes of them is told.
    fn run(&mut self, span: TimeSpan) -> Vec<String> {
        self.lab.run(span);
        let lines = std::mem::take(&mut self.lab.trace);
        let told = lines.iter().filter(|line| !line.is_step());
        told.map(ToString::to_string).collect()
    }

    fn on_node(&mut self, node: NodeId, action: &NodeAction) -> Vec<String> {
        // Refusals are in the trace.
        match action {
            NodeAction::Cut => drop(self.lab.cut(node)),
            NodeAction::PowerOff => drop(self.lab.power_off(node)),
            NodeAction::Back => drop(self.lab.back(node)),
            NodeAction::BackWithLedger => drop(self.lab.back_with_ledger(node)),
            NodeAction::LoseLedger => self.lab.lose_ledger(node),
            NodeAction::Lead => self.lab.change_leader(node),
            NodeAction::Assignments { since } => return assignments(&self.lab.state, node, *since),
        }
        self.told()
    }

    /// A plan is made from the present state and kept, as a leader has it that is about to be deposed.
    fn remember_plan(&mut self) -> Vec<String> {
        let plan = plan_next(&self.lab.state, &mut PlanCache::default(), self.lab.now);
        self.remembered = Some((self.lab.term, plan.commands));
        Vec::new()
    }

    fn apply_remembered_plan(&mut self) -> Vec<String> {
        let (term, commands) = self.remembered.take().unwrap_or_default();
        if commands.is_empty() {
            return vec!["the plan has nothing to do".into()];
        }
        for command in commands {
            let _ = self.lab.apply_in_term(Command::Plan(command), term);
        }
        self.told()
    }

    /// What the balancers tell of a canary from now on.
    fn calls(&mut self, target: &NamedTarget, figures: Figures) -> Result<Vec<String>, String> {
        let name = ServiceName::new(&target.name).map_err(|error| error.to_string())?;
        let found = self.lab.state.service_named(&target.deployment, &name);
        let service = found.filter(|service| service.canary_base().is_some());
        let service = service.ok_or("there is no such service with a canary")?;
        if let Some(base) = service.canary_base() {
            let id = service.id;
            self.lab.figures.insert((id, base), figures);
        }
        Ok(Vec::new())
    }

    /// What nodes tell of an adaptive service from now on.
    fn load(&mut self, target: &NamedTarget, load: Load) -> Result<Vec<String>, String> {
        let name = ServiceName::new(&target.name).map_err(|error| error.to_string())?;
        let found = self.lab.state.service_named(&target.deployment, &name);
        let id = found
            .map(|service| service.id)
            .ok_or("there is no such service")?;
        self.lab.loads.insert(id, load);
        Ok(Vec::new())
    }

    fn due(&mut self, target: &NamedTarget, again: bool) -> Result<Vec<String>, String> {
        let name = ServiceName::new(&target.name).map_err(|error| error.to_string())?;
        let found = self.lab.state.service_named(&target.deployment, &name);
        let id = found
            .map(|service| service.id)
            .ok_or("there is no such service")?;
        if !again {
            self.due_unix_secs = self.wall_unix_secs();
        }
        let command = JobCommand::Due {
            service: id,
            due_unix_secs: self.due_unix_secs,
            follows_unix_secs: None,
            is_missed: false,
        };
        let _ = self.lab.apply(Command::Plan(PlanCommand::Job(command)));
        Ok(self.told())
    }

    fn token(&mut self, action: &TokenAction) -> Vec<String> {
        let now_unix_secs = self.wall_unix_secs();
        let command = match action {
            TokenAction::Issue { name, uses, ttl } => ClusterCommand::IssueToken {
                nonce: name.as_str().into(),
                uses_allowed: *uses,
                expires_unix_secs: now_unix_secs.saturating_add_unsigned(ttl.as_millis() / 1_000),
            },
            TokenAction::Revoke { name } => ClusterCommand::RevokeToken {
                nonce: name.as_str().into(),
            },
            TokenAction::Use { name, key } => ClusterCommand::UseToken {
                nonce: name.as_str().into(),
                key_hash: key.as_str().into(),
                now_unix_secs,
                wish: None,
                is_plain: false,
                info: Arc::new(worker()),
            },
        };
        if let Ok(Outcome::Registered { node }) = self.lab.apply(Command::Cluster(command)) {
            self.lab.agents.entry(node).or_insert_with(|| Agent::new(node));
        }
        self.told()
    }
}

fn worker() -> dhow_core::state::NodeInfo {
    dhow_core::state::NodeInfo {
        role: NodeRole::Worker,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new(BTreeMap::new()),
        capacity: dhow_core::amount::Amount {
            cpu_milli: 4_000,
            memory_bytes: 8 << 30,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: None,
    }
}
