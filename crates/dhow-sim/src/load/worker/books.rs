//! What a worker has and has told: its replicas, and the events that the control plane has not acknowledged. The
//! agent's ledger without a disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dhow_core::assignment::{Assignment, replicas};
use dhow_core::ids::{ReplicaName, Revision, ServiceKey, Term};
use dhow_core::mirror::{ReportBody, digest_of};
use dhow_core::replica::{Exit, Machine, ReplicaEvent, RestartRule, step};
use tokio::time::Instant;

use super::told::hash_of_name;
use crate::load::squad::hash_of;

/// As the agent has it.
const REPORT_EVENTS_MAX: usize = 1_024;
/// Every made-up process has the same number.
const PID: u32 = 4_242;

/// An event that the control plane has not acknowledged as durable.
#[derive(Debug)]
struct UnsettledEvent {
    name: ReplicaName,
    event: ReplicaEvent,
    at: Instant,
}

/// What the control plane is told next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Hello,
    Events,
    Inventory,
}

/// The replicas of a worker, the events that the control plane has not acknowledged, and what the worker has to report
/// next.
#[derive(Debug)]
pub struct Books {
    pub incarnation: u64,
    /// What the worker was last assigned.
    pub revision: Option<Revision>,
    /// The highest that it has acted on.
    pub highest: Option<(Term, Revision)>,
    /// The cluster whose terms those are.
    pub cluster: String,
    seq: u64,
    durable_seq: u64,
    /// Those after the durable one.
    pending: VecDeque<UnsettledEvent>,
    replicas: BTreeMap<ReplicaName, Machine>,
    next: Next,
}

/// What an acknowledgement has settled.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub running: u32,
    /// When the replicas that run now were assigned.
    pub since: Vec<Instant>,
}

impl Books {
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            revision: None,
            highest: None,
            cluster: String::new(),
            seq: 0,
            durable_seq: 0,
            pending: VecDeque::new(),
            replicas: BTreeMap::new(),
            next: Next::Hello,
        }
    }

    /// A new session: it asks how far the control plane is.
    pub fn begin(&mut self, cluster: String) {
        self.next = Next::Hello;
        self.cluster = cluster;
    }

    /// Notes what it is about to act on; false where that is below what it has acted on. An older server's
    /// assignments are of the term of its session.
    pub fn is_newest(&mut self, assignment: &Assignment, term: Term) -> bool {
        let told = Some((assignment.term.unwrap_or(term), assignment.revision));
        let is_newest = told >= self.highest;
        if is_newest {
            self.highest = told;
        }
        is_newest
    }

    /// A hash of the name of each replica that is here.
    pub fn held(&self) -> Vec<u64> {
        self.replicas.keys().map(hash_of).collect()
    }

    /// Does what it is told, at once. Gives how many replicas were started and stopped.
    pub fn take(&mut self, assignment: &Assignment) -> (u32, u32) {
        let (mut started, mut stopped) = (0, 0);
        for (service, roles) in &assignment.services {
            let wanted = replicas(service, roles).map(|(name, alike)| (name, RestartRule::of(&alike.spec)));
            let wanted = wanted.collect();
            stopped += self.stop_others(service, &wanted);
            for (name, rule) in wanted {
                started += u32::from(self.start(name, &rule));
            }
        }
        if assignment.whole {
            let others: BTreeSet<ServiceKey> = self.replicas.keys().map(ReplicaName::service_key).collect();
            for service in others
                .iter()
                .filter(|other| !assignment.services.contains_key(other))
            {
                stopped += self.stop_others(service, &BTreeMap::new());
            }
        }
        self.revision = Some(assignment.revision);
        (started, stopped)
    }

    fn start(&mut self, name: ReplicaName, rule: &RestartRule) -> bool {
        let is_new = !self.replicas.contains_key(&name);
        if is_new {
            for event in [
                ReplicaEvent::StartBegan,
                ReplicaEvent::Started { pid: PID },
                ReplicaEvent::BecameHealthy,
            ] {
                self.happen(&name, event, rule);
            }
        }
        is_new
    }

    /// Changes one of its replicas: one that is not healthy becomes so, else another one ceases to be, unless all are to get
    /// well. Gives which one, by a hash of its name, and whether it is ready now.
    pub fn change(&mut self, may_fall_ill: bool) -> Option<(u64, bool)> {
        let is_well = |machine: &Machine| machine.healthy;
        let ill = self.replicas.iter().find(|(_, machine)| !is_well(machine));
        let (name, is_ready) = match ill {
            Some((name, _)) => (name.clone(), true),
            None if may_fall_ill => {
                let nth = rand::random_range(0..self.replicas.len().max(1));
                (self.replicas.keys().nth(nth)?.clone(), false)
            }
            None => return None,
        };
        let message = "made up".into();
        let event = match is_ready {
            true => ReplicaEvent::BecameHealthy,
            false => ReplicaEvent::BecameUnhealthy { message },
        };
        self.happen(&name, event, &RestartRule::default());
        Some((hash_of_name(&name), is_ready))
    }

    fn stop_others(&mut self, service: &ServiceKey, wanted: &BTreeMap<ReplicaName, RestartRule>) -> u32 {
        let gone: Vec<ReplicaName> = self
            .replicas
            .keys()
            .filter(|name| name.service_key() == *service && !wanted.contains_key(name))
            .cloned()
            .collect();
        for name in &gone {
            let rule = RestartRule::default();
            let exit = Exit::Code(0);
            self.happen(name, ReplicaEvent::StopBegan, &rule);
            self.happen(name, ReplicaEvent::Ended { exit, oom: false }, &rule);
            self.replicas.remove(name);
        }
        u32::try_from(gone.len()).unwrap_or(u32::MAX)
    }

    fn happen(&mut self, name: &ReplicaName, event: ReplicaEvent, rule: &RestartRule) {
        let machine = self.replicas.entry(name.clone()).or_default();
        // What is not legal is reported all the same: the control plane says so then.
        let _ = step(machine, &event, rule);
        self.seq += 1;
        self.pending.push_back(UnsettledEvent {
            name: name.clone(),
            event,
            at: Instant::now(),
        });
    }

    /// The next report, where there is something to tell. It is told again until it is acknowledged.
    pub fn report(&self) -> Option<ReportBody> {
        match self.next {
            Next::Hello => {}
            Next::Events if self.pending.is_empty() => return None,
            Next::Events => {}
            Next::Inventory => {
                let all = self.replicas.iter();
                return Some(ReportBody::Inventory {
                    seq: self.seq,
                    replicas: all
                        .map(|(name, machine)| (name.clone(), machine.clone()))
                        .collect(),
                });
            }
        }
        let events = self.pending.iter().take(REPORT_EVENTS_MAX);
        Some(ReportBody::Events {
            first_seq: self.durable_seq + 1,
            events: events
                .map(|told| (told.name.clone(), told.event.clone()))
                .collect(),
        })
    }

    /// Whether changes wait that nobody asked for.
    pub fn is_only_news(&self) -> bool {
        self.next == Next::Events && self.pending.len() < REPORT_EVENTS_MAX
    }

    /// Everything up to here is durable.
    pub fn settle(&mut self, seq: u64, inventory_wanted: bool) -> Settled {
        let mut settled = Settled::default();
        while self.durable_seq < seq
            && let Some(told) = self.pending.pop_front()
        {
            self.durable_seq += 1;
            if matches!(told.event, ReplicaEvent::Started { .. }) {
                settled.since.push(told.at);
            }
        }
        self.durable_seq = seq;
        self.next = match inventory_wanted {
            true => Next::Inventory,
            false => Next::Events,
        };
        settled.running = self.running();
        settled
    }

    /// The control plane wants to hear everything.
    pub fn want_inventory(&mut self) {
        self.next = Next::Inventory;
    }

    /// The control plane has everything up to here; whoever misses what is gone from the books gets an inventory.
    pub fn replay_from(&mut self, seq: u64) {
        if seq < self.durable_seq {
            self.next = Next::Inventory;
        } else {
            self.settle(seq, false);
        }
    }

    /// Replicas whose start is durable: all those without events that wait.
    fn running(&self) -> u32 {
        let waiting: BTreeSet<&ReplicaName> = self.pending.iter().map(|told| &told.name).collect();
        let settled = self.replicas.keys().filter(|name| !waiting.contains(name));
        u32::try_from(settled.count()).unwrap_or(u32::MAX)
    }

    /// What a heartbeat says, where nothing is on its way.
    pub fn digest(&self) -> Option<String> {
        if !self.pending.is_empty() || self.next != Next::Events {
            return None;
        }
        let all = self.replicas.iter();
        Some(digest_of(all.map(|(name, machine)| (name.clone(), machine))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use dhow_core::assignment::RoleAssignment;
    use dhow_core::ids::{DeploymentName, Generation, RoleName, ServiceName};
    use dhow_core::replica::ReplicaState;
    use dhow_core::spec::ServiceSpec;

    fn set(service: &str, indices: std::ops::Range<u32>) -> (ServiceKey, Vec<RoleAssignment>) {
        let service = ServiceKey {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new(service).unwrap(),
        };
        let alike = RoleAssignment {
            role: RoleName::fallback(),
            generation: Generation(1),
            indices: indices.collect(),
            spec: Arc::new(ServiceSpec::default()),
            next: None,
        };
        (service, vec![alike])
    }

    fn told(books: &Books) -> (u64, usize) {
        match books.report() {
            Some(ReportBody::Events { first_seq, events }) => (first_seq, events.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_assigned_runs_and_is_told_until_it_is_durable() {
        let mut books = Books::new(7);
        assert_eq!(told(&books), (1, 0), "it asks first");
        books.settle(0, false);
        assert_eq!(books.report(), None);
        let told_to = |revision, whole, changes: Vec<_>| Assignment {
            whole,
            services: changes.into_iter().collect(),
            ..Assignment::nothing(Revision(revision))
        };
        assert_eq!(books.take(&told_to(3, true, vec![set("a", 0..2)])), (2, 0));
        assert!(
            books
                .replicas
                .values()
                .all(|machine| machine.state == ReplicaState::Running)
        );
        assert_eq!((told(&books), books.digest()), ((1, 6), None));
        let settled = books.settle(3, false);
        assert_eq!((settled.running, settled.since.len()), (1, 1));
        assert_eq!(told(&books), (4, 3));
        assert_eq!(books.settle(6, false).running, 2);
        assert!(books.digest().is_some());
        assert_eq!(
            books.take(&told_to(4, false, vec![set("a", 1..2), set("b", 0..1)])),
            (1, 1)
        );
        assert_eq!(books.take(&told_to(5, true, vec![set("b", 0..1)])), (0, 1));
        assert_eq!(books.settle(13, false).running, 1);
        books.replay_from(2);
        assert!(matches!(
            books.report(),
            Some(ReportBody::Inventory { seq: 13, .. })
        ));
    }

    #[test]
    fn what_is_below_the_highest_is_known() {
        let mut books = Books::new(7);
        let told = |term: Option<u64>, revision| Assignment {
            term: term.map(Term),
            ..Assignment::nothing(Revision(revision))
        };
        assert!(books.is_newest(&told(Some(2), 10), Term(2)));
        assert!(books.is_newest(&told(Some(2), 10), Term(2)), "the same again");
        assert!(!books.is_newest(&told(Some(2), 9), Term(2)));
        assert!(!books.is_newest(&told(None, 11), Term(1)));
        assert!(books.is_newest(&told(Some(3), 4), Term(2)));
        assert_eq!(books.highest, Some((Term(3), Revision(4))));
    }
}
