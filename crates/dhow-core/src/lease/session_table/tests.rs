//! The rules one by one, and a small world in which holders, nodes and messages fail.

mod deaf;
mod world;

use super::super::held_sessions::{HeldSessions, MOVE_AFTER_MS, Move};
use super::super::server_choice::best_server;
use super::*;

const CONFIG: AdaptiveTtlConfig = AdaptiveTtlConfig {
    min_ttl_secs: 10,
    max_ttl_secs: 600,
    grace_secs: 10,
    max_heartbeats_per_second: 50,
    failover_ttl_secs: 300,
};
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const WORKER: NodeId = NodeId(100);

fn led(nodes: impl IntoIterator<Item = u64>) -> SessionTable {
    let mut table = SessionTable::new(CONFIG, None);
    table.begin_term(Term(5), 0, nodes.into_iter().map(NodeId));
    table
}

fn pass(
    table: &mut SessionTable,
    from_ms: u64,
    to_ms: u64,
    mut each: impl FnMut(&mut SessionTable, u64),
) -> Vec<(u64, NodeId)> {
    let mut lost = Vec::new();
    let mut now_ms = from_ms;
    while now_ms < to_ms {
        now_ms += 500;
        each(table, now_ms);
        let ticked = table.advance(now_ms, now_ms, |_| true);
        assert_eq!(ticked.alarms, []);
        lost.extend(ticked.expired.into_iter().map(|node| (now_ms, node)));
    }
    lost
}

/// A holder that is answered at once.
fn beat(
    table: &mut SessionTable,
    holder: NodeId,
    held: &mut HeldSessions,
    now_ms: u64,
) -> Vec<(NodeId, SessionId)> {
    let beat = held.next_beat(now_ms);
    let (answer, alarm) = table.beat(holder, &beat, now_ms);
    assert_eq!(alarm, None);
    held.answered(&answer, now_ms)
}

fn open(
    table: &mut SessionTable,
    holder: NodeId,
    held: &mut HeldSessions,
    node: NodeId,
    now_ms: u64,
) -> SessionId {
    let (id, _) = table.open(holder, held.boot(), node, now_ms);
    held.opened(node, id, now_ms);
    id
}

#[test]
fn a_break_is_evidence_one_grace_after_the_last_sign() {
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    beat(&mut table, A, &mut held, 500);
    let id = open(&mut table, A, &mut held, WORKER, 1_000);
    let mut has_broken = false;
    let lost = pass(&mut table, 1_000, 60_000, |table, now_ms| {
        if now_ms >= 5_000 && !has_broken {
            held.broke(WORKER, id, 4_000, 4_000);
            has_broken = true;
        }
        beat(table, A, &mut held, now_ms);
    });
    assert_eq!(lost, [(14_500, WORKER)]);
}

#[test]
fn a_session_whose_node_went_before_it_was_served_is_as_broken_as_any() {
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    beat(&mut table, A, &mut held, 500);
    let (id, _) = table.open(A, held.boot(), WORKER, 1_000);
    held.broke_unserved(WORKER, id, 1_000);
    let lost = pass(&mut table, 1_000, 60_000, |table, now_ms| {
        beat(table, A, &mut held, now_ms);
    });
    assert_eq!(lost, [(11_500, WORKER)]);
}

#[test]
fn a_session_that_was_never_served_says_nothing_of_a_newer_one() {
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    beat(&mut table, A, &mut held, 500);
    let (older, _) = table.open(A, held.boot(), WORKER, 1_000);
    open(&mut table, A, &mut held, WORKER, 1_000);
    held.broke_unserved(WORKER, older, 1_000);
    held.ended_unserved(WORKER, older, 1_000);
    let lost = pass(&mut table, 1_000, 60_000, |table, now_ms| {
        held.heard(WORKER, now_ms);
        beat(table, A, &mut held, now_ms);
    });
    assert_eq!(lost, []);
    assert!(held.has(WORKER));
}

#[test]
fn a_session_elsewhere_answers_the_break_and_ends_the_older_one() {
    let mut table = led([WORKER.0]);
    let (mut a, mut b) = (HeldSessions::new(7), HeldSessions::new(8));
    let first = open(&mut table, A, &mut a, WORKER, 1_000);
    let second = open(&mut table, B, &mut b, WORKER, 2_000);
    assert!(second > first);
    // The first holder has heard the node in the old session, and is told to end it.
    a.heard(WORKER, 2_100);
    beat(&mut table, B, &mut b, 2_500);
    assert_eq!(beat(&mut table, A, &mut a, 2_500), [(WORKER, first)]);
    a.broke(WORKER, first, 2_100, 2_100);
    let lost = pass(&mut table, 2_500, 60_000, |table, now_ms| {
        b.heard(WORKER, now_ms);
        beat(table, A, &mut a, now_ms);
        beat(table, B, &mut b, now_ms);
    });
    assert_eq!(lost, [], "what broke was not its newest session");
}

#[test]
fn nodes_of_a_holder_that_dies_are_given_up_within_a_minute_and_not_before() {
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    open(&mut table, A, &mut held, WORKER, 500);
    beat(&mut table, A, &mut held, 1_000);
    let lost = pass(&mut table, 1_000, 120_000, |_, _| {});
    // The short time to live of a small cluster does not end it earlier.
    assert_eq!(lost, [(1_000 + ORPHAN_MS + 10_500, WORKER)]);
}

#[test]
fn a_crowd_that_comes_back_slowly_is_waited_for_and_the_dead_among_it_are_not_for_ever() {
    let (first, dead) = (1_000, 3_000);
    let mut table = led(first..=dead);
    let mut held = HeldSessions::new(7);
    let mut next = first;
    // Fifteen a second: the last one that lives comes back 133 s after the election.
    let lost = pass(&mut table, 0, 400_000, |table, now_ms| {
        let count = if now_ms % 1_000 == 0 { 7 } else { 8 };
        for node in (next..dead).take(count) {
            open(table, A, &mut held, NodeId(node), now_ms);
            next = node + 1;
        }
        for node in first..next {
            held.heard(NodeId(node), now_ms);
        }
        beat(table, A, &mut held, now_ms);
    });
    assert_eq!(next, dead);
    let [(at_ms, node)] = lost[..] else {
        panic!("{lost:?}");
    };
    assert_eq!(node, NodeId(dead));
    assert!((140_000..=165_000).contains(&at_ms), "{at_ms}");
}

#[test]
fn a_holder_that_starts_again_is_no_evidence_and_its_nodes_may_come_back() {
    let mut table = led([WORKER.0, WORKER.0 + 1]);
    let mut held = HeldSessions::new(7);
    open(&mut table, A, &mut held, WORKER, 500);
    open(&mut table, A, &mut held, NodeId(101), 500);
    beat(&mut table, A, &mut held, 1_000);
    let mut again = HeldSessions::new(9);
    open(&mut table, A, &mut again, WORKER, 3_000);
    let lost = pass(&mut table, 3_000, 120_000, |table, now_ms| {
        again.heard(WORKER, now_ms);
        beat(table, A, &mut again, now_ms);
    });
    assert_eq!(lost, [(1_000 + ORPHAN_MS + 10_500, NodeId(101))]);
}

#[test]
fn a_new_leader_learns_of_sessions_that_were_opened_before_it() {
    let mut table = led([WORKER.0, 101]);
    let mut held = HeldSessions::new(7);
    let id = open(&mut table, A, &mut held, WORKER, 500);
    beat(&mut table, A, &mut held, 1_000);
    let mut next = SessionTable::new(CONFIG, None);
    next.begin_term(Term(6), 50_000, [WORKER, NodeId(101)]);
    held.leader_changed();
    let mut has_broken = false;
    let lost = pass(&mut next, 50_000, 200_000, |table, now_ms| {
        match now_ms {
            ..100_000 => held.heard(WORKER, now_ms - 49_000),
            _ if !has_broken => {
                held.broke(WORKER, id, now_ms - 49_000, now_ms - 49_000);
                has_broken = true;
            }
            _ => {}
        }
        let beat = held.next_beat(now_ms - 49_000);
        let (answer, _) = table.beat(A, &beat, now_ms);
        held.answered(&answer, now_ms - 49_000);
    });
    // One that nobody names is missed 45 s after the election, one whose session breaks as ever.
    assert_eq!(
        lost,
        [(50_000 + ORPHAN_MS + 10_500, NodeId(101)), (110_500, WORKER)]
    );
}

#[test]
fn repeated_and_late_beats_change_nothing() {
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    let id = open(&mut table, A, &mut held, WORKER, 500);
    beat(&mut table, A, &mut held, 1_000);
    held.heard(WORKER, 1_200);
    let early = held.next_beat(1_500);
    held.heard(WORKER, 9_000);
    let late = held.next_beat(9_500);
    assert_eq!(late.heard[0].session, id);
    table.beat(A, &late, 9_500);
    let deadline_ms = table.leases().deadline_ms(WORKER);
    for beat in [&early, &late, &early] {
        table.beat(A, beat, 12_000);
        assert_eq!(table.leases().deadline_ms(WORKER), deadline_ms);
    }
    assert_eq!(deadline_ms, Some(9_000 + 20_000));
}

#[test]
fn a_holder_whose_sessions_all_break_is_ill() {
    let mut table = led(100..140);
    let mut held = HeldSessions::new(7);
    beat(&mut table, A, &mut held, 500);
    let ids: Vec<(NodeId, SessionId)> = (100..140)
        .map(|id| (NodeId(id), open(&mut table, A, &mut held, NodeId(id), 1_000)))
        .collect();
    beat(&mut table, A, &mut held, 1_500);
    for (node, id) in &ids {
        held.broke(*node, *id, 2_000, 2_000);
    }
    let told = held.next_beat(2_500);
    let (answer, alarm) = table.beat(A, &told, 2_500);
    assert_eq!(
        alarm,
        Some(LeaseAlarm::HolderIll {
            holder: A,
            broke: 21,
            sessions: 40
        })
    );
    held.answered(&answer, 2_500);
    // They come back through another server within half a minute, all but one.
    let mut b = HeldSessions::new(8);
    let lost = pass(&mut table, 2_500, 120_000, |table, now_ms| {
        if now_ms == 30_000 {
            for (node, _) in &ids[1..] {
                open(table, B, &mut b, *node, now_ms);
            }
        }
        for (node, _) in &ids[1..] {
            b.heard(*node, now_ms);
        }
        beat(table, A, &mut held, now_ms);
        beat(table, B, &mut b, now_ms);
    });
    assert_eq!(lost, [(2_000 + ORPHAN_MS + 10_500, NodeId(100))]);
}

/// 3,000 nodes on two servers, of which the first so many lose their sessions; who was given up, and when first. With them
/// the alarm that there was.
fn lost_of_thousands(broken: u64, come_back: bool) -> (usize, Option<u64>, Option<LeaseAlarm>) {
    let nodes = 1_000..4_000;
    let mut table = led(nodes.clone());
    let (mut a, mut b) = (HeldSessions::new(7), HeldSessions::new(8));
    beat(&mut table, A, &mut a, 500);
    beat(&mut table, B, &mut b, 500);
    let mut ids = Vec::new();
    for id in nodes {
        let (holder, held) = match id % 2 {
            0 => (A, &mut a),
            _ => (B, &mut b),
        };
        ids.push((NodeId(id), open(&mut table, holder, held, NodeId(id), 1_000)));
    }
    beat(&mut table, A, &mut a, 1_500);
    beat(&mut table, B, &mut b, 1_500);
    // Forty in a second, as overload begins.
    let mut alarms = None;
    let (mut next, mut lost) = (0, Vec::new());
    for now_ms in (2_000..200_000).step_by(500) {
        for _ in 0..20 {
            if next < broken as usize {
                let (node, id) = ids[next];
                match node.0 % 2 {
                    0 => a.broke(node, id, now_ms, now_ms),
                    _ => b.broke(node, id, now_ms, now_ms),
                }
                next += 1;
            }
        }
        if come_back && now_ms == 40_000 {
            for (node, _) in ids.iter().take(broken as usize) {
                open(&mut table, A, &mut a, *node, now_ms);
            }
        }
        for (holder, held) in [(A, &mut a), (B, &mut b)] {
            for (node, _) in ids.iter().skip(broken as usize) {
                held.heard(*node, now_ms);
            }
            if come_back && now_ms > 40_000 && holder == A {
                ids.iter()
                    .take(broken as usize)
                    .for_each(|(node, _)| held.heard(*node, now_ms));
            }
            let told = held.next_beat(now_ms);
            let (answer, alarm) = table.beat(holder, &told, now_ms);
            alarms = alarms.or(alarm);
            held.answered(&answer, now_ms);
        }
        let ticked = table.advance(now_ms, now_ms, |_| true);
        lost.extend(ticked.expired.into_iter().map(|node| (now_ms, node)));
    }
    (lost.len(), lost.first().map(|(now_ms, _)| *now_ms), alarms)
}

#[test]
fn a_crowd_that_breaks_everywhere_has_time_to_come_back() {
    let (lost, _, alarm) = lost_of_thousands(500, true);
    assert!(
        matches!(
            alarm,
            Some(LeaseAlarm::CrowdBroke {
                broke: 301,
                sessions: 3_000
            })
        ),
        "{alarm:?}"
    );
    assert_eq!(lost, 0);
    // Who does not come back is given up all the same, a minute later.
    let (lost, first_ms, _) = lost_of_thousands(500, false);
    assert_eq!(lost, 500);
    assert!(first_ms > Some(2_000 + ORPHAN_MS), "{first_ms:?}");
}

#[test]
fn a_twentieth_that_dies_is_no_crowd() {
    let (lost, first_ms, alarm) = lost_of_thousands(150, false);
    assert_eq!((lost, alarm), (150, None));
    assert_eq!(first_ms, Some(2_000 + 10_500));
}

#[test]
fn one_node_that_comes_and_goes_makes_no_holder_ill() {
    let (mut table, mut held, restless) = (led(100..110), HeldSessions::new(7), NodeId(100));
    beat(&mut table, A, &mut held, 500);
    let dead = open(&mut table, A, &mut held, NodeId(101), 1_000);
    for round in 0..60 {
        let now_ms = 1_000 + round * 100;
        let id = open(&mut table, A, &mut held, restless, now_ms);
        held.broke(restless, id, now_ms + 50, now_ms + 50);
        let told = held.next_beat(now_ms + 50);
        let (answer, alarm) = table.beat(A, &told, now_ms + 50);
        held.answered(&answer, now_ms + 50);
        assert_eq!(alarm, None);
    }
    // So the break of another node's session is evidence as ever.
    held.broke(NodeId(101), dead, 7_000, 7_000);
    let lost = pass(&mut table, 7_000, 30_000, |table, now_ms| {
        beat(table, A, &mut held, now_ms);
    });
    assert!(lost.contains(&(17_500, NodeId(101))), "{lost:?}");
}

#[test]
fn a_holder_without_answers_stops_to_serve_and_then_ends_its_sessions() {
    use super::super::held_sessions::Freshness;
    let mut table = led(100..200);
    let mut held = HeldSessions::new(7);
    assert_eq!(held.freshness(0, 0), Freshness::CutOff, "it has not met a leader");
    for id in 100..200 {
        open(&mut table, A, &mut held, NodeId(id), 500);
    }
    let told = held.next_beat(1_000);
    let (mut answer, _) = table.beat(A, &told, 1_000);
    answer.read_index = 40;
    // The answer took its time; that makes nothing fresher.
    held.answered(&answer, 1_700);
    assert_eq!(
        held.freshness(1_700, 39),
        Freshness::CutOff,
        "the state is behind"
    );
    assert_eq!(held.freshness(3_000, 40), Freshness::Fresh);
    assert_eq!(held.freshness(3_001, 40), Freshness::Stale);
    assert_eq!(held.freshness(7_000, 40), Freshness::Stale);
    assert_eq!(held.cut_off(7_000, 40), []);
    assert_eq!(held.freshness(7_001, 40), Freshness::CutOff);
    let half = held.cut_off(9_000, 40).len();
    assert!((20..80).contains(&half), "{half} of 100 after half of the time");
    assert_eq!(held.cut_off(11_000, 40).len(), 100);
}

#[test]
fn a_session_that_breaks_before_its_holder_is_heard_is_noticed_within_a_minute() {
    // Its holder has just been elected, and has not told itself of its sessions yet.
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    let older = SessionId {
        term: Term(4),
        number: 9,
    };
    held.opened(WORKER, older, 0);
    held.broke(WORKER, older, 100, 100);
    assert_eq!(table.session_broke(A, (WORKER, older), 100, 100), None);
    let lost = pass(&mut table, 0, 70_000, |table, now_ms| {
        beat(table, A, &mut held, now_ms);
    });
    assert!(
        lost.first()
            .is_some_and(|(at_ms, node)| *node == WORKER && *at_ms <= 60_000),
        "{lost:?}"
    );
}

#[test]
fn what_a_holder_says_before_it_has_heard_the_leader_counts_from_when_it_was() {
    // It was paused for long, ends its sessions when it wakes up, and the answer to its first beat is lost.
    let mut table = led([WORKER.0]);
    let mut held = HeldSessions::new(7);
    let older = SessionId {
        term: Term(4),
        number: 9,
    };
    held.opened(WORKER, older, 0);
    held.ended(WORKER, older, 0);
    let lost = pass(&mut table, 0, 120_000, |table, now_ms| {
        if now_ms == 50_000 {
            let told = held.next_beat(now_ms);
            assert_eq!((told.echo, told.ended[0].age_ms), (None, 50_000));
            table.beat(A, &told, now_ms);
        }
    });
    assert_eq!(lost, [(ORPHAN_MS + 10_500, WORKER)]);
}

#[test]
fn one_node_whose_sessions_break_all_the_time_makes_no_holder_ill() {
    let others: Vec<u64> = (200..210).collect();
    let mut table = led(others.iter().copied().chain([WORKER.0]));
    let mut held = HeldSessions::new(7);
    for node in others {
        open(&mut table, A, &mut held, NodeId(node), 0);
    }
    for turn in 1..40 {
        let now_ms = turn * 100;
        let (id, _) = table.open(A, held.boot(), WORKER, now_ms);
        assert_eq!(
            table.session_broke(A, (WORKER, id), now_ms, now_ms),
            None,
            "{turn}"
        );
    }
    assert_eq!(table.holders[&A].ill_until_ms, None);
}

/// A holder that serves all and is answered at once; the servers that take sessions, as it is told.
fn fresh_beat(
    table: &mut SessionTable,
    holder: NodeId,
    held: &mut HeldSessions,
    now_ms: u64,
) -> Vec<FreshServer> {
    let beat = HolderBeat {
        is_fresh: true,
        ..held.next_beat(now_ms)
    };
    let (answer, _) = table.beat(holder, &beat, now_ms);
    held.answered(&answer, now_ms);
    answer.servers
}

#[test]
fn a_server_is_fresh_from_when_it_said_so_until_it_does_not() {
    let mut table = led([]);
    let (mut a, mut b) = (HeldSessions::new(7), HeldSessions::new(8));
    let fresh = |servers: Vec<FreshServer>| -> Vec<(NodeId, u64)> {
        let known = servers.iter();
        known.map(|fresh| (fresh.server, fresh.fresh_for_ms)).collect()
    };
    assert_eq!(fresh(fresh_beat(&mut table, A, &mut a, 1_000)), [(A, 0)]);
    assert_eq!(
        fresh(fresh_beat(&mut table, B, &mut b, 2_000)),
        [(A, 1_000), (B, 0)]
    );
    assert_eq!(
        fresh(fresh_beat(&mut table, A, &mut a, 3_500)),
        [(A, 2_500), (B, 1_500)]
    );
    // One that is not heard is none to go to; when it is heard again it begins anew.
    assert_eq!(fresh(fresh_beat(&mut table, A, &mut a, 5_000)), [(A, 4_000)]);
    assert_eq!(
        fresh(fresh_beat(&mut table, B, &mut b, 5_500)),
        [(A, 4_500), (B, 0)]
    );
    // So does one that says itself that it is not, and one whose process is another.
    beat(&mut table, B, &mut b, 6_000);
    assert_eq!(fresh(fresh_beat(&mut table, A, &mut a, 6_500)), [(A, 5_500)]);
    assert_eq!(
        fresh(fresh_beat(&mut table, B, &mut b, 7_000)),
        [(A, 6_000), (B, 0)]
    );
    let mut again = HeldSessions::new(9);
    assert_eq!(
        fresh(fresh_beat(&mut table, A, &mut again, 7_500)),
        [(A, 0), (B, 500)]
    );
    // What comes late says nothing.
    let late = HolderBeat {
        boot: 9,
        seq: 1,
        ..HolderBeat::default()
    };
    assert_eq!(table.beat(A, &late, 7_600).0.servers, []);
    assert_eq!(
        fresh(fresh_beat(&mut table, A, &mut again, 8_000)),
        [(A, 500), (B, 1_000)]
    );
}

fn fresh_for(servers: &[(NodeId, u64)]) -> Vec<FreshServer> {
    let known = servers.iter();
    known
        .map(|(server, fresh_for_ms)| FreshServer {
            server: *server,
            fresh_for_ms: *fresh_for_ms,
        })
        .collect()
}

#[test]
fn nodes_are_sent_to_their_server_once_it_has_been_there_for_a_minute() {
    let mut table = led(100..400);
    let mut held = HeldSessions::new(7);
    for node in 100..400 {
        open(&mut table, A, &mut held, NodeId(node), 0);
    }
    let of_b: BTreeSet<NodeId> = (100..400)
        .map(NodeId)
        .filter(|node| best_server(*node, [A, B]) == Some(B))
        .collect();
    assert!(of_b.len() > 100);
    let early = [
        fresh_for(&[(A, 90_000)]),
        fresh_for(&[(A, 90_000), (B, 59_999)]),
        // It is not told to serve itself: whoever leads has just begun.
        fresh_for(&[(B, 90_000)]),
        Vec::new(),
    ];
    for (now_ms, servers) in [1_000, 2_000, 3_000, 4_000].into_iter().zip(early) {
        assert_eq!(held.moves(A, &servers, MOVE_AFTER_MS, now_ms), []);
    }
    let servers = fresh_for(&[(A, 0), (B, MOVE_AFTER_MS)]);
    let mut sent = BTreeSet::new();
    for second in 5..15 {
        let moves = held.moves(A, &servers, MOVE_AFTER_MS, second * 1_000);
        assert!(moves.len() <= 50, "{} at a time", moves.len());
        assert_eq!(
            held.moves(A, &servers, MOVE_AFTER_MS, second * 1_000 + 999),
            [],
            "not before the next second"
        );
        for told in moves {
            assert_eq!(told.to, B);
            assert!(sent.insert(told.node), "{} is told once", told.node);
        }
    }
    assert_eq!(sent, of_b, "all of them, and nobody else");
    // Some minutes later those that have stayed are told again.
    let gone = *of_b.first().unwrap();
    let (id, _) = table.open(B, 8, gone, 16_000);
    held.heard(gone, 16_000);
    for (node, session) in beat(&mut table, A, &mut held, 16_500) {
        assert!(session < id);
        held.ended(node, session, 16_500);
    }
    let again = held.moves(A, &servers, MOVE_AFTER_MS, 320_000);
    assert_eq!(again.len(), 50.min(of_b.len() - 1));
    assert!(again.iter().all(|told| told.node != gone));
}

#[test]
fn the_node_of_a_server_is_not_sent_away() {
    let mut table = led([A.0, B.0]);
    let mut held = HeldSessions::new(7);
    open(&mut table, A, &mut held, A, 0);
    let session = open(&mut table, A, &mut held, B, 0);
    let servers = fresh_for(&[(A, 90_000), (B, 90_000)]);
    let own = Move {
        node: B,
        session,
        to: B,
    };
    assert_eq!(held.moves(A, &servers, MOVE_AFTER_MS, 1_000), [own]);
}

#[test]
fn a_server_that_dies_with_its_own_node_is_noticed_within_the_grace() {
    let mut table = led([B.0]);
    let mut held = HeldSessions::new(7);
    beat(&mut table, B, &mut held, 500);
    open(&mut table, B, &mut held, B, 1_000);
    let lost = pass(&mut table, 1_000, 60_000, |table, now_ms| {
        match now_ms <= 20_000 {
            // The last word of the node came with a beat, after the last one of the channel between servers.
            true => {
                held.heard(B, now_ms);
                beat(table, B, &mut held, now_ms);
            }
            false => assert_eq!(table.peer_unreachable(B, 19_900, now_ms), None),
        }
    });
    assert_eq!(
        lost,
        [(30_500, B)],
        "and not after the time to come back elsewhere"
    );
}

#[test]
fn a_server_whose_beats_come_is_not_dead() {
    let mut table = led([B.0]);
    let mut held = HeldSessions::new(7);
    beat(&mut table, B, &mut held, 500);
    open(&mut table, B, &mut held, B, 1_000);
    let lost = pass(&mut table, 1_000, 120_000, |table, now_ms| {
        if now_ms % 10_000 == 0 {
            held.heard(B, now_ms);
        }
        beat(table, B, &mut held, now_ms);
        assert_eq!(table.peer_unreachable(B, 900, now_ms), None);
    });
    assert_eq!(lost, []);
}

#[test]
fn a_node_that_could_not_go_is_told_again_when_its_server_is_back() {
    let mut table = led(100..200);
    let mut held = HeldSessions::new(7);
    let mut nodes = (100..200).map(NodeId);
    let node = nodes.find(|node| best_server(*node, [A, B]) == Some(B)).unwrap();
    open(&mut table, A, &mut held, node, 0);
    // The server has just died, and the leader has not missed it yet.
    let dead = fresh_for(&[(A, 900_000), (B, 900_000)]);
    assert_eq!(held.moves(A, &dead, MOVE_AFTER_MS, 1_000).len(), 1);
    assert_eq!(held.moves(A, &dead, MOVE_AFTER_MS, 2_000), []);
    let early = fresh_for(&[(A, 900_000), (B, 59_000)]);
    assert_eq!(held.moves(A, &early, MOVE_AFTER_MS, 80_000), []);
    let back = fresh_for(&[(A, 900_000), (B, 60_000)]);
    assert_eq!(held.moves(A, &back, MOVE_AFTER_MS, 81_000).len(), 1);
    let later = fresh_for(&[(A, 900_000), (B, 70_000)]);
    assert_eq!(held.moves(A, &later, MOVE_AFTER_MS, 91_000), []);
}
