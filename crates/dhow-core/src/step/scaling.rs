//! Counts of adaptive services: what their scaler decides, and what people hold.

use std::sync::Arc;

use super::{deployment, replicas, rollout, service};
use crate::change::{Change, ChangeSink, DeploymentChange, ServiceChange};
use crate::command::{DeploymentCommand, Missing, Outcome, Refused, ScaleChange, Stale};
use crate::ids::{DeploymentName, Generation, RoleName, ServiceId, ServiceName, Template};
use crate::scaler::{self, Bounds, PastResize, Resize, SINCE_LEVEL};
use crate::spec::{DeploymentSpec, TimeSpan};
use crate::state::{ScaleHold, Scaling, Service, State};
use crate::time::ClusterTime;

/// A spec with adaptive services is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.needs_scaler() {
        true => super::needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}

/// The scaler has decided another count. The figures are looked at again: they come to the same on every server.
pub(super) fn resize(
    state: &mut State,
    (id, generation): (ServiceId, Generation),
    resize: &Resize,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let found = state.service(id).ok_or(Missing::ServiceId(id))?.clone();
    if found.target != generation {
        return Err(Stale::Generation.into());
    }
    if !scaler::is_due(state, &found, resize) {
        return Err(Stale::Count.into());
    }
    let called = scaler::called_for(&found, &resize.load).ok_or(Stale::Count)?;
    let now = state.time;
    if let Some(service) = replicas::service_mut(state, id) {
        set_count(service, resize.to, now);
        let scaling = scaling_mut(service);
        scaling.changed = Some(now);
        // Nobody holds it any more.
        scaling.hold = None;
        scaling.resizes.push_back(PastResize {
            at: now,
            resize: *resize,
            called,
        });
        while scaling.resizes.len() > Scaling::RESIZES_MAX {
            scaling.resizes.pop_front();
        }
    }
    sink.tell(
        state,
        Change::Service(
            id,
            ServiceChange::Resized {
                resize,
                called: &called,
            },
        ),
    );
    Ok(Outcome::Done)
}

/// What people say about counts of adaptive services.
pub(super) fn apply(
    state: &mut State,
    command: &DeploymentCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    if let DeploymentCommand::Hold {
        deployment,
        changes,
        span,
        author,
    } = command
    {
        return hold(state, deployment, changes, (*span, author), sink);
    }
    if let DeploymentCommand::EndHold {
        deployment,
        services,
        author,
    } = command
    {
        return end_hold(state, deployment, services, author, sink);
    }
    Ok(Outcome::Done)
}

/// A person sets counts of adaptive services for a while: all of one request, or none.
fn hold(
    state: &mut State,
    name: &DeploymentName,
    changes: &[ScaleChange],
    (span, by): (TimeSpan, &Arc<str>),
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let known = deployment::present(state, name)?.clone();
    let mut checked = Vec::with_capacity(changes.len());
    for change in changes {
        let id = adaptive_in(state, name, &change.service)?;
        deployment::role_to_scale(state, id, change)?;
        checked.push((id, change.replicas));
    }
    let now = state.time;
    let mut is_other = false;
    for (id, replicas) in checked {
        let Some(service) = replicas::service_mut(state, id) else {
            continue;
        };
        if service.count_total() != replicas {
            set_count(service, replicas, now);
            is_other = true;
        }
        let scaling = scaling_mut(service);
        scaling.changed = Some(now);
        scaling.hold = Some(ScaleHold {
            until: now.after(span),
            by: Arc::clone(by),
        });
    }
    if is_other {
        rollout::begin_again(state, name);
    }
    sink.tell(
        state,
        Change::Deployment(name, DeploymentChange::Held { changes, span, by }),
    );
    Ok(Outcome::Deployed {
        revision: known.revision,
        changed: true,
    })
}

/// The scaler decides again.
fn end_hold(
    state: &mut State,
    name: &DeploymentName,
    services: &[ServiceName],
    by: &Arc<str>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let known = deployment::present(state, name)?.clone();
    let mut ids = Vec::with_capacity(services.len());
    for service in services {
        ids.push(adaptive_in(state, name, service)?);
    }
    let now = state.time;
    let mut changed = false;
    for id in ids {
        if let Some(service) = replicas::service_mut(state, id)
            && let Some(scaling) = service.scaling.as_mut()
            && scaling.hold.take().is_some_and(|hold| hold.until > now)
        {
            changed = true;
        }
    }
    if changed {
        let released = DeploymentChange::HoldEnded { services, by };
        sink.tell(state, Change::Deployment(name, released));
    }
    Ok(Outcome::Deployed {
        revision: known.revision,
        changed,
    })
}

/// What a scaler decides is not scaled by hand without saying for how long.
pub(super) fn refuse_adaptive(state: &State, id: ServiceId, change: &ScaleChange) -> Result<(), Refused> {
    let spec = state.service(id).and_then(|service| service.spec());
    match spec.and_then(|spec| Bounds::of(spec)) {
        Some(_) => Err(Refused::NotScalable {
            service: change.service.clone(),
            why: "its scale is adaptive; `dhow scale` with `--hold 1h` sets its count for that long",
        }),
        None => Ok(()),
    }
}

/// Finds a service whose count a scaler decides.
fn adaptive_in(state: &State, deployment: &DeploymentName, name: &ServiceName) -> Result<ServiceId, Refused> {
    let known = deployment::present(state, deployment)?;
    let id = deployment::service_in(state, known, name)?;
    let spec = state.service(id).and_then(|service| service.spec());
    match spec.and_then(|spec| Bounds::of(spec)) {
        Some(_) => Ok(id),
        None => Err(Refused::NotScalable {
            service: name.clone(),
            why: "only the count of an adaptive service is held: scale it without `--hold`",
        }),
    }
}

/// The service has been pointed at a spec; `before` is the template that was next until then. A rollout of one that has no
/// replica starts one, to be judged by it. One that is adaptive no more has nothing to remember.
pub(super) fn turned(service: &mut Service, before: Template, now: ClusterTime) {
    let spec = service.spec();
    let Some(bounds) = spec.and_then(|spec| Bounds::of(spec)) else {
        service.scaling = None;
        return;
    };
    let is_held = service
        .scaling
        .as_ref()
        .and_then(|scaling| scaling.held(now))
        .is_some();
    if bounds.min == 0 && service.count_total() == 0 && service.next_template != before && !is_held {
        set_count(service, 1, now);
        scaling_mut(service).changed = Some(now);
    }
}

fn set_count(service: &mut Service, replicas: u32, now: ClusterTime) {
    let place = service.role_id(&RoleName::fallback());
    let mut counts = service.counts.to_vec();
    if let Some(count) = place.and_then(|role| counts.get_mut(usize::from(role.0))) {
        *count = replicas;
    }
    service::set_counts(service, counts.into(), now);
}

fn scaling_mut(service: &mut Service) -> &mut Scaling {
    service.scaling.get_or_insert_with(Scaling::default)
}
