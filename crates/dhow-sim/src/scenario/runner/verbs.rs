//! The product's own verbs: they ask the simulated cluster what they would ask a daemon, and show the answer as they do.

use dhow_cli::endpoints::Viewpoint;
use dhow_cli::node::{self, DrainArgs, DrainEnd, ShownDrain};
use dhow_cli::target::{NamedTarget, ScaleTarget, Target};
use dhow_cli::{
    ERROR, Shown, cron, explain, history, plan, ps, rebalance, restart, rm, rollback, rollout, scale, start,
    status, stop,
};
use dhow_core::command::{
    Command, DeploymentCommand, NodeCommand, Outcome, Refused, ReplicaMove, ScaleChange,
};
use dhow_core::ids::{DeploymentName, DeploymentRevision, NodeId, ServiceName};
use dhow_core::rebalance::{MOVES_MAX, Scope, propose};
use dhow_core::spec::TimeSpan;
use dhow_core::state::Drain;
use dhow_server::plane::runtime::WriteError;
use dhow_server::plane::services::{NoSuchName, ReplicaFilter};
use dhow_wire::Problem;
use dhow_wire::api::{Deployed, NodeDrainRequest, NodeLabelRequest, RebalancePlan, RunBegun};

use super::Runner;
use super::deploying::{joined, read};
use super::unsuited::check;
use crate::scenario::action::Verb;

/// What a verb prints, or why the API refuses it.
pub(super) type Answer = Result<Vec<String>, Refusal>;

/// The problem that the API answers with.
pub(super) struct Refusal(Box<Problem>);

impl From<NoSuchName> for Refusal {
    fn from(error: NoSuchName) -> Self {
        Self(Box::new(error.into()))
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self(Box::new(WriteError::Refused(refused).into()))
    }
}

/// How often a drain that is waited for is looked at.
const LOOK_EVERY: TimeSpan = TimeSpan::from_millis(300);

/// Prints an answer as the command line does.
pub(super) fn printed(answer: Answer) -> Vec<String> {
    answer.unwrap_or_else(|Refusal(problem)| lines(&format!("{ERROR} {problem}")))
}

/// Without empty lines, which divide commands in a scenario.
pub(super) fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

fn shown(shown: Shown) -> Vec<String> {
    match shown {
        Shown::Data(text) | Shown::Note(text) => lines(&text),
    }
}

impl Runner {
    /// An error is one of the scenario's author: an option that means nothing without a terminal and a daemon.
    pub(super) fn verb(&mut self, verb: &Verb, input: &[String]) -> Result<Answer, String> {
        check(verb)?;
        Ok(match verb {
            Verb::Deploy(args) => self.deploy(joined(input), args.force, args.suspend.secs()),
            Verb::Plan(plan::Args {
                what: Some(plan::What::Rebalance(args)),
                ..
            }) => Ok(lines(&rebalance::text(&self.moves(&args.which).0))),
            Verb::Plan(_) => self.plan(input),
            Verb::Rebalance(args) => self.rebalance(args),
            Verb::Status(args) => self.status(args.deployment.as_ref()),
            Verb::Ps(args) => self.ps(args),
            Verb::History(args) => self.history(args),
            Verb::Explain(args) => self.explain(args),
            Verb::Scale(args) => {
                let mut said = Ok(Vec::new());
                for (deployment, targets) in args.by_deployment() {
                    let how = (args.hold, args.suspend.secs());
                    said = said.and_then(|said| self.scale((deployment, &targets), how, said));
                }
                for target in args.releases() {
                    said = said.and_then(|said| self.release(target, said));
                }
                said
            }
            Verb::Stop(args) => self.stop(&args.target, true)?,
            Verb::Start(args) => self.stop(&args.target, false)?,
            Verb::Restart(args) => {
                let service = args.target.name.as_deref().map(ServiceName::new).transpose();
                let service = service.map_err(|error| error.to_string())?;
                let deployment = args.target.deployment.clone();
                self.ask(DeploymentCommand::Restart { deployment, service })
                    .map(|_| lines(&restart::said(&args.target)))
            }
            Verb::Rollback(args) => {
                let command = DeploymentCommand::Rollback {
                    deployment: args.deployment.clone(),
                    to: args.to.map(DeploymentRevision),
                    author: "user".into(),
                    wall_unix_secs: self.wall_unix_secs(),
                };
                let command = self.suspending(args.suspend.secs(), command);
                let deployed = self.deployed(&args.deployment, command);
                deployed.map(|deployed| lines(&rollback::said(args.to, &deployed)))
            }
            Verb::Rollout(args) => self.rollout(&args.command)?,
            Verb::Rm(args) => {
                let deployment = args.deployment.clone();
                self.ask(DeploymentCommand::Remove { deployment })
                    .map(|_| lines(&rm::said(&args.deployment)))
            }
            Verb::Node(args) => self.node(&args.command),
            Verb::Cron(args) => self.cron(&args.command),
        })
    }

    fn rollout(&mut self, command: &rollout::Command) -> Result<Answer, String> {
        let Some((action, target)) = command.asked() else {
            let all = self.listed(|listings| listings.rollouts());
            return Ok(Ok(shown(rollout::list(&all))));
        };
        let service = target.name.as_deref().map(ServiceName::new).transpose();
        let command = DeploymentCommand::Steer {
            deployment: target.deployment.clone(),
            service: service.map_err(|error| error.to_string())?,
            action: action.into(),
            author: "user".into(),
        };
        let deployed = self.deployed(&target.deployment, command);
        Ok(deployed.map(|deployed| lines(&rollout::said(action, &target, &deployed))))
    }

    /// Stops what is named, or starts it again.
    fn stop(&mut self, target: &Target, stops: bool) -> Result<Answer, String> {
        let service = target.name.as_deref().map(ServiceName::new).transpose();
        let service = service.map_err(|error| error.to_string())?;
        let deployment = target.deployment.clone();
        let (author, wall_unix_secs) = ("user".into(), self.wall_unix_secs());
        let command = match stops {
            true => DeploymentCommand::Stop {
                deployment,
                service,
                author,
                wall_unix_secs,
            },
            false => DeploymentCommand::Start {
                deployment,
                service,
                author,
                wall_unix_secs,
            },
        };
        let said = if stops { stop::said } else { start::said };
        let deployed = self.deployed(&target.deployment, command);
        Ok(deployed.map(|deployed| lines(&said(target, deployed.changed))))
    }

    /// What moving replicas would bring now.
    fn moves(&self, which: &rebalance::Which) -> (RebalancePlan, Vec<ReplicaMove>) {
        let scope = Scope {
            deployment: which.deployment.clone(),
            moves_max: which.max.unwrap_or(MOVES_MAX),
        };
        let proposal = propose(&self.lab.state, &scope);
        (RebalancePlan::of(&self.lab.state, &proposal), proposal.moves)
    }

    fn rebalance(&mut self, args: &rebalance::Args) -> Answer {
        let (plan, moves) = match args.stop {
            true => (RebalancePlan::default(), Vec::new()),
            false => self.moves(&args.which),
        };
        if !args.stop && moves.is_empty() {
            return Ok(lines(&rebalance::said(&plan)));
        }
        let author = "user".into();
        self.ask(DeploymentCommand::Rebalance { moves, author })?;
        Ok(match args.stop {
            true => lines(rebalance::STOPPED),
            false => lines(&rebalance::said(&plan)),
        })
    }

    fn plan(&self, input: &[String]) -> Answer {
        let spec = match read(&joined(input)) {
            Ok(spec) => std::sync::Arc::new(spec),
            Err(findings) => return Ok(findings),
        };
        let plan = self.listed(|listings| listings.plan(&spec))?;
        Ok(lines(&plan::text(&spec, &plan)))
    }

    fn ps(&self, args: &ps::Args) -> Answer {
        let filter = ReplicaFilter {
            deployment: args.deployment.as_ref().map(ToString::to_string),
            service: None,
            all: args.all,
        };
        let replicas = self.listed(|listings| listings.replicas(&filter))?;
        let columns = ps::Columns::default();
        Ok(shown(ps::shown(&replicas, columns, self.wall_unix_secs())))
    }

    fn history(&self, args: &history::Args) -> Answer {
        let entries = self.listed(|listings| listings.history(args.deployment.as_str()))?;
        Ok(lines(&history::text(&entries, self.wall_unix_secs())))
    }

    fn explain(&self, args: &explain::Args) -> Answer {
        let target = &args.target;
        let told = self.listed(|listings| listings.explain(target.deployment.as_str(), &target.name))?;
        Ok(lines(&explain::text(&told)))
    }

    /// The user of a scenario sits on a node that serves everything.
    fn status(&self, name: Option<&DeploymentName>) -> Answer {
        let viewpoint = Viewpoint::default();
        match name {
            Some(name) => {
                let status = self.listed(|listings| listings.deployment(name.as_str()))?;
                Ok(lines(&status::one(&status, &viewpoint)))
            }
            None => {
                let all = self.listed(|listings| listings.deployments());
                Ok(shown(status::all(&all, &viewpoint)))
            }
        }
    }

    fn ask(&mut self, command: DeploymentCommand) -> Result<Outcome, Refusal> {
        self.write(Command::Deployment(command))
    }

    fn write(&mut self, command: Command) -> Result<Outcome, Refusal> {
        Ok(self.lab.apply(command)?)
    }

    /// A write whose answer is a revision.
    pub(super) fn deployed(
        &mut self,
        deployment: &DeploymentName,
        command: DeploymentCommand,
    ) -> Result<Deployed, Refusal> {
        match self.ask(command)? {
            Outcome::Deployed { revision, changed } => Ok(Deployed {
                deployment: deployment.to_string(),
                revision: revision.0,
                changed,
                state_revision: self.lab.state.revision.0,
                brings_back: None,
            }),
            other @ (Outcome::Done
            | Outcome::Registered { .. }
            | Outcome::Placed { .. }
            | Outcome::RunBegan { .. }
            | Outcome::Reported { .. }) => {
                panic!("a deployment came to {other:?}, which does not belong to it")
            }
        }
    }

    fn scale(
        &mut self,
        (deployment, targets): (&DeploymentName, &[&ScaleTarget]),
        (hold, suspend_secs): (Option<TimeSpan>, Option<u64>),
        mut said: Vec<String>,
    ) -> Answer {
        let changes = targets.iter().map(|target| ScaleChange {
            service: target.service.clone(),
            role: target.role.clone(),
            replicas: target.replicas,
        });
        let (deployment, changes) = (deployment.clone(), changes.collect());
        let command = match hold {
            None => DeploymentCommand::Scale { deployment, changes },
            Some(span) => DeploymentCommand::Hold {
                deployment,
                changes,
                span,
                author: "user".into(),
            },
        };
        self.ask(self.suspending(suspend_secs, command))?;
        said.extend(targets.iter().map(|target| scale::said(target, hold)));
        Ok(said)
    }

    fn release(&mut self, target: &NamedTarget, mut said: Vec<String>) -> Answer {
        let Ok(service) = ServiceName::new(&target.name) else {
            return Ok(said);
        };
        self.ask(DeploymentCommand::EndHold {
            deployment: target.deployment.clone(),
            services: vec![service],
            author: "user".into(),
        })?;
        said.push(scale::said_released(target));
        Ok(said)
    }

    fn cron(&mut self, command: &cron::Command) -> Answer {
        let now = self.wall_unix_secs();
        match command {
            cron::Command::Ls(args) => {
                let (deployment, service) = cron::asked(args.target.as_ref());
                let deployment = deployment.map(DeploymentName::as_str);
                let crons = self.listed(|listings| listings.crons(deployment, service, 1))?;
                Ok(shown(match (service, crons.as_slice()) {
                    (Some(_), [one]) => cron::runs(one, now),
                    (Some(_) | None, all) => cron::list(all, now),
                }))
            }
            cron::Command::Next(args) => {
                let deployment = Some(args.target.deployment.as_str());
                let (service, next) = (Some(args.target.name.as_str()), args.count as usize);
                let crons = self.listed(|listings| listings.crons(deployment, service, next))?;
                Ok(crons.iter().flat_map(|cron| shown(cron::next(cron))).collect())
            }
            cron::Command::Run(args) => {
                let service = ServiceName::new(&args.target.name);
                let service = service.map_err(|_| {
                    NoSuchName::Name(args.target.deployment.clone(), args.target.name.clone())
                })?;
                let asked = DeploymentCommand::StartRun {
                    deployment: args.target.deployment.clone(),
                    service,
                };
                match self.ask(asked)? {
                    Outcome::RunBegan { run } => Ok(lines(&cron::begun(
                        &args.target,
                        &RunBegun {
                            run,
                            state_revision: self.lab.state.revision.0,
                        },
                    ))),
                    other => panic!("a run came to {other:?}, which does not belong to it"),
                }
            }
        }
    }

    fn node(&mut self, command: &node::Command) -> Answer {
        match command {
            node::Command::Ls { .. } => {
                let nodes = self.listed(|listings| listings.nodes());
                Ok(lines(&node::list(&nodes)))
            }
            node::Command::Show { node, .. } => {
                let status = self.listed(|listings| listings.node(NodeId(*node)))?;
                let replicas = self.listed(|listings| listings.replicas(&ReplicaFilter::default()))?;
                Ok(lines(&node::one(&status, &replicas, self.wall_unix_secs())))
            }
            node::Command::Drain(args) => self.drain(args),
            node::Command::Undrain(args) => {
                let (node, drain) = (NodeId(args.node), Drain::No);
                let before = self.listed(|listings| listings.node(node))?;
                self.write(Command::Node(NodeCommand::SetDrain { node, drain }))?;
                Ok(lines(&args.said(&before)))
            }
            node::Command::Label(args) => {
                let NodeLabelRequest { set, unset } = args.request();
                let node = NodeId(args.node);
                self.write(Command::Node(NodeCommand::Label { node, set, unset }))?;
                Ok(lines(&args.said()))
            }
            node::Command::Rm(args) => {
                let node = NodeId(args.node);
                if args.force && self.lab.state.node(node).is_some_and(|node| node.is_ready()) {
                    self.write(Command::Node(NodeCommand::Lost { node }))?;
                }
                self.write(Command::Node(NodeCommand::Remove { node }))?;
                Ok(lines(&args.said()))
            }
        }
    }

    /// Without `--detach` time passes until the drain has come to its end.
    fn drain(&mut self, args: &DrainArgs) -> Answer {
        let NodeDrainRequest {
            shutdown,
            deadline_secs,
            ignore_system,
        } = args.request();
        let node = NodeId(args.node);
        self.write(Command::Node(NodeCommand::Drain {
            node,
            shutdown,
            deadline_ms: deadline_secs.map(|secs| secs.saturating_mul(1_000)),
            ignore_system,
        }))?;
        if args.detach {
            return Ok(lines(&args.said()));
        }
        let ends = self.lab.now.after(args.timeout);
        let mut told = ShownDrain::default();
        let mut said = Vec::new();
        loop {
            let status = self.listed(|listings| listings.node(node))?;
            let end = match DrainEnd::of(&status, args.ignore_system) {
                Some(DrainEnd::Drained(text)) => Some(text),
                Some(DrainEnd::Failed(text)) => Some(format!("{ERROR} {text}")),
                None => None,
            };
            if let Some(end) = end {
                said.extend(lines(&end));
                return Ok(said);
            }
            said.extend(told.tell(&status));
            if self.lab.now > ends {
                said.extend(lines(&format!("{ERROR} {}", node::timed_out(&status))));
                return Ok(said);
            }
            self.lab.run(LOOK_EVERY);
        }
    }
}
