//! Which server is tried next, and when: where the last one sent the node, else one after the other, the best first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::grpc::LeaderHint;
use dhow_wire::grpc::proto::{Move, Opened};

use super::backoff::Backoff;
use super::routes::{Endpoint, Routes};
use super::servers::Servers;
use crate::limits::HINTS_MAX;

/// As if all had failed this often: the pause is the longest.
const ROUNDS_AT_REST: u32 = 16;

/// The search for a server: where the next attempt goes and how long it waits. A link and an errand have one each, and so
/// has a node of the simulator.
pub struct Seeker {
    servers: Servers,
    backoff: Backoff,
    /// Who has still to be tried in this round.
    round: VecDeque<Endpoint>,
    /// Where the last session was.
    left: Option<String>,
    /// None before the first attempt, which waits for nothing.
    failures: Option<u32>,
    hint: Option<LeaderHint>,
    /// Where the attempt that has begun was sent.
    sent: Option<Endpoint>,
    hints_followed: u32,
}

impl Seeker {
    /// One for a node with this id, or with any number where it has none yet: nodes do not all begin with the same server.
    pub fn new(routes: Arc<dyn Routes>, backoff: Backoff, key: u64) -> Self {
        Self {
            servers: Servers::new(routes, key),
            backoff,
            round: VecDeque::new(),
            left: None,
            failures: None,
            hint: None,
            sent: None,
            hints_followed: 0,
        }
    }

    /// Waits for its time, and gives the server to try.
    pub async fn next(&mut self) -> Endpoint {
        loop {
            let pause = self.begin(rand::random::<f64>());
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            if let Some(endpoint) = self.pick() {
                return endpoint;
            }
        }
    }

    /// Begins an attempt: how long it waits before it picks its server. `random` is below one.
    pub fn begin(&mut self, random: f64) -> Duration {
        self.sent = self.sent.take().or_else(|| self.sent());
        if self.sent.is_some() {
            return Duration::ZERO;
        }
        // The pause grows once all have been tried: where one server is gone, the next one is there.
        let rounds = self.failures.map(|failures| failures / self.count());
        self.failures = Some(self.failures.map_or(0, |failures| failures.saturating_add(1)));
        rounds.map_or(Duration::ZERO, |rounds| self.backoff.pause(rounds, random))
    }

    /// The server to try; none where nobody is known at the moment.
    pub fn pick(&mut self) -> Option<Endpoint> {
        self.sent.take().or_else(|| self.in_turn())
    }

    /// A session with this server has ended: what comes next is a new search, with the other servers first.
    pub fn succeeded(&mut self, endpoint: &Endpoint) {
        self.failures = Some(0);
        self.hints_followed = 0;
        self.round.clear();
        self.left = Some(endpoint.address.clone());
    }

    /// This server did not answer.
    pub fn failed(&mut self, endpoint: &Endpoint) {
        self.servers.failed(&endpoint.address);
    }

    /// Learns from what a server says when it opens a session.
    pub fn met(&mut self, endpoint: &Endpoint, opened: &Opened) {
        let server = Some(NodeId(opened.server_id)).filter(|server| server.0 > 0);
        let told = opened.servers.iter().map(|told| Endpoint {
            node: Some(NodeId(told.server_id)),
            address: told.address.clone(),
        });
        self.servers.met(&endpoint.address, server, told.collect());
    }

    /// Where to go for a server to which the node is to move: where it was told, and where it was given that server.
    pub fn ways_to(&self, to: &Move) -> Vec<Endpoint> {
        let node = NodeId(to.server_id);
        let told = Endpoint {
            node: Some(node),
            address: to.address.clone(),
        };
        let given = self
            .servers
            .at(node)
            .filter(|given| given.address != told.address);
        let ways = [Some(told).filter(|told| !told.address.is_empty()), given];
        ways.into_iter().flatten().collect()
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
        self.failures = Some(self.count().saturating_mul(ROUNDS_AT_REST));
    }

    fn count(&self) -> u32 {
        u32::try_from(self.servers.all().len()).unwrap_or(u32::MAX).max(1)
    }

    fn sent(&mut self) -> Option<Endpoint> {
        let hint = self.hint.take()?;
        let told = hint.address.map(|address| Endpoint {
            node: Some(hint.node),
            address,
        });
        told.or_else(|| self.servers.at(hint.node))
    }

    fn in_turn(&mut self) -> Option<Endpoint> {
        if self.round.is_empty() {
            self.round = self.servers.ranked(self.left.as_deref()).into();
        }
        self.round.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::FixedRoutes;
    use super::*;

    fn endpoint(node: u64) -> Endpoint {
        Endpoint {
            node: Some(NodeId(node)),
            address: format!("server-{node}"),
        }
    }

    fn seeker() -> Seeker {
        let routes = FixedRoutes((1..4).map(endpoint).collect());
        Seeker::new(Arc::new(routes), Backoff::default(), 100)
    }

    fn hint(node: u64, address: Option<&str>) -> LeaderHint {
        LeaderHint {
            node: NodeId(node),
            address: address.map(str::to_owned),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_tried_in_turn() {
        let mut seeker = seeker();
        let mut tried = Vec::new();
        for _ in 0..6 {
            let endpoint = seeker.next().await;
            seeker.failed(&endpoint);
            tried.push(endpoint.address);
        }
        assert_eq!(tried[..3], tried[3..]);
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_grows_once_all_have_been_tried() {
        let mut seeker = seeker();
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
    async fn a_server_whose_session_ended_is_tried_after_the_others() {
        let mut seeker = seeker();
        let best = seeker.next().await;
        seeker.succeeded(&best);
        let others = [seeker.next().await, seeker.next().await];
        assert!(!others.contains(&best));
        assert_eq!(seeker.next().await, best);
        // The next search begins with the best again, unless that was left.
        seeker.succeeded(&others[0]);
        assert_eq!(seeker.next().await, best);
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_where_it_is_sent_and_not_for_ever() {
        let mut seeker = seeker();
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

    #[test]
    fn it_moves_to_where_it_was_told_and_to_where_it_was_given() {
        let seeker = seeker();
        let to = |server_id: u64, address: &str| Move {
            server_id,
            address: address.to_owned(),
        };
        let ways = |to: &Move| -> Vec<String> {
            let ways = seeker.ways_to(to).into_iter();
            ways.map(|endpoint| endpoint.address).collect()
        };
        assert_eq!(ways(&to(2, "told:1")), ["told:1", "server-2"]);
        assert_eq!(ways(&to(2, "server-2")), ["server-2"]);
        assert_eq!(ways(&to(9, "told:1")), ["told:1"]);
        assert_eq!(ways(&to(9, "")), [""; 0]);
    }
}
