//! Holders that tell the leader that they hear nobody.

use super::*;

/// Nodes of one holder, some of which fall silent, die or are not reached by it.
struct Deaf {
    table: SessionTable,
    held: HeldSessions,
    ids: Vec<(NodeId, SessionId)>,
    alarms: Vec<LeaseAlarm>,
    lost: Vec<(u64, NodeId)>,
    now_ms: u64,
}

impl Deaf {
    fn with(nodes: u64) -> Self {
        let (mut table, mut held) = (led(100..100 + nodes), HeldSessions::new(7));
        beat(&mut table, A, &mut held, 500);
        let ids = (100..100 + nodes)
            .map(|id| (NodeId(id), open(&mut table, A, &mut held, NodeId(id), 1_000)))
            .collect();
        Self {
            table,
            held,
            ids,
            alarms: Vec::new(),
            lost: Vec::new(),
            now_ms: 1_000,
        }
    }

    /// Lets time pass, in which the holder beats and says when it last heard anybody.
    fn pass(&mut self, to_ms: u64, mut each: impl FnMut(&mut Self) -> Option<u64>) {
        while self.now_ms < to_ms {
            self.now_ms += 500;
            let hears_ms = each(self);
            let beat = HolderBeat {
                hears_age_ms: hears_ms.map(|hears_ms| self.now_ms - hears_ms),
                ..self.held.next_beat(self.now_ms)
            };
            let (answer, alarm) = self.table.beat(A, &beat, self.now_ms);
            self.held.answered(&answer, self.now_ms);
            let ticked = self.table.advance(self.now_ms, self.now_ms, |_| true);
            self.alarms.extend(alarm.into_iter().chain(ticked.alarms));
            let now_ms = self.now_ms;
            self.lost
                .extend(ticked.expired.into_iter().map(|node| (now_ms, node)));
        }
    }

    /// A while in which all are heard.
    fn live(&mut self, to_ms: u64) {
        self.pass(to_ms, |deaf| {
            for (node, _) in &deaf.ids {
                deaf.held.heard(*node, deaf.now_ms);
            }
            Some(deaf.now_ms)
        });
    }

    /// The holder misses a node that it has not heard since then.
    fn miss(&mut self, place: usize, last_sign_ms: u64) {
        let (node, id) = self.ids[place];
        self.held.broke(node, id, last_sign_ms, last_sign_ms);
    }
}

#[test]
fn nodes_of_a_holder_that_hears_nobody_have_time_to_come_back_however_few_they_are() {
    for nodes in [2, 3, 19] {
        let mut deaf = Deaf::with(nodes);
        deaf.live(20_000);
        let mut b = HeldSessions::new(8);
        deaf.pass(100_000, |deaf| {
            // It misses them one by one, and they come to another server, all but the first.
            for place in 0..nodes as usize {
                if deaf.now_ms == 25_000 + 500 * (place as u64 % 5) {
                    deaf.miss(place, 20_000);
                }
            }
            for (node, _) in deaf.ids[1..].iter().copied() {
                if deaf.now_ms == 55_000 {
                    open(&mut deaf.table, B, &mut b, node, 55_000);
                }
                b.heard(node, deaf.now_ms);
            }
            beat(&mut deaf.table, B, &mut b, deaf.now_ms);
            Some(20_000)
        });
        let sessions = nodes as usize;
        assert_eq!(deaf.alarms, [LeaseAlarm::HolderDeaf { holder: A, sessions }]);
        assert_eq!(deaf.lost, [(20_000 + ORPHAN_MS + 10_500, NodeId(100))], "{nodes}");
    }
}

#[test]
fn one_that_falls_silent_beside_others_is_given_up_after_the_grace() {
    for nodes in [2, 3] {
        let mut deaf = Deaf::with(nodes);
        deaf.live(20_000);
        deaf.pass(60_000, |deaf| {
            if deaf.now_ms == 26_000 {
                deaf.miss(0, 20_000);
            }
            for (node, _) in &deaf.ids[1..] {
                deaf.held.heard(*node, deaf.now_ms);
            }
            // The others answer a ping every three seconds.
            Some(deaf.now_ms / 3_000 * 3_000)
        });
        assert_eq!((deaf.lost, deaf.alarms), (vec![(30_500, NodeId(100))], vec![]));
    }
}

#[test]
fn nodes_whose_hosts_end_the_connection_are_given_up_after_the_grace_also_all_of_them() {
    let mut deaf = Deaf::with(2);
    deaf.live(20_000);
    deaf.pass(60_000, |deaf| {
        if deaf.now_ms == 20_500 {
            deaf.miss(0, 20_500);
            deaf.miss(1, 20_500);
        }
        None
    });
    assert_eq!(deaf.lost, [(31_000, NodeId(100)), (31_000, NodeId(101))]);
    assert_eq!(deaf.alarms, []);
}

#[test]
fn the_one_node_of_a_holder_says_nothing_of_it_nor_does_the_holders_own() {
    let mut deaf = Deaf::with(1);
    open(&mut deaf.table, A, &mut deaf.held, A, 1_000);
    deaf.live(20_000);
    deaf.pass(40_000, |deaf| {
        if deaf.now_ms == 26_000 {
            deaf.miss(0, 20_000);
        }
        deaf.held.heard(A, deaf.now_ms);
        Some(20_000)
    });
    assert_eq!((deaf.lost, deaf.alarms), (vec![(30_500, NodeId(100))], vec![]));
}

#[test]
fn a_holder_that_hears_again_is_believed_again() {
    let mut deaf = Deaf::with(3);
    deaf.live(20_000);
    deaf.pass(27_000, |_| Some(20_000));
    deaf.live(60_000);
    assert_eq!((deaf.lost.len(), deaf.alarms.len()), (0, 1));
    deaf.pass(90_000, |deaf| {
        if deaf.now_ms == 66_000 {
            deaf.miss(0, 60_000);
        }
        for (node, _) in &deaf.ids[1..] {
            deaf.held.heard(*node, deaf.now_ms);
        }
        Some(deaf.now_ms)
    });
    assert_eq!((deaf.lost, deaf.alarms.len()), (vec![(70_500, NodeId(100))], 1));
}

#[test]
fn one_that_is_missed_while_its_holder_hears_nobody_for_a_moment_has_the_whole_grace() {
    let mut deaf = Deaf::with(3);
    deaf.live(20_000);
    deaf.pass(60_000, |deaf| {
        if deaf.now_ms == 24_000 {
            deaf.miss(0, 18_500);
        }
        for (node, _) in deaf.ids[1..].iter().filter(|_| deaf.now_ms > 24_000) {
            deaf.held.heard(*node, deaf.now_ms);
        }
        Some(if deaf.now_ms > 24_000 { deaf.now_ms } else { 20_000 })
    });
    assert_eq!((deaf.lost, deaf.alarms), (vec![(34_500, NodeId(100))], vec![]));
}
