//! What the past looks like: its window, and what differs between two moments of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_core::spec::{ServiceSpec, differences};
use dhow_core::state::{Deployment, State};
use dhow_wire::api::{EventDocument, PastDifference, PastGap, PastWindow, SpecDifference};

use crate::plane::past::{Moment, Past};
use crate::plane::runtime::{self, Event, EventRecord};

/// How far back it reaches.
pub fn past_window(past: &Past) -> PastWindow {
    let index = past.index();
    let first = index.first();
    PastWindow {
        first_revision: first.map(|chapter| chapter.first.0),
        first_unix_ms: first.and_then(|chapter| chapter.first_unix_ms),
        last_revision: index.last().map(|last| last.0),
        bytes: index.bytes(),
        bytes_max: past.bytes_max(),
        window_secs: u64::try_from(past.window_ms() / 1_000).unwrap_or(0),
        gaps: index
            .gaps()
            .map(|(from, to)| PastGap {
                from_revision: from.0,
                to_revision: to.0,
            })
            .collect(),
        problem: index.problem.clone(),
    }
}

/// What is other at the second moment than at the first, of one deployment or of all.
pub fn past_difference(from: &Moment, to: &Moment, only: Option<&DeploymentName>) -> PastDifference {
    let (before, after) = (&from.state, &to.state);
    let (events, untold) = runtime::differences(before, after);
    let is_meant = |event: &Event| only.is_none_or(|name| event.deployment.as_ref() == Some(name));
    let told = events.into_iter().filter(is_meant);
    PastDifference {
        from: from.told(),
        to: to.told(),
        specs: specs(before, after, only),
        changes: told.filter_map(|event| document(after, to, event)).collect(),
        more: untold,
    }
}

fn specs(before: &State, after: &State, only: Option<&DeploymentName>) -> Vec<SpecDifference> {
    let mut found = Vec::new();
    for (name, known) in &after.deployments {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let Some(earlier) = before.deployment(name) else {
            continue;
        };
        let (old, new) = (services(before, earlier), services(after, known));
        for (service, (spec, replicas)) in &new {
            let mut lines = match old.get(service) {
                Some((earlier, _)) => differences(earlier, spec),
                None => vec!["the service is new".to_owned()],
            };
            let was = old.get(service).map(|(_, replicas)| replicas);
            if let Some(was) = was.filter(|was| *was != replicas) {
                lines.push(format!("replicas: {was} -> {replicas}"));
            }
            push(&mut found, name, service, lines);
        }
        for service in old.keys().filter(|service| !new.contains_key(*service)) {
            push(&mut found, name, service, vec!["the service is gone".to_owned()]);
        }
    }
    found
}

fn push(
    found: &mut Vec<SpecDifference>,
    deployment: &DeploymentName,
    service: &ServiceName,
    lines: Vec<String>,
) {
    if !lines.is_empty() {
        found.push(SpecDifference {
            deployment: deployment.to_string(),
            service: service.to_string(),
            lines,
        });
    }
}

type Services = BTreeMap<ServiceName, (Arc<ServiceSpec>, u32)>;

/// The services of a deployment as they are asked for, with how many replicas they are to have.
fn services(state: &State, known: &Deployment) -> Services {
    let asked = known.services.iter().filter_map(|(name, id)| {
        let service = state.service(*id).filter(|service| !service.removing)?;
        let spec = Arc::clone(service.spec()?);
        Some((name.clone(), (spec, state.desired(service))))
    });
    asked.collect()
}

/// An event as the stream of events has it, at the second moment.
fn document(state: &State, moment: &Moment, event: Event) -> Option<EventDocument> {
    let record = EventRecord {
        revision: state.revision,
        part: 0,
        time_ms: state.time,
        wall_unix_ms: moment.unix_ms,
        event,
    };
    // A record is texts and numbers, and reads as what it was written for.
    serde_json::from_value(serde_json::to_value(record).ok()?).ok()
}
