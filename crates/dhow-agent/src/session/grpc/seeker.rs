//! Which server is tried next, and when: where the last one sent the node, else the leader that it knows, else one
//! after the other.

use std::sync::Arc;

use dhow_wire::grpc::LeaderHint;

use super::backoff::Backoff;
use super::routes::{Endpoint, Routes};
use crate::limits::HINTS_MAX;

/// As if all had failed this often: the pause is the longest.
const ROUNDS_AT_REST: u32 = 16;

/// The search for a server: where the next attempt goes and how long it waits. A link and an errand have one each.
pub(super) struct Seeker {
    routes: Arc<dyn Routes>,
    backoff: Backoff,
    /// The next server of the round.
    turn: usize,
    /// None before the first attempt, which waits for nothing.
    failures: Option<u32>,
    /// Attempts of this search.
    attempts: u32,
    hint: Option<LeaderHint>,
    hints_followed: u32,
}

impl Seeker {
    pub fn new(routes: Arc<dyn Routes>, backoff: Backoff) -> Self {
        Self {
            routes,
            backoff,
            // Not all nodes begin with the same server.
            turn: rand::random::<u16>().into(),
            failures: None,
            attempts: 0,
            hint: None,
            hints_followed: 0,
        }
    }

    /// Waits for its time, and gives the server to try.
    pub async fn next(&mut self) -> Endpoint {
        loop {
            if let Some(endpoint) = self.sent() {
                return endpoint;
            }
            if let Some(failures) = self.failures {
                // The pause grows once all have been tried: where one server is gone, the next one is there.
                let rounds = failures / self.servers();
                let pause = self.backoff.pause(rounds, rand::random::<f64>());
                tokio::time::sleep(pause).await;
            }
            self.failures = Some(self.failures.map_or(0, |failures| failures.saturating_add(1)));
            if let Some(endpoint) = self.in_turn() {
                return endpoint;
            }
        }
    }

    /// The last attempt was good: what comes next is a new search.
    pub fn succeeded(&mut self) {
        self.failures = Some(0);
        self.attempts = 0;
        self.hints_followed = 0;
    }

    /// The last server sent the node elsewhere: it goes there at once, unless it is sent round and round.
    pub fn sent_to(&mut self, leader: LeaderHint) {
        if self.hints_followed < HINTS_MAX {
            self.hints_followed += 1;
            self.hint = Some(leader);
        } else {
            self.hints_followed = 0;
        }
    }

    /// The next attempt waits as long as any does.
    pub fn rest(&mut self) {
        self.failures = Some(self.servers().saturating_mul(ROUNDS_AT_REST));
    }

    fn servers(&self) -> u32 {
        u32::try_from(self.routes.all().len()).unwrap_or(u32::MAX).max(1)
    }

    fn sent(&mut self) -> Option<Endpoint> {
        let hint = self.hint.take()?;
        let told = hint.address.map(|address| Endpoint {
            node: Some(hint.node),
            address,
        });
        told.or_else(|| {
            self.routes
                .all()
                .into_iter()
                .find(|endpoint| endpoint.node == Some(hint.node))
        })
    }

    /// A leader that does not answer is not asked every time.
    fn in_turn(&mut self) -> Option<Endpoint> {
        let is_even = self.attempts.is_multiple_of(2);
        self.attempts = self.attempts.wrapping_add(1);
        if is_even && let Some(leader) = self.routes.leader() {
            return Some(leader);
        }
        let all = self.routes.all();
        self.turn = self.turn.wrapping_add(1);
        all.get(self.turn % all.len().max(1)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::ids::NodeId;

    struct Known {
        leader: Option<Endpoint>,
        all: Vec<Endpoint>,
    }

    impl Routes for Known {
        fn leader(&self) -> Option<Endpoint> {
            self.leader.clone()
        }

        fn all(&self) -> Vec<Endpoint> {
            self.all.clone()
        }
    }

    fn endpoint(node: u64) -> Endpoint {
        Endpoint {
            node: Some(NodeId(node)),
            address: format!("server-{node}"),
        }
    }

    fn seeker(leader: Option<u64>) -> Seeker {
        let routes = Known {
            leader: leader.map(endpoint),
            all: (1..4).map(endpoint).collect(),
        };
        Seeker::new(Arc::new(routes), Backoff::default())
    }

    fn hint(node: u64, address: Option<&str>) -> LeaderHint {
        LeaderHint {
            node: NodeId(node),
            address: address.map(str::to_owned),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_tried_in_turn() {
        let mut seeker = seeker(None);
        let mut tried = Vec::new();
        for _ in 0..6 {
            tried.push(seeker.next().await.address);
        }
        assert_eq!(tried[..3], tried[3..]);
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_grows_once_all_have_been_tried() {
        let mut seeker = seeker(None);
        let first = Backoff::default().first;
        seeker.next().await;
        for _ in 0..3 {
            let began = tokio::time::Instant::now();
            seeker.next().await;
            // Timers are exact to a millisecond.
            assert!(began.elapsed() <= first + std::time::Duration::from_millis(1));
        }
        seeker.rest();
        assert_eq!(seeker.failures, Some(3 * ROUNDS_AT_REST));
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_leader_comes_first_and_not_always() {
        let mut seeker = seeker(Some(9));
        assert_eq!(seeker.next().await, endpoint(9));
        assert_ne!(seeker.next().await, endpoint(9));
        assert_eq!(seeker.next().await, endpoint(9));
        seeker.succeeded();
        assert_eq!(seeker.next().await, endpoint(9), "a new search begins with it");
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_where_it_is_sent_and_not_for_ever() {
        let mut seeker = seeker(None);
        seeker.sent_to(hint(2, None));
        assert_eq!(seeker.next().await, endpoint(2));
        seeker.sent_to(hint(2, Some("elsewhere")));
        assert_eq!(seeker.next().await.address, "elsewhere");
        seeker.sent_to(hint(3, None));
        assert_eq!(seeker.next().await, endpoint(3));
        let began = tokio::time::Instant::now();
        seeker.next().await;
        seeker.sent_to(hint(7, Some("never")));
        assert_ne!(seeker.next().await.address, "never", "it was sent too often");
        assert!(began.elapsed() <= Backoff::default().longest);
    }
}
