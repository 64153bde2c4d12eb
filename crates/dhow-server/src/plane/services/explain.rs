//! Why something is where it is, or why it is not running.

use std::collections::BTreeSet;

use dhow_core::ids::{NodeId, ReplicaKey, replica_id};
use dhow_core::plan::{PlanReport, Waiting};
use dhow_core::replica::ReplicaState;
use dhow_core::spec::{AffinityMode, RType, ServiceSpec};
use dhow_core::state::{Deployment, Drain, Replica, RunOutcome, Service, State, Stopped, Wanted};
use dhow_wire::DeploymentState;
use dhow_wire::api::{ExplainedReplica, ExplainedWait, Explanation};

use super::deployment::state_of;
use super::replicas::{DONE_BEFORE, UNSEEN, done_before, measured, started_unix_secs};
use super::select::{NoSuchName, Subject, subject};
use super::sum::{ServiceSum, is_current};
use super::wall_times::WallTimes;
use super::{callers, files, scaling};
use crate::clock::shown_utc;
use crate::plane::cron::{self, Outlook};
use crate::plane::runtime::Observed;

/// Ended replicas that an explanation recalls.
const RECALLED_MAX: usize = 3;
/// Replicas whose work was done before that it names.
const DONE_MAX: usize = 16;

pub(super) fn explain(
    report: &PlanReport,
    observed: &Observed,
    times: &WallTimes<'_>,
    deployment: &Deployment,
    name: &str,
) -> Result<Explanation, NoSuchName> {
    let state = times.state;
    let (service, only) = match subject(state, deployment, name)? {
        Subject::Service(service) => (service, None),
        Subject::Replica { service, id } => (service, Some(id)),
        Subject::Run { service, .. } => (service, None),
    };
    let takes = |id: &str| only.as_deref().is_none_or(|only| only == id);
    let mut explanation = Explanation {
        subject: format!("{}/{name}", deployment.name),
        lines: Vec::new(),
        replicas: Vec::new(),
        waiting: Vec::new(),
    };
    if only.is_none() {
        explanation.lines.push(headline(state, deployment, service));
        let outlook = cron::outlook(state, service, times.now_unix_secs());
        explanation.lines.extend(outlook.into_iter().flat_map(schedule));
        explanation.lines.extend(runs(times, service));
        explanation.lines.extend(scaling::lines(times, observed, service));
        explanation.lines.extend(callers::lines(state, service));
        let named = Some(service.key.service.as_str());
        explanation.lines.extend(files::notes(state, deployment, named));
        explanation.lines.extend(files::old_nodes(state, service));
        let apart = state.volumes_apart(service);
        explanation.lines.extend(apart.iter().map(ToString::to_string));
    }
    for (key, replica) in state.replicas_of(service.id) {
        let id = state.replica_name(key).map(|name| name.id()).unwrap_or_default();
        let is_told = only.is_some() || service.is_present(key.slot);
        if is_told && takes(&id) {
            let told = present(times, service, key, replica, id);
            let used = measured(state, observed, key, replica);
            let started = started_unix_secs(times, service, replica, used);
            let secs = match started {
                Some(started) => times.now_unix_secs().saturating_sub(started).max(0),
                None => times.secs_since(&service.key.deployment, replica.since),
            };
            let is_old = !is_current(service, key);
            explanation
                .lines
                .extend(lines_of(&told, replica, &span(secs), is_old));
            explanation.replicas.push(told);
        }
    }
    add_done(&mut explanation, state, service, &takes);
    add_waiting(&mut explanation, report, service, only.as_deref());
    add_ended(&mut explanation, service, &takes);
    if explanation.lines.is_empty() {
        let line = format!(
            "{} has no replica now and nothing is remembered of it",
            explanation.subject
        );
        explanation.lines.push(line);
    }
    Ok(explanation)
}

fn headline(state: &State, deployment: &Deployment, service: &Service) -> String {
    if let Some(stopped) = &service.stopped {
        return stopped_line(service, stopped);
    }
    let sum = ServiceSum::of(state, service);
    let standing = standing(state_of(state, deployment, sum.is_whole()), sum.is_whole());
    format!(
        "{} {standing}: {}",
        service.key,
        counted(service, deployment, &sum)
    )
}

/// Who has stopped it and when, and what it keeps.
fn stopped_line(service: &Service, stopped: &Stopped) -> String {
    let then = match service.rtype() {
        RType::Service | RType::Job => match service.count_total() {
            1 => " with 1 replica".to_owned(),
            replicas => format!(" with {replicas} replicas"),
        },
        RType::System => " on all its nodes".to_owned(),
        RType::Cron => " by its schedule".to_owned(),
    };
    let (key, by, at) = (&service.key, &stopped.by, shown_utc(stopped.wall_unix_secs));
    format!("{key} was stopped by {by} at {at}; `dhow start {key}` runs it again{then}")
}

/// How the service does. What became of its deployment may be the fault of another one.
fn standing(state: DeploymentState, whole: bool) -> &'static str {
    match state {
        DeploymentState::Deploying => "is deploying",
        DeploymentState::Stable => "is stable",
        DeploymentState::Degraded => "is degraded",
        DeploymentState::Reverting => "is being reverted",
        DeploymentState::Reverted => "was reverted and is stable",
        DeploymentState::Failed if whole => "is as it should be, and its deployment failed",
        DeploymentState::Failed => "is not as it should be, and its deployment failed",
        DeploymentState::RevertFailed if whole => {
            "is as it should be, and what its deployment went back to fails"
        }
        DeploymentState::RevertFailed => "is not as it should be, and what its deployment went back to fails",
        DeploymentState::Removing => "is being removed",
        DeploymentState::Stopped => "is stopped",
    }
}

fn counted(service: &Service, deployment: &Deployment, sum: &ServiceSum) -> String {
    let work = || {
        let mut line = format!("{} of {} done", sum.done, sum.desired);
        if sum.at_work() > 0 {
            line.push_str(&format!(", {} at work", sum.at_work()));
        }
        if sum.failed > 0 {
            line.push_str(&format!(", {} failed", sum.failed));
        }
        line
    };
    let mut line = match service.rtype() {
        RType::Job => work(),
        RType::Cron if service.cron_runs == 0 => "no run has begun yet".to_owned(),
        RType::Cron => match service.open_runs().count() {
            0 | 1 => format!("of its last run {}", work()),
            runs => format!("{runs} runs are under way, of them {}", work()),
        },
        RType::Service | RType::System if sum.outdated > 0 => {
            return format!(
                "{} of {} replicas run revision {}, {} of them healthy; {} of another one are to be replaced",
                sum.updated, sum.desired, deployment.revision, sum.healthy_count, sum.outdated
            );
        }
        RType::Service | RType::System => format!(
            "{} of {} replicas run, {} healthy",
            sum.running, sum.desired, sum.healthy_count
        ),
    };
    if sum.outdated > 0 {
        line.push_str(&format!(", {} of another revision to be replaced", sum.outdated));
    }
    line
}

/// When a schedule fires next, and what keeps it from that.
fn schedule(outlook: Outlook) -> Vec<String> {
    let next = match outlook.next_unix_secs {
        Some(next) => match &outlook.zone {
            Some(zone) => format!("in {zone} is next due at {}", shown_utc(next)),
            None => format!("is next due at {}", shown_utc(next)),
        },
        None => "never comes again".into(),
    };
    let mut lines = vec![format!("its schedule `{}` {next}", outlook.schedule)];
    lines.extend(outlook.waits_for_unix_secs.map(|last| {
        format!(
            "its last run was for {}, which this server's clock has not reached: it waits for that",
            shown_utc(last)
        )
    }));
    lines.extend(outlook.left_out_unix_secs.map(|first| {
        format!(
            "its last run has not ended: what is due meanwhile, since {}, is left out",
            shown_utc(first)
        )
    }));
    lines
}

/// Runs of a schedule that have ended and are kept, the newest first.
fn runs(times: &WallTimes<'_>, service: &Service) -> Vec<String> {
    let kept = service.runs.iter().rev().filter_map(|run| Some((run, run.end?)));
    let lines = kept.take(RECALLED_MAX).map(|(run, end)| {
        let took = times
            .secs_since(&service.key.deployment, run.began)
            .saturating_sub(times.secs_since(&service.key.deployment, end.at));
        let whose = match run.due_unix_secs {
            Some(due) => format!("due at {}", shown_utc(due)),
            None => "asked for".to_owned(),
        };
        let how = match end.outcome {
            RunOutcome::Done => "was done",
            RunOutcome::Failed => "failed",
            RunOutcome::Late => "was ended by its deadline",
            RunOutcome::Replaced => "was replaced by the next one",
            RunOutcome::Stopped => "was stopped",
        };
        format!("run {}, {whose}, {how} after {}", run.number, span(took))
    });
    let mut lines: Vec<String> = lines.collect();
    if service.late.is_some() {
        lines.push("it was ended by its deadline, and is begun anew by a deploy or a restart".into());
    }
    lines
}

fn present(
    times: &WallTimes<'_>,
    service: &Service,
    key: &ReplicaKey,
    replica: &Replica,
    id: String,
) -> ExplainedReplica {
    let machine = &replica.machine;
    ExplainedReplica {
        id,
        generation: key.generation.0,
        state: machine.state.into(),
        healthy: replica.is_healthy(),
        restarts: machine.restarts,
        node_id: replica.node.0,
        placed_because: because(times, service, key, replica),
        message: machine.trouble(),
    }
}

fn lines_of(told: &ExplainedReplica, replica: &Replica, lasted: &str, is_old: bool) -> Vec<String> {
    let ExplainedReplica {
        id, state, node_id, ..
    } = told;
    let mut first = match replica.machine.state {
        ReplicaState::Exited if replica.is_completed() => {
            format!("{id} has done its work on node {node_id}, {lasted} ago")
        }
        ReplicaState::Exited => format!("{id} ended on node {node_id} {lasted} ago"),
        ReplicaState::Failed => format!("{id} failed on node {node_id} {lasted} ago"),
        ReplicaState::Backoff if replica.wanted == Wanted::Stop => {
            format!("{id} failed on node {node_id} {lasted} ago")
        }
        ReplicaState::Backoff => {
            format!("{id} failed on node {node_id} {lasted} ago and is to be started again")
        }
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Stopping
        | ReplicaState::Lost => format!("{id} is {state} on node {node_id} for {lasted}"),
    };
    if replica.is_running() && !replica.is_healthy() {
        first.push_str(" and not healthy yet");
    }
    match replica.wanted {
        Wanted::Stop => first.push_str(" and is to end"),
        // While a revision rolls, a replica and the one in its place have the same name.
        Wanted::Run if is_old && !replica.is_completed() => first.push_str(" and is to be replaced"),
        Wanted::Run => {}
    }
    if told.restarts > 0 {
        let times = if told.restarts == 1 {
            "once"
        } else {
            &format!("{} times", told.restarts)
        };
        first.push_str(&format!(", restarted {times} so far"));
    }
    if let Some(message) = told.message.as_ref().filter(|_| !replica.is_completed()) {
        first.push_str(&format!(": {message}"));
    }
    vec![first, format!("  {}", told.placed_because)]
}

/// A time as people say it.
pub(super) fn span(secs: i64) -> String {
    match secs {
        ..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} days", secs / 86_400),
    }
}

/// The rules by which its node is chosen, and how it stands with them now. What the other nodes were like when it was
/// placed, nobody has written down.
fn because(times: &WallTimes<'_>, service: &Service, key: &ReplicaKey, replica: &Replica) -> String {
    let (state, node) = (times.state, replica.node);
    if state.volume_home(service, key.slot) == Some(node) {
        return format!("node {node} keeps its volume");
    }
    let Some(info) = service.info(key.generation) else {
        return format!("node {node} was chosen for a spec that is no longer kept");
    };
    let mut rules = demands(&info.spec);
    let mode = service
        .role(key.slot.role)
        .map(|role| info.spec.affinity_of(role).mode);
    rules.push(match (info.spec.rtype, mode.unwrap_or_default()) {
        (RType::System, _) => "one on every node that fits".into(),
        (RType::Service | RType::Job | RType::Cron, AffinityMode::Spread) => "spread over the nodes".into(),
        (RType::Service | RType::Job | RType::Cron, AffinityMode::Pack) => "packed onto few nodes".into(),
        (RType::Service | RType::Job | RType::Cron, AffinityMode::Pin) => "pinned to such nodes".into(),
    });
    let open = state.nodes.values().filter(|node| node.is_open()).count();
    let mut line = format!(
        "its rule: {}; now node {node} has {} of this service, and {open} of {} nodes take new replicas",
        rules.join(", "),
        on_node(state, service, replica),
        state.nodes.len()
    );
    match state.node(node).map(|node| node.drain) {
        Some(Drain::Draining { .. }) => line.push_str(&format!("; node {node} drains")),
        // What a drain was told to leave runs there still.
        Some(Drain::Drained { .. }) => line.push_str(&format!("; node {node} is drained")),
        Some(Drain::No) | None => {}
    }
    let lacks = lacks(state, node, &info.spec);
    if !lacks.is_empty() {
        line.push_str(&format!(
            "; node {node} has no {} any more, and what runs there stays",
            lacks.join(", ")
        ));
    }
    match bad_nodes(times, service).as_slice() {
        [] => {}
        [one] => line.push_str(&format!(
            "; its replicas kept failing on {one}, which is taken last"
        )),
        more => line.push_str(&format!(
            "; its replicas kept failing on {}, which are taken last",
            more.join(", ")
        )),
    }
    line
}

/// Labels that a node must have for the spec and has not: people may take them away while a replica runs there.
fn lacks(state: &State, node: NodeId, spec: &ServiceSpec) -> Vec<String> {
    let Some(labels) = state.node(node).map(|node| node.labels()) else {
        return Vec::new();
    };
    let asked = spec.node_selector.labels.iter();
    let missing = asked.filter(|(key, value)| labels.get(*key) != Some(*value));
    let unmet = spec.node_selector.rules.iter();
    let unmet = unmet.filter(|rule| !rule.is_met_by(labels.get(&rule.label).map(String::as_str)));
    let missing = missing.map(|(key, value)| format!("{key}={value}"));
    missing.chain(unmet.map(|rule| format!("`{rule}`"))).collect()
}

/// Nodes that come last for the service.
fn bad_nodes(times: &WallTimes<'_>, service: &Service) -> Vec<String> {
    let failed = service.recently_failed_on(times.now).map(|failed| failed.node);
    let nodes: BTreeSet<NodeId> = failed.collect();
    nodes.iter().map(|node| format!("node {node}")).collect()
}

fn on_node(state: &State, service: &Service, replica: &Replica) -> usize {
    let here = state.replicas_of(service.id);
    here.filter(|(_, other)| other.node == replica.node && other.wanted == Wanted::Run && other.reserves())
        .count()
}

fn demands(spec: &ServiceSpec) -> Vec<String> {
    let mut rules = Vec::new();
    let labels = spec.node_selector.labels.iter();
    rules.extend(labels.map(|(key, value)| format!("{key}={value}")));
    rules.extend(spec.node_selector.rules.iter().map(ToString::to_string));
    let platform = [&spec.platform.os, &spec.platform.arch];
    rules.extend(platform.into_iter().flatten().map(ToString::to_string));
    if let Some(memory) = spec.resources.memory {
        rules.push(format!("{memory} of memory"));
    }
    if let Some(cpu) = spec.resources.cpu {
        rules.push(format!("{cpu} cpu"));
    }
    rules.extend(spec.max_per_node.map(|max| format!("max_per_node {max}")));
    let limits = spec.max_per.iter();
    rules.extend(limits.map(|(label, max)| format!("max_per {label} {max}")));
    for (word, neighbours) in [
        ("near", &spec.affinity.near),
        ("away from", &spec.affinity.away_from),
    ] {
        rules.extend(
            neighbours
                .iter()
                .map(|other| format!("{word} `{}`", other.service)),
        );
    }
    rules
}

/// Work that is not done again.
fn add_done(explanation: &mut Explanation, state: &State, service: &Service, takes: &dyn Fn(&str) -> bool) {
    let told = done_before(state, service).filter(|status| takes(&status.id));
    let lines = told
        .take(DONE_MAX)
        .map(|status| format!("{}: {DONE_BEFORE}", status.id));
    explanation.lines.extend(lines);
}

fn add_waiting(explanation: &mut Explanation, report: &PlanReport, service: &Service, only: Option<&str>) {
    let Some(report) = report.services.get(&service.id) else {
        return;
    };
    let mut waiting: Vec<&Waiting> = report.waiting.iter().collect();
    waiting.sort_by_key(|waiting| waiting.first);
    for waiting in waiting {
        let id_of = |index| replica_id(&service.key.service, &waiting.role, index);
        let first = waiting.first.index;
        let last = first.saturating_add(waiting.slots);
        if only.is_some_and(|only| !(first..last).any(|index| id_of(index) == only)) {
            continue;
        }
        let others = match (only, waiting.slots) {
            (Some(_), _) | (None, 0 | 1) => String::new(),
            (None, slots) => format!(" and {} more", slots - 1),
        };
        let shown = only.map_or_else(|| id_of(first), ToOwned::to_owned);
        explanation
            .lines
            .push(format!("{shown}{others}: {}", waiting.why));
        explanation.waiting.push(ExplainedWait {
            first: shown,
            slots: waiting.slots,
            why: waiting.why.to_string(),
        });
    }
}

fn add_ended(explanation: &mut Explanation, service: &Service, takes: &dyn Fn(&str) -> bool) {
    let ended = service.ended.iter().rev().filter_map(|ended| {
        let role = service.role(ended.slot.role)?;
        let id = replica_id(&service.key.service, role, ended.slot.index);
        let how = match (&ended.message, ended.exit) {
            (Some(message), _) => message.to_string(),
            (None, Some(exit)) => exit.to_string(),
            (None, None) => UNSEEN.into(),
        };
        takes(&id).then(|| format!("earlier {id} on node {}: {how}", ended.node))
    });
    explanation.lines.extend(ended.take(RECALLED_MAX));
}
