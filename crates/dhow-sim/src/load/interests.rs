//! Who uses what in a run about interest: groups of workers that run the services of one deployment each, and want one more
//! of another group's.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Workers that run the services of one deployment.
pub const GROUP_WORKERS: usize = 40;
/// Services of one deployment. With the one that it wants beside them a worker uses five.
pub const GROUP_SERVICES: usize = 4;

/// The groups of a run; workers beyond them run nothing and want nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interests {
    pub groups: usize,
    pub services: usize,
}

impl Interests {
    /// Of so many workers one in 250, and who is left over, belongs to no group.
    pub fn of(workers: usize) -> Self {
        let idle = (workers / 250).max(1);
        Self {
            groups: workers.saturating_sub(idle) / GROUP_WORKERS,
            services: GROUP_SERVICES,
        }
    }

    pub fn deployment(group: usize) -> String {
        format!("group-{group}")
    }

    pub fn service(service: usize) -> String {
        format!("service-{service}")
    }

    pub fn group_of(&self, place: usize) -> Option<usize> {
        Some(place / GROUP_WORKERS).filter(|group| *group < self.groups)
    }

    /// The service of another deployment that a worker wants.
    pub fn wanted_by(&self, place: usize) -> Option<(String, String)> {
        let group = self.group_of(place).filter(|_| self.groups > 1)?;
        // Each service is wanted by workers of several other groups.
        let other = (group + 1 + place % (self.groups - 1)) % self.groups;
        let service = place / 7 % self.services.max(1);
        Some((Self::deployment(other), Self::service(service)))
    }

    /// Whether a worker uses a service.
    pub fn is_invited(&self, place: usize, deployment: &str, service: &str) -> bool {
        let is_own = self
            .group_of(place)
            .is_some_and(|group| Self::deployment(group) == deployment);
        let wanted = self.wanted_by(place);
        is_own || wanted.is_some_and(|wanted| (wanted.0.as_str(), wanted.1.as_str()) == (deployment, service))
    }
}

/// What was counted of what workers were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldCounts {
    /// Changes of replicas.
    pub changes: u64,
    /// Messages with changes, and the changes in them.
    pub messages: u64,
    pub heard: u64,
    pub to_idle: u64,
    pub uninvited: u64,
}

impl ToldCounts {
    pub fn and(self, other: Self) -> Self {
        Self {
            changes: self.changes + other.changes,
            messages: self.messages + other.messages,
            heard: self.heard + other.heard,
            to_idle: self.to_idle + other.to_idle,
            uninvited: self.uninvited + other.uninvited,
        }
    }
}

/// What workers know of services: of each one how many replicas are ready, and a sum of their names, once for all who know
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Views {
    pub services: BTreeMap<String, BTreeSet<(u64, u64)>>,
    /// Services that each worker knows, summed up.
    pub known: u64,
}

impl Views {
    pub fn and(mut self, other: Self) -> Self {
        for (service, seen) in other.services {
            self.services.entry(service).or_default().extend(seen);
        }
        self.known += other.known;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_of_a_group_uses_five_services() {
        let interests = Interests::of(10_040);
        assert_eq!(
            (interests.groups, interests.groups * interests.services),
            (250, 1_000)
        );
        for place in 0..10_000 {
            let (deployment, service) = interests.wanted_by(place).unwrap();
            assert_ne!(deployment, Interests::deployment(place / GROUP_WORKERS));
            assert!(interests.is_invited(place, &deployment, &service));
            assert!(interests.is_invited(place, &Interests::deployment(place / GROUP_WORKERS), "service-0"));
        }
        assert_eq!(
            (interests.group_of(10_000), interests.wanted_by(10_000)),
            (None, None)
        );
    }
}
