//! Which services beside those of its own deployments a node is told of, and who has asked for what.
//!
//! A server keeps an [`InterestBook`] of the nodes whose sessions it has: a change wakes those whom it concerns by what
//! they run, and those who have asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Concerned;
use crate::ids::{DeploymentName, NodeId, ServiceKey, ServiceName};

/// Services of other deployments that a node may ask for at a time, those that do not exist included: replicas call a
/// handful, and a node of 100 replicas that call different ones still has room.
pub const INTERESTS_MAX: usize = 512;

/// What a node wants to be told beside the services of its own deployments and those that name one of its services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Everything that it may call: it reads its own state, or is of a version that does not ask.
    All,
    /// What somebody on it has asked for.
    In(BTreeSet<ServiceKey>),
}

impl Default for Interest {
    fn default() -> Self {
        Self::In(BTreeSet::new())
    }
}

/// What of a node's interest there is not, or not for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absent {
    /// Their deployments exist.
    pub services: BTreeSet<ServiceKey>,
    /// There is no deployment of this name, so no service of it.
    pub deployments: BTreeSet<DeploymentName>,
}

impl Absent {
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.deployments.is_empty()
    }

    /// Whether this service is known not to be there.
    pub fn has(&self, key: &ServiceKey) -> bool {
        self.services.contains(key) || self.deployments.contains(&key.deployment)
    }
}

/// Which of a node's words about its interest one is: words may overtake each other, and come after their session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordOfInterest {
    /// What the node has chosen for the session.
    pub opening: u64,
    /// 0 is said with the opening.
    pub number: u64,
}

/// One node's session, and what it wants.
#[derive(Debug)]
struct Asking {
    session: u64,
    word: WordOfInterest,
    interest: Arc<Interest>,
}

/// The interests of the nodes that have a session with this server.
#[derive(Debug, Default)]
pub struct InterestBook {
    nodes: BTreeMap<NodeId, Asking>,
    by_service: BTreeMap<DeploymentName, BTreeMap<ServiceName, BTreeSet<NodeId>>>,
    /// Those who want everything.
    all: BTreeSet<NodeId>,
}

impl InterestBook {
    /// A session begins; a later one of the same node takes its place.
    pub fn begin(&mut self, node: NodeId, session: u64, opening: u64, interest: Interest) {
        if self
            .nodes
            .get(&node)
            .is_some_and(|asking| asking.session > session)
        {
            return;
        }
        self.forget(node);
        let word = WordOfInterest { opening, number: 0 };
        self.note(node, (session, word), interest);
    }

    /// A node with a session wants something else from now on; false where it does not have this one. What was said later
    /// counts, whatever comes first.
    pub fn set(&mut self, node: NodeId, word: WordOfInterest, interest: Interest) -> bool {
        let asking = self.nodes.get(&node);
        let Some(asking) = asking.filter(|asking| asking.word.opening == word.opening) else {
            return false;
        };
        if asking.word.number < word.number {
            let session = asking.session;
            self.forget(node);
            self.note(node, (session, word), interest);
        }
        true
    }

    /// A session is over, unless another one has taken its place.
    pub fn end(&mut self, node: NodeId, session: u64) {
        if self
            .nodes
            .get(&node)
            .is_some_and(|asking| asking.session == session)
        {
            self.forget(node);
        }
    }

    /// What a node wants; one without a session wants nothing.
    pub fn of(&self, node: NodeId) -> Arc<Interest> {
        let asking = self.nodes.get(&node);
        asking
            .map(|asking| Arc::clone(&asking.interest))
            .unwrap_or_default()
    }

    /// Adds those who have asked for what a change is about.
    pub fn add_to(&self, concerned: &mut Concerned) {
        if concerned.is_open {
            concerned.nodes.extend(&self.all);
        }
        for key in &concerned.services {
            let services = self.by_service.get(&key.deployment);
            let nodes = services.and_then(|services| services.get(&key.service));
            concerned.nodes.extend(nodes.into_iter().flatten());
        }
        for deployment in &concerned.deployments {
            let services = self.by_service.get(deployment).into_iter();
            let nodes = services.flat_map(BTreeMap::values).flatten();
            concerned.nodes.extend(nodes);
        }
    }

    fn note(&mut self, node: NodeId, (session, word): (u64, WordOfInterest), interest: Interest) {
        match &interest {
            Interest::All => {
                self.all.insert(node);
            }
            Interest::In(keys) => {
                for key in keys {
                    let services = self.by_service.entry(key.deployment.clone()).or_default();
                    services.entry(key.service.clone()).or_default().insert(node);
                }
            }
        }
        let asking = Asking {
            session,
            word,
            interest: Arc::new(interest),
        };
        self.nodes.insert(node, asking);
    }

    fn forget(&mut self, node: NodeId) {
        let Some(asking) = self.nodes.remove(&node) else {
            return;
        };
        let Interest::In(keys) = &*asking.interest else {
            self.all.remove(&node);
            return;
        };
        for key in keys {
            let Some(services) = self.by_service.get_mut(&key.deployment) else {
                continue;
            };
            if let Some(nodes) = services.get_mut(&key.service) {
                nodes.remove(&node);
                if nodes.is_empty() {
                    services.remove(&key.service);
                }
            }
            if services.is_empty() {
                self.by_service.remove(&key.deployment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(deployment: &str, service: &str) -> ServiceKey {
        ServiceKey {
            deployment: DeploymentName::new(deployment).unwrap(),
            service: ServiceName::new(service).unwrap(),
        }
    }

    fn word(opening: u64, number: u64) -> WordOfInterest {
        WordOfInterest { opening, number }
    }

    fn wants(keys: &[(&str, &str)]) -> Interest {
        Interest::In(keys.iter().map(|(one, other)| key(one, other)).collect())
    }

    fn woken(book: &InterestBook, services: &[(&str, &str)], is_open: bool) -> Vec<u64> {
        let mut concerned = Concerned {
            services: services.iter().map(|(one, other)| key(one, other)).collect(),
            is_open,
            ..Concerned::default()
        };
        book.add_to(&mut concerned);
        concerned.nodes.iter().map(|node| node.0).collect()
    }

    #[test]
    fn only_those_hear_who_have_asked() {
        let mut book = InterestBook::default();
        book.begin(NodeId(1), 1, 7, wants(&[("shop", "db"), ("shop", "web")]));
        book.begin(NodeId(2), 2, 7, wants(&[("shop", "db")]));
        book.begin(NodeId(3), 3, 7, Interest::All);
        book.begin(NodeId(4), 4, 7, Interest::default());
        assert_eq!(woken(&book, &[("shop", "db")], false), [1, 2]);
        assert_eq!(woken(&book, &[("shop", "web")], true), [1, 3]);
        assert_eq!(woken(&book, &[("blog", "web")], false), [0; 0]);
        assert!(book.set(NodeId(1), word(7, 1), wants(&[("blog", "web")])));
        assert!(
            !book.set(NodeId(9), word(7, 1), wants(&[("blog", "web")])),
            "it has no session"
        );
        assert_eq!(woken(&book, &[("shop", "web")], false), [0; 0]);
        assert_eq!(woken(&book, &[("blog", "web")], false), [1]);
        let mut concerned = Concerned {
            deployments: [DeploymentName::new("blog").unwrap()].into(),
            ..Concerned::default()
        };
        book.add_to(&mut concerned);
        assert_eq!(concerned.nodes, [NodeId(1)].into());
    }

    #[test]
    fn a_word_that_comes_late_changes_nothing() {
        let mut book = InterestBook::default();
        book.begin(NodeId(1), 1, 7, Interest::default());
        assert!(book.set(NodeId(1), word(7, 2), wants(&[("shop", "db")])));
        assert!(book.set(NodeId(1), word(7, 1), Interest::default()), "overtaken");
        assert!(book.set(NodeId(1), word(7, 2), Interest::default()), "repeated");
        assert_eq!(*book.of(NodeId(1)), wants(&[("shop", "db")]));
        book.begin(NodeId(1), 2, 8, wants(&[("shop", "db")]));
        let of_the_session_before = book.set(NodeId(1), word(7, 3), Interest::default());
        assert!(!of_the_session_before);
        assert_eq!(*book.of(NodeId(1)), wants(&[("shop", "db")]));
    }

    #[test]
    fn a_session_that_is_over_leaves_what_the_next_one_wants() {
        let mut book = InterestBook::default();
        book.begin(NodeId(1), 1, 7, wants(&[("shop", "db")]));
        book.begin(NodeId(1), 2, 8, wants(&[("shop", "web")]));
        book.end(NodeId(1), 1);
        assert_eq!(woken(&book, &[("shop", "db"), ("shop", "web")], false), [1]);
        assert_eq!(*book.of(NodeId(1)), wants(&[("shop", "web")]));
        book.end(NodeId(1), 2);
        assert_eq!(*book.of(NodeId(1)), Interest::default());
        assert!(book.by_service.is_empty() && book.nodes.is_empty());
    }
}
