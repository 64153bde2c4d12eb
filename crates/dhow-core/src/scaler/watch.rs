//! What the leader remembers of the load of services: since when each has needed fewer replicas than it has, and how many
//! that were at most. A new leader remembers nothing, so that it waits for a whole cooldown before it takes any away.

use std::collections::BTreeMap;

use super::{Bounds, Load, LoadBook, Resize, called_for, holds_lower, holds_raise};
use crate::command::PlanCommand;
use crate::ids::{Generation, ServiceId};
use crate::state::{Service, State};
use crate::time::ClusterTime;

/// The leader's memory of services that could do with fewer replicas.
#[derive(Clone, Debug, Default)]
pub struct ScalerWatch {
    low: BTreeMap<ServiceId, Low>,
}

/// A time in which a service needed fewer replicas than it has.
#[derive(Clone, Copy, Debug)]
struct Low {
    since: ClusterTime,
    /// The most that was called for since.
    most: u32,
    /// What it was then: another count or version begins anew.
    count: u32,
    target: Generation,
}

impl ScalerWatch {
    /// Looks at every adaptive service, and says which counts should be others now.
    pub fn look(&mut self, state: &State, loads: &LoadBook, now: ClusterTime) -> Vec<PlanCommand> {
        self.low.retain(|id, _| loads.contains_key(id));
        let services = loads
            .iter()
            .filter_map(|(id, load)| Some((state.service(*id)?, load)));
        services
            .filter_map(|(service, load)| {
                let resize = self.look_at(state, service, load, now)?;
                Some(PlanCommand::Resize {
                    service: service.id,
                    generation: service.target,
                    resize,
                })
            })
            .collect()
    }

    fn look_at(&mut self, state: &State, service: &Service, load: &Load, now: ClusterTime) -> Option<Resize> {
        let bounds = Bounds::of(service.spec()?)?;
        let called = called_for(service, load)?;
        let from = service.count_total();
        if service.is_off() || called.replicas >= from || !load.is_whole {
            self.low.remove(&service.id);
        }
        if service.is_off() {
            return None;
        }
        if called.replicas > from {
            let to = called.replicas.min(bounds.raised_at_most(from)).max(bounds.min);
            return holds_raise(service, now).is_none().then_some(Resize {
                from,
                to,
                load: *load,
                most: called.replicas,
            });
        }
        if called.replicas == from || !load.is_whole {
            return None;
        }
        let low = self.low(service, called.replicas, now);
        let deployment = state.deployment(&service.key.deployment);
        let is_held = holds_lower(deployment.map(AsRef::as_ref), service, &bounds, now).is_some();
        if is_held || low.since.after(bounds.cooldown) > now {
            return None;
        }
        let to = low.most.max(bounds.lowered_at_least(from));
        (to < from).then_some(Resize {
            from,
            to,
            load: *load,
            most: low.most,
        })
    }

    /// Notes that fewer are called for than there are.
    fn low(&mut self, service: &Service, called: u32, now: ClusterTime) -> Low {
        let begun = Low {
            since: now,
            most: called,
            count: service.count_total(),
            target: service.target,
        };
        let low = self.low.entry(service.id).or_insert(begun);
        if (low.count, low.target) != (begun.count, begun.target) {
            *low = begun;
        }
        low.most = low.most.max(called);
        *low
    }
}
