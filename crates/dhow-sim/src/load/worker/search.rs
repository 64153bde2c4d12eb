//! Which server a worker tries next, and when, as the agent does it: the best for this node first, the one that it has just
//! left last.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

use dhow_agent::session::grpc::Backoff;
use dhow_core::ids::NodeId;
use dhow_core::lease::server_weight;
use dhow_wire::grpc::LeaderHint;

/// As the agent has it: two servers may each believe in the other.
const HINTS_MAX: u32 = 3;

/// A worker's search for a server: where the next attempt goes and how long it waits.
#[derive(Debug)]
pub struct Search {
    /// In the order of their ids, from 1 on.
    servers: Vec<SocketAddr>,
    /// The same in the order of this worker.
    ranked: Vec<SocketAddr>,
    /// Its node id, or any number before it has one.
    key: u64,
    /// The next one.
    turn: usize,
    /// None before the first attempt, which waits for nothing.
    failures: Option<u32>,
    hint: Option<SocketAddr>,
    hints_followed: u32,
}

impl Search {
    pub fn new(servers: Vec<SocketAddr>, place: usize) -> Self {
        let mut search = Self {
            servers,
            ranked: Vec::new(),
            key: place as u64,
            turn: 0,
            failures: None,
            hint: None,
            hints_followed: 0,
        };
        search.rank(None);
        search
    }

    fn rank(&mut self, left: Option<SocketAddr>) {
        let mut all: Vec<(u64, SocketAddr)> = (1..).zip(self.servers.iter().copied()).collect();
        all.sort_by_key(|(id, server)| (left == Some(*server), Reverse(server_weight(self.key, *id))));
        self.ranked = all.into_iter().map(|(_, server)| server).collect();
        self.turn = 0;
    }

    /// It has joined: it looks for the server that it belongs to, without a pause.
    pub fn is_node(&mut self, node: NodeId) {
        self.key = node.0;
        self.failures = None;
        self.hints_followed = 0;
        self.rank(None);
    }

    /// Its session with this server has ended: what comes next is a new search, with the other servers first.
    pub fn left(&mut self, server: SocketAddr) {
        self.succeeded();
        self.rank(Some(server));
    }

    /// Waits for its time, and gives the server to try.
    pub async fn next(&mut self) -> SocketAddr {
        if let Some(server) = self.hint.take() {
            return server;
        }
        if let Some(failures) = self.failures {
            let servers = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
            tokio::time::sleep(pause(failures / servers.max(1))).await;
        }
        self.failures = Some(self.failures.map_or(0, |failures| failures.saturating_add(1)));
        let server = self.ranked[self.turn % self.ranked.len()];
        self.turn = self.turn.wrapping_add(1);
        server
    }

    pub fn succeeded(&mut self) {
        self.failures = Some(0);
        self.hints_followed = 0;
    }

    /// A server that does not know where the leader is found names it at least: it is one of those that are known.
    pub fn sent_to(&mut self, leader: Option<LeaderHint>) {
        let Some(leader) = leader else { return };
        if self.hints_followed >= HINTS_MAX {
            self.hints_followed = 0;
            return;
        }
        self.hints_followed += 1;
        self.hint = leader.address.and_then(|address| address.parse().ok());
    }
}

fn pause(rounds: u32) -> Duration {
    let backoff = Backoff::of_workers();
    let ceiling = backoff
        .first
        .saturating_mul(1 << rounds.min(16))
        .min(backoff.longest);
    ceiling.mul_f64(rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::lease::best_server;

    #[tokio::test(start_paused = true)]
    async fn each_begins_where_its_servers_want_it_and_ends_with_the_one_that_it_left() {
        let servers: Vec<SocketAddr> = (1..4)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect();
        let mut second = [0; 3];
        for node in 100..400 {
            let mut search = Search::new(servers.clone(), 5);
            search.is_node(NodeId(node));
            let first = search.next().await;
            let best = best_server(NodeId(node), (1..4).map(NodeId));
            assert_eq!(best, Some(NodeId(first.port().into())));
            search.left(first);
            let next = search.next().await;
            assert_ne!(next, first, "it has just left it");
            if first == servers[0] {
                second[usize::from(next.port()) - 1] += 1;
            }
            search.next().await;
            assert_eq!(search.next().await, first, "in the end it is tried again");
        }
        assert!(second[1] > 20 && second[2] > 20, "{second:?}");
    }
}
