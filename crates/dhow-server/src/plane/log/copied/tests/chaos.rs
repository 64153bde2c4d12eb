//! Random cuts, ends and writes from a seed: whatever was acknowledged is in force in the end, or kept as lost.

use std::collections::BTreeSet;
use std::time::Duration;

use super::net::Net;
use super::peer::{Ended, Peer, THRESHOLD_MS, until};

/// Steps of one run; each takes up to one threshold.
const STEPS: usize = 14;

/// The same numbers from the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

enum Slot {
    Up(Box<Peer>),
    Down(Ended),
}

struct Run {
    dice: Dice,
    net: Net,
    slots: Vec<Option<Slot>>,
    acknowledged: BTreeSet<String>,
    writes: usize,
}

impl Run {
    fn up(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().flatten().filter_map(|slot| match slot {
            Slot::Up(peer) => Some(peer.as_ref()),
            Slot::Down(_) => None,
        })
    }

    /// Whoever believes to lead is asked to write.
    async fn write(&mut self) {
        let leaders = self.up().filter(|peer| peer.leads()).count() as u64;
        if leaders == 0 {
            return;
        }
        let place = self.dice.roll(leaders) as usize;
        let name = format!("write-{}", self.writes);
        self.writes += 1;
        let written = match self.up().filter(|peer| peer.leads()).nth(place) {
            Some(leader) => leader.deploy(&name, "web:1").await,
            None => return,
        };
        if written.is_ok() {
            self.acknowledged.insert(name);
        }
    }

    async fn toggle(&mut self) {
        let place = self.dice.roll(self.slots.len() as u64) as usize;
        let slot = match self.slots[place].take() {
            Some(Slot::Up(peer)) => Slot::Down(peer.end().await),
            Some(Slot::Down(ended)) => Slot::Up(Box::new(ended.start_again(&self.net))),
            None => return,
        };
        self.slots[place] = Some(slot);
    }

    fn divide(&mut self) {
        let alone = self.dice.roll(3) + 1;
        let others: Vec<u64> = (1..=3).filter(|node| *node != alone).collect();
        self.net.isolate(alone, &others);
    }

    async fn step(&mut self) {
        match self.dice.roll(6) {
            0 => self.toggle().await,
            1 => self.divide(),
            2 => self.net.heal(),
            _ => {
                self.write().await;
                return;
            }
        }
        let pause_ms = self.dice.roll(2 * THRESHOLD_MS);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}

async fn run(seed: u64) {
    let net = Net::default();
    let all = [1, 2, 3];
    let slots = all
        .iter()
        .map(|node| Some(Slot::Up(Box::new(Peer::start(*node, &all, &net)))));
    let mut run = Run {
        dice: Dice(seed),
        slots: slots.collect(),
        net: net.clone(),
        acknowledged: BTreeSet::new(),
        writes: 0,
    };
    until("somebody leads", || run.up().any(Peer::leads)).await;
    for _ in 0..STEPS {
        run.step().await;
    }
    net.heal();
    let mut peers = Vec::new();
    for slot in run.slots.into_iter().flatten() {
        peers.push(match slot {
            Slot::Up(peer) => *peer,
            Slot::Down(ended) => ended.start_again(&net),
        });
    }
    until("all follow the lowest", || {
        peers[0].leads() && peers.iter().all(|peer| peer.leader() == Some(1))
    })
    .await;
    until("all have the same", || {
        let hashes: BTreeSet<_> = peers
            .iter()
            .map(|peer| peer.view.state().hash().to_string())
            .collect();
        hashes.len() == 1
    })
    .await;
    let kept = peers.iter().flat_map(|peer| peer.log.kept_lost().all().revisions);
    let kept: BTreeSet<_> = kept.map(|lost| lost.spec.deployment.to_string()).collect();
    for name in &run.acknowledged {
        let is_in_force = peers[0].has(name, "web:1");
        assert!(
            is_in_force || kept.contains(name),
            "seed {seed}: {name} was dropped; kept {kept:?}"
        );
    }
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_acknowledged_is_dropped() {
    let seeds = match std::env::var("DHOW_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2, 3],
    };
    // Beside each other: most of a run is waiting.
    futures_util::future::join_all(seeds.into_iter().map(run)).await;
}
