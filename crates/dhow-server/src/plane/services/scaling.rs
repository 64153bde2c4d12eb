//! What an adaptive service is scaled by: its limits, its load, who holds it, and the last changes.

use dhow_core::scaler::{self, Bounds, Called, Holds, PastResize};
use dhow_core::spec::{ScaleSpec, ServiceSpec};
use dhow_core::state::{Deployment, Service};
use dhow_core::time::ClusterTime;

use super::explain::span;
use super::wall_times::WallTimes;
use crate::plane::runtime::Observed;

/// Changes that an explanation recalls.
const RECALLED_MAX: usize = 3;

/// The lines of an explanation; none of a service whose count is not adaptive.
pub(super) fn lines(times: &WallTimes<'_>, observed: &Observed, service: &Service) -> Vec<String> {
    let Some((spec, bounds)) = service
        .spec()
        .and_then(|spec| Bounds::of(spec).map(|bounds| (spec, bounds)))
    else {
        return Vec::new();
    };
    let load = observed.load(times.state, service);
    let mut lines = vec![rule(spec, &bounds)];
    if let Some(called) = scaler::called_for(service, &load) {
        lines.push(now(times, service, &bounds, &called, load.is_whole));
    }
    let scaling = service.scaling.as_ref();
    let kept = scaling.iter().flat_map(|scaling| scaling.resizes.iter().rev());
    lines.extend(kept.take(RECALLED_MAX).map(|past| recalled(times, service, past)));
    lines
}

/// Who holds counts of a deployment, for its status.
pub(super) fn notes(times: &WallTimes<'_>, deployment: &Deployment) -> Vec<String> {
    let services = deployment.services.values();
    let services = services.filter_map(|id| times.state.service(*id));
    let held = services.filter_map(|service| {
        let hold = service.scaling.as_ref()?.held(times.now)?;
        let (name, count) = (&service.key.service, service.count_total());
        let left = span(seconds(hold.until.0.saturating_sub(times.now.0)));
        Some(format!("{} holds `{name}` at {count} for {left}", hold.by))
    });
    held.collect()
}

fn rule(spec: &ServiceSpec, bounds: &Bounds) -> String {
    let Bounds { min, max, cooldown } = bounds;
    let mut targets = Vec::new();
    if let ScaleSpec::Adaptive { targets: asked, .. } = &spec.scale {
        targets.extend(asked.cpu.map(|target| format!("cpu {target} %")));
        targets.extend(asked.memory.map(|target| format!("memory {target} %")));
        targets.extend(asked.rps.map(|target| format!("rps {target}")));
        targets.extend(asked.in_flight.map(|target| format!("in_flight {target}")));
    }
    format!(
        "it is scaled by its load, between {min} and {max}: {} for each replica, cooldown {cooldown}",
        targets.join(", ")
    )
}

/// What the load calls for now, and what keeps the count from that.
fn now(times: &WallTimes<'_>, service: &Service, bounds: &Bounds, called: &Called, is_whole: bool) -> String {
    let (count, words) = (service.count_total(), called.words());
    let for_secs = |until: ClusterTime| span(seconds(until.0.saturating_sub(times.now.0)));
    let held = service
        .scaling
        .as_ref()
        .and_then(|scaling| scaling.held(times.now));
    let mut line = match called.replicas {
        replicas if replicas == count => format!("its load calls for {replicas}, as many as it has: {words}"),
        replicas => format!("its load calls for {replicas}, and it has {count}: {words}"),
    };
    if let Some(hold) = held {
        line.push_str(&format!(
            "; {} holds it at {count} for {}",
            hold.by,
            for_secs(hold.until)
        ));
        return line;
    }
    if called.replicas >= count {
        return line;
    }
    if !is_whole {
        line.push_str("; not every node has told its figures lately, so nothing is taken away");
        return line;
    }
    let deployment = times.state.deployment(&service.key.deployment);
    match scaler::holds_lower(deployment.map(AsRef::as_ref), service, bounds, times.now) {
        Some(Holds::Rollout) => line.push_str("; nothing is taken away while its rollout is under way"),
        Some(Holds::Pause { until }) => {
            line.push_str(&format!("; nothing is taken away for {}", for_secs(until)));
        }
        Some(Holds::Held { .. }) | None => line.push_str("; fewer once that was so for the cooldown"),
    }
    line
}

fn recalled(times: &WallTimes<'_>, service: &Service, past: &PastResize) -> String {
    let secs = times.secs_since(&service.key.deployment, past.at);
    format!("{} ago from {}", span(secs), past.resize.words(&past.called))
}

fn seconds(ms: u64) -> i64 {
    i64::try_from(ms.div_ceil(1_000)).unwrap_or(i64::MAX)
}
