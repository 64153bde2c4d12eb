//! A small world from a seed: one leader, three holders, two to a hundred nodes. Beats are lost, repeated and late; one holder
//! after the other is killed, paused, cut off from the leader or from its nodes. Nobody who lives is given up, and
//! everybody who died is, in time.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::super::super::held_sessions::{Freshness, HeldSessions};
use super::super::super::holder_beat::HolderBeat;
use super::*;
use crate::lease::testing::config;

const HOLDERS: usize = 3;
/// As many nodes as one of these.
const NODES: [u64; 7] = [2, 3, 5, 9, 19, 40, 100];
const TICK_MS: u64 = 500;
/// A node leaves a server that it has not heard for this long.
const LEAVE_MS: u64 = 25_000;
/// A server finds out that a node is gone after this long: every ping has its own time.
fn missed_ms(node: NodeId) -> u64 {
    5_000 + node.0 % 5 * 500
}
/// The longest pause of a node between two attempts.
const PAUSE_MAX_MS: u64 = 20_000;
/// Who died alone is missed by its holder, who died with it by the leader; then the grace, and a beat that was lost.
const NOTICED_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Paused,
    /// It does not reach the leader.
    CutOff,
    /// It does not reach its nodes.
    Deaf,
}

struct HolderSim {
    held: HeldSessions,
    fault: Fault,
    fault_until_ms: u64,
    /// When it last heard any node.
    hears_ms: u64,
    /// Messages that are late or come again.
    stray: Vec<HolderBeat>,
}

#[derive(Clone, Copy, Debug)]
enum Life {
    Session {
        holder: usize,
        boot: u64,
        id: SessionId,
        heard_ms: u64,
    },
    Seeking {
        at_ms: u64,
        failures: u32,
    },
    Dead {
        since_ms: u64,
        last: Option<(usize, u64, SessionId, u64)>,
    },
}

struct World {
    rng: TestRng,
    now_ms: u64,
    table: SessionTable,
    holders: Vec<HolderSim>,
    nodes: BTreeMap<NodeId, Life>,
    given_up: BTreeMap<NodeId, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut bytes = [7_u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut world = Self {
            rng,
            now_ms: 1_000_000,
            table: SessionTable::new(CONFIG, None),
            holders: Vec::new(),
            nodes: BTreeMap::new(),
            given_up: BTreeMap::new(),
        };
        for boot in 0..HOLDERS as u64 {
            world.holders.push(HolderSim {
                held: HeldSessions::new(boot),
                fault: Fault::None,
                fault_until_ms: 0,
                hears_ms: world.now_ms,
                stray: Vec::new(),
            });
        }
        let nodes = NODES[world.draw(NODES.len() as u64) as usize];
        let ids = (0..nodes).map(|id| NodeId(1_000 + id));
        for node in ids.clone() {
            let life = Life::Seeking {
                at_ms: world.now_ms,
                failures: 0,
            };
            world.nodes.insert(node, life);
        }
        let now_ms = world.now_ms;
        world.table.begin_term(Term(9), now_ms, ids);
        world
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.next_u64() % below
    }

    fn tick(&mut self) {
        self.now_ms += TICK_MS;
        for holder in 0..HOLDERS {
            self.beat(holder);
        }
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            self.live(node);
        }
        let ticked = self.table.advance(self.now_ms, self.now_ms, |_| true);
        for node in ticked.expired {
            let life = self.nodes[&node];
            assert!(
                matches!(life, Life::Dead { .. }),
                "{node} lives and is given up at {}: {life:?}",
                self.now_ms
            );
            self.given_up.insert(node, self.now_ms);
        }
        for (node, life) in &self.nodes {
            if let Life::Dead { since_ms, .. } = life {
                let is_noticed = self.given_up.contains_key(node) || self.now_ms - since_ms <= NOTICED_MS;
                assert!(
                    is_noticed,
                    "{node} died at {since_ms} and is missed by nobody at {}",
                    self.now_ms
                );
            }
        }
    }

    fn beat(&mut self, holder: usize) {
        let now_ms = self.now_ms;
        let from = NodeId(holder as u64 + 1);
        let sim = &mut self.holders[holder];
        if sim.fault != Fault::None && now_ms >= sim.fault_until_ms {
            sim.fault = Fault::None;
        }
        let fault = sim.fault;
        if fault == Fault::Paused {
            return;
        }
        let beat = HolderBeat {
            hears_age_ms: Some(now_ms - sim.hears_ms),
            ..sim.held.next_beat(now_ms)
        };
        let ended = sim.held.cut_off(now_ms, 0);
        self.end(holder, ended);
        if fault == Fault::CutOff {
            return;
        }
        let (is_heard, is_answered) = (!self.chance(10), !self.chance(10));
        if self.chance(5) {
            self.holders[holder].stray.push(beat.clone());
        }
        if is_heard {
            let (answer, _) = self.table.beat(from, &beat, now_ms);
            if is_answered {
                let ended = self.holders[holder].held.answered(&answer, now_ms);
                self.end(holder, ended);
            }
        }
        if self.chance(5)
            && let Some(stray) = self.holders[holder].stray.pop()
        {
            self.table.beat(from, &stray, now_ms);
        }
    }

    fn end(&mut self, holder: usize, ended: Vec<(NodeId, SessionId)>) {
        for (node, id) in ended {
            let last_sign_ms = match self.nodes[&node] {
                Life::Session { heard_ms, .. }
                | Life::Dead {
                    last: Some((.., heard_ms)),
                    ..
                } => heard_ms,
                Life::Seeking { .. } | Life::Dead { last: None, .. } => 0,
            };
            self.holders[holder].held.ended(node, id, last_sign_ms);
            let pause_ms = self.draw(2_000);
            let life = self.nodes.get_mut(&node).unwrap();
            if matches!(life, Life::Session { id: own, .. } if *own == id) {
                *life = Life::Seeking {
                    at_ms: self.now_ms + pause_ms,
                    failures: 0,
                };
            }
        }
    }

    fn live(&mut self, node: NodeId) {
        let now_ms = self.now_ms;
        match self.nodes[&node] {
            Life::Session {
                holder,
                boot,
                id,
                heard_ms,
            } => {
                let sim = &mut self.holders[holder];
                let is_unheard = matches!(sim.fault, Fault::Paused | Fault::Deaf);
                if sim.fault == Fault::Deaf && now_ms - heard_ms > missed_ms(node) {
                    sim.held.broke(node, id, heard_ms, heard_ms);
                }
                // It learns that its server is gone, or has broken its session off, as soon as it is reached.
                if sim.held.boot() != boot || (!is_unheard && !sim.held.has(node)) {
                    let at_ms = now_ms + self.draw(2_000);
                    self.nodes.insert(node, Life::Seeking { at_ms, failures: 0 });
                } else if is_unheard {
                    if now_ms - heard_ms > LEAVE_MS {
                        // Its server finds the connection broken as soon as it looks.
                        sim.held.broke(node, id, heard_ms, heard_ms);
                        let (at_ms, failures) = (now_ms, 0);
                        self.nodes.insert(node, Life::Seeking { at_ms, failures });
                    }
                } else {
                    sim.hears_ms = now_ms;
                    // A heartbeat comes before its time to live is over, and a report at any time.
                    let is_due = (now_ms / TICK_MS + node.0).is_multiple_of(16);
                    if is_due || self.chance(10) {
                        self.holders[holder].held.heard(node, now_ms);
                    }
                    self.nodes.insert(
                        node,
                        Life::Session {
                            holder,
                            boot,
                            id,
                            heard_ms: now_ms,
                        },
                    );
                }
            }
            Life::Seeking { at_ms, failures } if at_ms <= now_ms => self.seek(node, failures),
            Life::Seeking { .. } => {}
            Life::Dead {
                since_ms,
                last: Some((holder, boot, id, heard_ms)),
            } => {
                let sim = &mut self.holders[holder];
                let is_missed = sim.held.boot() != boot
                    || (sim.fault != Fault::Paused && now_ms - heard_ms > missed_ms(node));
                if is_missed {
                    sim.held.broke(node, id, heard_ms, heard_ms);
                    self.nodes.insert(node, Life::Dead { since_ms, last: None });
                }
            }
            Life::Dead { last: None, .. } => {}
        }
    }

    fn seek(&mut self, node: NodeId, failures: u32) {
        let now_ms = self.now_ms;
        let holder = self.draw(HOLDERS as u64) as usize;
        let sim = &mut self.holders[holder];
        let is_open = sim.fault == Fault::None && sim.held.freshness(now_ms, 0) == Freshness::Fresh;
        let life = if is_open {
            let boot = sim.held.boot();
            let (id, _) = self.table.open(NodeId(holder as u64 + 1), boot, node, now_ms);
            sim.held.opened(node, id, now_ms);
            Life::Session {
                holder,
                boot,
                id,
                heard_ms: now_ms,
            }
        } else {
            // All servers are tried before the pause grows.
            let longest_ms = (500 << (failures / 3).min(6)).min(PAUSE_MAX_MS);
            Life::Seeking {
                at_ms: now_ms + self.draw(longest_ms),
                failures: failures + 1,
            }
        };
        self.nodes.insert(node, life);
    }

    fn hurt(&mut self, holder: usize) {
        let has_session = |life: &&Life| matches!(life, Life::Session { holder: own, .. } if *own == holder);
        let may_be_deaf = self.nodes.values().filter(has_session).count() >= DEAF_NODES_MIN;
        let kind = self.draw(4);
        let for_ms = 1_000 + self.draw(60_000);
        let sim = &mut self.holders[holder];
        match kind {
            0 => sim.fault = Fault::Paused,
            1 => sim.fault = Fault::CutOff,
            2 if may_be_deaf => sim.fault = Fault::Deaf,
            _ => {
                let boot = sim.held.boot() + 10;
                sim.held = HeldSessions::new(boot);
                sim.stray.clear();
                sim.fault = Fault::Paused;
            }
        }
        sim.fault_until_ms = self.now_ms + for_ms;
    }

    /// Up to a tenth of the nodes that have a session with this holder die.
    fn kill_some(&mut self, holder: usize) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            if let Life::Session {
                holder: own,
                boot,
                id,
                heard_ms,
            } = self.nodes[&node]
                && own == holder
                && self.chance(10)
            {
                let last = Some((own, boot, id, heard_ms));
                self.nodes.insert(
                    node,
                    Life::Dead {
                        since_ms: self.now_ms,
                        last,
                    },
                );
            }
        }
    }
}

fn run(seed: u64, minutes: u64) {
    let mut world = World::new(seed);
    for tick in 0..minutes * 120 {
        // A fault begins at most every two minutes, so that nodes have found another server by the next one.
        if tick % 240 == 100 {
            let holder = world.draw(HOLDERS as u64) as usize;
            if world.chance(50) {
                world.kill_some(holder);
            }
            world.hurt(holder);
        }
        world.tick();
    }
    let living = world
        .nodes
        .values()
        .filter(|life| matches!(life, Life::Session { .. }));
    assert!(
        living.count() >= world.nodes.len() / 3,
        "most have a session in the end"
    );
}

/// A history takes a third of a second.
fn rounds() -> ProptestConfig {
    let config = config();
    ProptestConfig {
        cases: config.cases / 25,
        ..config
    }
}

proptest! {
    #![proptest_config(rounds())]
    #[test]
    fn nobody_living_is_given_up_and_the_dead_are(seed in any::<u64>()) {
        run(seed, 12);
    }
}
