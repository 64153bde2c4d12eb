//! What a node is to run, by revision. It is state, not a queue: a node that names the last revision it has
//! seen is told what changed since, or everything where that is too long ago, and nothing is ever lost.

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::ids::{Generation, Revision, ServiceId, ServiceKey, Slot};

/// One replica of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AssignedReplica {
    pub slot: Slot,
    pub generation: Generation,
}

/// What a node runs of one service. Empty means that the service has gone from the node: kept for a while,
/// so that a node that was away hears of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assigned {
    pub changed: Revision,
    pub replicas: OrdSet<AssignedReplica>,
    /// The service's name once it has gone from the node: by then the state may have forgotten it.
    pub gone: Option<ServiceKey>,
}

/// Which replicas one node is to run, with the revision of each change. [`crate::assignment`] makes the node's
/// assignment from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assignments {
    /// The last change of anything below.
    pub revision: Revision,
    /// Whoever has seen less than this is told everything.
    pub floor: Revision,
    #[serde(deserialize_with = "crate::maps::read")]
    services: OrdMap<ServiceId, Assigned>,
    /// How many of `services` are empty.
    gone: u32,
}

/// What a node is told.
#[derive(Clone, Debug, PartialEq)]
pub enum AssignmentChange<'a> {
    Set {
        service: ServiceId,
        assigned: &'a Assigned,
    },
    Delete {
        service: ServiceId,
        name: Option<&'a ServiceKey>,
        revision: Revision,
    },
}

impl AssignmentChange<'_> {
    pub fn revision(&self) -> Revision {
        match self {
            Self::Set { assigned, .. } => assigned.changed,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

impl Assignments {
    /// Services that left this node and are still remembered. A node that was away for more changes than
    /// this is told everything instead, which costs it one longer message.
    const GONE_MAX: u32 = 64;

    pub fn add(&mut self, service: ServiceId, replica: AssignedReplica, revision: Revision) {
        let assigned = self.services.entry(service).or_default();
        if assigned.replicas.is_empty() && assigned.changed != Revision::default() {
            self.gone = self.gone.saturating_sub(1);
        }
        assigned.replicas.insert(replica);
        assigned.gone = None;
        assigned.changed = revision;
        self.revision = revision;
    }

    /// Takes a replica away; `name` is what the node is told where it was the last of its service.
    pub fn remove(
        &mut self,
        service: ServiceId,
        name: Option<&ServiceKey>,
        replica: AssignedReplica,
        revision: Revision,
    ) {
        let Some(assigned) = self.services.get_mut(&service) else {
            return;
        };
        if assigned.replicas.remove(&replica).is_none() {
            return;
        }
        assigned.changed = revision;
        self.revision = revision;
        if assigned.replicas.is_empty() {
            assigned.gone = name.cloned();
            self.gone += 1;
        }
        if self.gone > Self::GONE_MAX {
            crate::maps::retain(&mut self.services, |_, assigned| !assigned.replicas.is_empty());
            self.gone = 0;
            self.floor = revision;
        }
    }

    /// Tells the node again about a service whose replicas stay but whose spec has changed. Whether it has any.
    pub fn touch(&mut self, service: ServiceId, revision: Revision) -> bool {
        let found = self.services.get_mut(&service);
        let Some(assigned) = found.filter(|assigned| !assigned.replicas.is_empty()) else {
            return false;
        };
        assigned.changed = revision;
        self.revision = revision;
        true
    }

    pub fn contains(&self, service: ServiceId, replica: &AssignedReplica) -> bool {
        self.services
            .get(&service)
            .is_some_and(|assigned| assigned.replicas.contains(replica))
    }

    /// The services with something to run here.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &Assigned)> {
        self.services
            .iter()
            .filter(|(_, assigned)| !assigned.replicas.is_empty())
            .map(|(service, assigned)| (*service, assigned))
    }

    pub fn is_empty(&self) -> bool {
        self.services().next().is_none()
    }

    /// Whether a node that has seen `last` must forget what it has and take everything anew.
    pub fn is_whole_needed(&self, last: Revision) -> bool {
        last < self.floor || last > self.revision
    }

    /// What happened after `last`, ascending by revision; everything where that is needed.
    pub fn since(&self, last: Revision) -> Vec<AssignmentChange<'_>> {
        let whole = self.is_whole_needed(last);
        let mut changes: Vec<_> = self
            .services
            .iter()
            .filter(|(_, assigned)| whole || assigned.changed > last)
            .map(|(service, assigned)| match assigned.replicas.is_empty() {
                true => AssignmentChange::Delete {
                    service: *service,
                    name: assigned.gone.as_ref(),
                    revision: assigned.changed,
                },
                false => AssignmentChange::Set {
                    service: *service,
                    assigned,
                },
            })
            .collect();
        changes.sort_by_key(AssignmentChange::revision);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RoleId;

    fn replica(index: u32) -> AssignedReplica {
        AssignedReplica {
            slot: Slot {
                role: RoleId(0),
                index,
            },
            generation: Generation(1),
        }
    }

    /// A node that follows changes from any revision ends with what a node that takes everything has.
    #[test]
    fn resuming_from_any_revision_gives_the_whole() {
        let mut assignments = Assignments::default();
        let mut snapshots = vec![(Revision(0), assignments.clone())];
        for n in 1..=400u64 {
            // Waves of arrivals and departures over 100 services: more leave than are remembered.
            let (service, wave) = (ServiceId((n % 100) as u32), n / 100);
            match wave % 2 {
                0 => assignments.add(service, replica((n % 7) as u32), Revision(n)),
                _ => assignments.remove(service, None, replica(((n - 100) % 7) as u32), Revision(n)),
            }
            snapshots.push((Revision(n), assignments.clone()));
        }
        let follow = |from: &Assignments, seen: Revision| {
            let mut have: std::collections::BTreeMap<_, _> = if assignments.is_whole_needed(seen) {
                Default::default()
            } else {
                from.services()
                    .map(|(service, assigned)| (service, assigned.replicas.clone()))
                    .collect()
            };
            let mut last = Revision(0);
            for change in assignments.since(seen) {
                assert!(change.revision() >= last);
                last = change.revision();
                match change {
                    AssignmentChange::Set { service, assigned } => {
                        have.insert(service, assigned.replicas.clone());
                    }
                    AssignmentChange::Delete { service, .. } => {
                        have.remove(&service);
                    }
                }
            }
            have
        };
        let whole: std::collections::BTreeMap<_, _> = assignments
            .services()
            .map(|(service, assigned)| (service, assigned.replicas.clone()))
            .collect();
        assert!(
            assignments.floor > Revision(0),
            "the test must reach the trimming"
        );
        for (seen, from) in &snapshots {
            assert_eq!(follow(from, *seen), whole, "from {seen}");
        }
        assert_eq!(
            follow(&Assignments::default(), Revision(u64::MAX)),
            whole,
            "a node from another life"
        );
    }
}
