//! Which server a worker tries next, and when: as the agent's own search does it.

use std::net::SocketAddr;
use std::time::Duration;

use dhow_agent::session::grpc::Backoff;
use dhow_wire::grpc::LeaderHint;

/// As the agent has it: two servers may each believe in the other.
const HINTS_MAX: u32 = 3;

/// A worker's search for a server: where the next attempt goes and how long it waits.
#[derive(Debug)]
pub struct Search {
    servers: Vec<SocketAddr>,
    turn: usize,
    /// None before the first attempt, which waits for nothing.
    failures: Option<u32>,
    hint: Option<SocketAddr>,
    hints_followed: u32,
}

impl Search {
    pub fn new(servers: Vec<SocketAddr>, place: usize) -> Self {
        Self {
            servers,
            // Not all begin with the same server.
            turn: place,
            failures: None,
            hint: None,
            hints_followed: 0,
        }
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
        self.turn = self.turn.wrapping_add(1);
        self.servers[self.turn % self.servers.len()]
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
