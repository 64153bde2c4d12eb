//! Why something is where it is, or why it is not running.

use dhow_core::ids::{ReplicaKey, replica_id};
use dhow_core::plan::{PlanReport, Waiting};
use dhow_core::spec::{AffinityMode, ServiceSpec};
use dhow_core::state::{Deployment, Replica, Service, State, Wanted};
use dhow_core::time::ClusterTime;
use dhow_wire::api::{ExplainedReplica, ExplainedWait, Explanation};

use super::deployment::state_of;
use super::select::{NoSuchName, Subject, subject};
use super::sum::ServiceSum;
use crate::cron::{self, Outlook};

/// Ended replicas that an explanation recalls.
const RECALLED_MAX: usize = 3;

/// The time of the cluster and of this server's wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub cluster: ClusterTime,
    pub wall_unix_secs: i64,
}

pub(super) fn explain(
    state: &State,
    report: &PlanReport,
    now: Now,
    deployment: &Deployment,
    name: &str,
) -> Result<Explanation, NoSuchName> {
    let (service, only) = match subject(state, deployment, name)? {
        Subject::Service(service) => (service, None),
        Subject::Replica { service, id } => (service, Some(id)),
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
        let outlook = cron::outlook(state, service, now.wall_unix_secs);
        explanation.lines.extend(outlook.into_iter().flat_map(schedule));
    }
    for (key, replica) in state.replicas_of(service.id) {
        let id = state.replica_name(key).map(|name| name.id()).unwrap_or_default();
        if takes(&id) {
            let told = present(state, service, key, replica, id);
            explanation
                .lines
                .extend(lines_of(&told, replica, &lasted(state, replica, now)));
            explanation.replicas.push(told);
        }
    }
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
    let sum = ServiceSum::of(state, service);
    let mut line = format!(
        "{} is {}: {} of {} replicas run, {} healthy",
        service.key,
        state_of(deployment, sum.is_whole()).word(),
        sum.running,
        sum.desired,
        sum.healthy_count
    );
    if sum.done > 0 {
        line.push_str(&format!(", {} done", sum.done));
    }
    if sum.outdated > 0 {
        line.push_str(&format!(", {} of an earlier revision", sum.outdated));
    }
    line
}

/// When a schedule fires next, and what keeps it from that.
fn schedule(outlook: Outlook) -> Vec<String> {
    let next = match outlook.next_unix_secs {
        Some(next) => format!("is next due at {}", cron::shown(next)),
        None => "never comes again".into(),
    };
    let mut lines = vec![format!("its schedule `{}` {next}", outlook.schedule)];
    lines.extend(outlook.waits_for_unix_secs.map(|last| {
        format!(
            "its last run was for {}, which this server's clock has not reached: it waits for that",
            cron::shown(last)
        )
    }));
    lines
}

fn present(
    state: &State,
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
        placed_because: because(state, service, key, replica),
        message: machine.trouble(),
    }
}

fn lines_of(told: &ExplainedReplica, replica: &Replica, lasted: &str) -> Vec<String> {
    let ExplainedReplica {
        id, state, node_id, ..
    } = told;
    let mut first = format!("{id} is {state} on node {node_id} for {lasted}");
    if replica.is_running() && !replica.is_healthy() {
        first.push_str(" and not healthy yet");
    }
    if replica.wanted == Wanted::Stop {
        first.push_str(" and is to end");
    }
    if told.restarts > 0 {
        let times = if told.restarts == 1 {
            "once"
        } else {
            &format!("{} times", told.restarts)
        };
        first.push_str(&format!(", started again {times}"));
    }
    if let Some(message) = &told.message {
        first.push_str(&format!(": {message}"));
    }
    vec![first, format!("  {}", told.placed_because)]
}

/// For how long it has been so. The wall clock counts the time in which no server ran, too.
fn lasted(state: &State, replica: &Replica, now: Now) -> String {
    let since = match replica.is_running() {
        true => replica.started.unwrap_or(replica.since),
        false => replica.since,
    };
    let secs = match state.clock_marks.wall_unix_ms(since) {
        Some(then_ms) => now
            .wall_unix_secs
            .saturating_sub(then_ms.div_euclid(1_000))
            .max(0),
        None => i64::try_from(now.cluster.since(since).as_millis() / 1_000).unwrap_or(i64::MAX),
    };
    format!("{secs} s")
}

/// What spoke for the node, as far as the spec and the node still say.
fn because(state: &State, service: &Service, key: &ReplicaKey, replica: &Replica) -> String {
    let node = replica.node;
    if service.volume_node(key.slot) == Some(node) {
        return format!("node {node} keeps its volume");
    }
    let Some(info) = service.info(key.generation) else {
        return format!("node {node} was chosen for a spec that is no longer kept");
    };
    let mut reasons = demands(&info.spec);
    let mode = service
        .role(key.slot.role)
        .map(|role| info.spec.affinity_of(role).mode);
    reasons.push(match mode.unwrap_or_default() {
        AffinityMode::Spread => format!(
            "replicas are spread, {} of this service on it",
            on_node(state, service, replica)
        ),
        AffinityMode::Pack => "replicas are packed onto few nodes".into(),
        AffinityMode::Pin => "the spec pins it to such nodes".into(),
    });
    let others = state.nodes.values().filter(|node| node.is_open()).count();
    format!(
        "node {node} was chosen among {others} open nodes: {}",
        reasons.join(", ")
    )
}

fn on_node(state: &State, service: &Service, replica: &Replica) -> usize {
    let here = state.replicas_of(service.id);
    here.filter(|(_, other)| other.node == replica.node && other.wanted == Wanted::Run)
        .count()
}

fn demands(spec: &ServiceSpec) -> Vec<String> {
    let mut reasons = Vec::new();
    let labels = spec.node_selector.labels.iter();
    reasons.extend(labels.map(|(key, value)| format!("it has {key}={value}")));
    let platform = [&spec.platform.os, &spec.platform.arch];
    reasons.extend(platform.into_iter().flatten().map(|word| format!("it is {word}")));
    if let Some(memory) = spec.resources.memory {
        reasons.push(format!("it has {memory} of memory for it"));
    }
    if let Some(cpu) = spec.resources.cpu {
        reasons.push(format!("it has {cpu} cpu for it"));
    }
    reasons
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
            (None, None) => "ended".into(),
        };
        takes(&id).then(|| format!("earlier {id} on node {}: {how}", ended.node))
    });
    explanation.lines.extend(ended.take(RECALLED_MAX));
}
