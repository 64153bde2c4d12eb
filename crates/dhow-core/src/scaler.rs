//! How many replicas an adaptive service should have: from what nodes tell of its load to one change of its count, which
//! is an entry of the log with its figures. Pure: the leader's scaler asks it off the reducer's loop, and `step` asks it
//! again when the entry is applied.
//!
//! Up fast, down slow: more replicas as soon as the figures call for them, fewer only where nothing called for more during
//! a whole cooldown, no figure is missing and no rollout is under way.

mod load;
mod resize;
mod watch;

#[cfg(test)]
mod tests;

pub use load::{Load, LoadBook, Measure};
pub use resize::{Called, PastResize, Resize};
pub use watch::ScalerWatch;

use resize::called;

use crate::spec::{RType, ScaleSpec, ServiceSpec, TimeSpan};
use crate::state::{Deployment, Phase, Service, State};
use crate::time::ClusterTime;

/// From this feature level on there are adaptive services.
pub const SINCE_LEVEL: u32 = 6;

/// After a change of the count its effect is waited for before more replicas are added: by then the balancers know them.
pub const RAISE_PAUSE: TimeSpan = TimeSpan::from_secs(3);

/// The limits of an adaptive service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub min: u32,
    pub max: u32,
    pub cooldown: TimeSpan,
}

impl Bounds {
    /// Of a spec that asks for adaptive scale, where it is carried out.
    pub fn of(spec: &ServiceSpec) -> Option<Self> {
        let is_counted = spec.rtype == RType::Service && spec.replica_groups.is_empty();
        match spec.scale {
            ScaleSpec::Adaptive {
                min, max, cooldown, ..
            } if is_counted => Some(Self { min, max, cooldown }),
            ScaleSpec::Adaptive { .. } | ScaleSpec::Fixed { .. } | ScaleSpec::Manual {} => None,
        }
    }

    /// How far the count may be raised at once: to twice as many, and four more where that is more.
    fn raised_at_most(&self, from: u32) -> u32 {
        let most = from.saturating_mul(2).max(from.saturating_add(4));
        most.min(self.max)
    }

    /// How far it may be lowered at once: to half.
    fn lowered_at_least(&self, from: u32) -> u32 {
        (from / 2).max(self.min)
    }
}

/// Why a count may not be changed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Somebody has set it for a while.
    Held { until: ClusterTime },
    /// The last change was just now.
    Pause { until: ClusterTime },
    /// A rollout is under way: it does not lose replicas meanwhile.
    Rollout,
}

/// What of the state keeps a service from getting more replicas.
pub fn holds_raise(service: &Service, now: ClusterTime) -> Option<Holds> {
    let scaling = service.scaling.as_ref();
    if let Some(hold) = scaling.and_then(|scaling| scaling.held(now)) {
        return Some(Holds::Held { until: hold.until });
    }
    // From nothing to something nobody waits.
    let until = scaling.and_then(|scaling| scaling.changed)?.after(RAISE_PAUSE);
    (until > now && service.count_total() > 0).then_some(Holds::Pause { until })
}

/// What of the state keeps a service from losing replicas.
pub fn holds_lower(
    deployment: Option<&Deployment>,
    service: &Service,
    bounds: &Bounds,
    now: ClusterTime,
) -> Option<Holds> {
    let scaling = service.scaling.as_ref();
    if let Some(hold) = scaling.and_then(|scaling| scaling.held(now)) {
        return Some(Holds::Held { until: hold.until });
    }
    let is_open = deployment.is_some_and(|known| matches!(known.phase, Phase::Deploying | Phase::Reverting));
    if is_open || service.rolling || service.held || service.rollout.is_some() {
        return Some(Holds::Rollout);
    }
    let changed = scaling.and_then(|scaling| scaling.changed);
    // A first count, and one that a file has set, is given the same time.
    let until = changed
        .unwrap_or_default()
        .max(service.asked)
        .after(bounds.cooldown);
    (until > now).then_some(Holds::Pause { until })
}

/// What the load calls for, within the limits of a service.
pub fn called_for(service: &Service, load: &Load) -> Option<Called> {
    let spec = service.spec()?;
    let bounds = Bounds::of(spec)?;
    Some(called(spec, &bounds, service.count_total(), load))
}

/// Whether an entry that changes a count is what the figures in it come to, on this state: what `step` asks.
pub fn is_due(state: &State, service: &Service, resize: &Resize) -> bool {
    let now = state.time;
    let Some((spec, bounds)) = service
        .spec()
        .and_then(|spec| Bounds::of(spec).map(|bounds| (spec, bounds)))
    else {
        return false;
    };
    if service.is_off() || service.count_total() != resize.from {
        return false;
    }
    let called = called(spec, &bounds, resize.from, &resize.load);
    if resize.to > resize.from {
        let to = called.replicas.min(bounds.raised_at_most(resize.from));
        // A count below the limits is brought into them, whatever the figures say.
        resize.to == to.max(bounds.min) && holds_raise(service, now).is_none()
    } else if resize.to < resize.from {
        let to = resize.most.max(bounds.lowered_at_least(resize.from));
        let deployment = state.deployment(&service.key.deployment);
        resize.load.is_whole
            && called.replicas <= resize.most
            && resize.to == to
            && holds_lower(deployment.map(AsRef::as_ref), service, &bounds, now).is_none()
    } else {
        false
    }
}
