//! Which server a worker tries next, and when: each has an order of its own, so that those of a server that dies spread over
//! all others, and come back to it with their next session.

use std::net::SocketAddr;
use std::time::Duration;

use dhow_agent::session::grpc::Backoff;
use dhow_wire::grpc::LeaderHint;

use crate::load::squad::hash_of;

/// As the agent has it: two servers may each believe in the other.
const HINTS_MAX: u32 = 3;

/// A worker's search for a server: where the next attempt goes and how long it waits.
#[derive(Debug)]
pub struct Search {
    /// In the order of this worker.
    servers: Vec<SocketAddr>,
    /// The next one.
    turn: usize,
    /// None before the first attempt, which waits for nothing.
    failures: Option<u32>,
    hint: Option<SocketAddr>,
    hints_followed: u32,
}

impl Search {
    pub fn new(servers: Vec<SocketAddr>, place: usize) -> Self {
        let mut servers = servers;
        servers.sort_by_key(|server| hash_of(&(place, server)));
        Self {
            servers,
            turn: 0,
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
        let server = self.servers[self.turn % self.servers.len()];
        self.turn = self.turn.wrapping_add(1);
        server
    }

    pub fn succeeded(&mut self) {
        self.failures = Some(0);
        self.turn = 0;
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

    #[tokio::test(start_paused = true)]
    async fn those_of_a_dead_server_spread_over_the_others() {
        let servers: Vec<SocketAddr> = (1..4)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect();
        let mut second = [0; 3];
        for place in 0..300 {
            let mut search = Search::new(servers.clone(), place);
            if search.next().await == servers[0] {
                let next = search.next().await;
                second[usize::from(next.port()) - 1] += 1;
                search.succeeded();
                assert_eq!(search.next().await, servers[0], "it is tried first again");
            }
        }
        assert_eq!(second[0], 0);
        assert!(second[1] > 20 && second[2] > 20, "{second:?}");
    }
}
