//! The rules of liveness one by one, and the table against a model that simply looks at every lease.

mod model;

use super::*;

const CONFIG: AdaptiveTtlConfig = AdaptiveTtlConfig {
    min_ttl_secs: 10,
    max_ttl_secs: 600,
    grace_secs: 10,
    max_heartbeats_per_second: 50,
    failover_ttl_secs: 300,
};

fn nodes(count: u64) -> impl Iterator<Item = NodeId> {
    (1..=count).map(NodeId)
}

/// A table of so many nodes that all reported at 1,000 ms with a time to live of 200 s.
fn table_of(count: u64) -> LeaseTable {
    let mut table = LeaseTable::new(CONFIG);
    for node in nodes(count) {
        assert_eq!(table.renew(node, 1_000, 200), Renewal::Opened);
    }
    table
}

fn on_time(table: &mut LeaseTable, now_ms: u64) -> Vec<NodeId> {
    let ticked = table.advance(now_ms, now_ms);
    assert_eq!(ticked.alarm, None);
    ticked.expired
}

#[test]
fn a_lease_lives_up_to_and_including_ttl_and_grace() {
    let mut table = table_of(1);
    assert_eq!(on_time(&mut table, 211_000), []);
    assert_eq!(on_time(&mut table, 211_001), [NodeId(1)]);
    assert!(table.is_empty());
    assert_eq!(on_time(&mut table, 900_000), [], "it expires once");
    assert_eq!(table.renew(NodeId(1), 900_000, 10), Renewal::Opened, "it is back");
    assert_eq!(table.renew(NodeId(1), 900_000, 10), Renewal::Renewed);
}

#[test]
fn evidence_ends_the_ttl_at_the_last_sign() {
    let mut table = table_of(1);
    assert_eq!(table.evidence_of_death(NodeId(1), 5_000, 6_000), None);
    assert_eq!(on_time(&mut table, 15_000), []);
    assert_eq!(on_time(&mut table, 15_001), [NodeId(1)]);
}

#[test]
fn a_heartbeat_answers_evidence() {
    let mut table = table_of(1);
    table.evidence_of_death(NodeId(1), 5_000, 6_000);
    table.renew(NodeId(1), 7_000, 200);
    assert_eq!(on_time(&mut table, 217_000), []);
    // A report about the old connection that comes late says nothing about the new one.
    assert_eq!(table.evidence_of_death(NodeId(1), 5_000, 217_000), None);
    assert_eq!(table.deadline_ms(NodeId(1)), Some(217_000));
    // The heartbeat itself may be the last sign on a connection that then breaks.
    table.evidence_of_death(NodeId(1), 7_000, 217_000);
    assert_eq!(table.deadline_ms(NodeId(1)), Some(17_000));
    assert_eq!(on_time(&mut table, 217_000), [NodeId(1)]);
}

#[test]
fn evidence_never_lengthens_a_lease_and_unknown_nodes_are_ignored() {
    let mut table = table_of(1);
    table.evidence_of_death(NodeId(1), 5_000_000, 6_000);
    assert_eq!(table.deadline_ms(NodeId(1)), Some(211_000));
    table.evidence_of_death(NodeId(1), u64::MAX, 6_000);
    assert_eq!(table.deadline_ms(NodeId(1)), Some(211_000));
    assert_eq!(table.evidence_of_death(NodeId(9), 0, 0), None);
    assert!(!table.remove(NodeId(9)));
    assert!(table.remove(NodeId(1)));
    assert_eq!(on_time(&mut table, u64::MAX), []);
}

#[test]
fn after_an_election_everybody_has_the_failover_ttl_and_the_old_leader_is_noticed() {
    let mut table = table_of(3);
    table.evidence_of_death(NodeId(3), 1_000, 2_000);
    table.after_election(20_000, nodes(4));
    assert_eq!(table.len(), 4);
    for node in nodes(4) {
        assert_eq!(table.deadline_ms(node), Some(330_000));
    }
    // The last sign of the old leader lies before the election that its death caused.
    table.evidence_of_death(NodeId(1), 19_500, 20_100);
    assert_eq!(on_time(&mut table, 29_500), []);
    assert_eq!(on_time(&mut table, 29_501), [NodeId(1)]);
    assert_eq!(on_time(&mut table, 330_000), []);
    assert_eq!(on_time(&mut table, 330_001).len(), 3);
}

#[test]
fn more_than_half_silent_holds_expiry() {
    for (count, alarm_at) in [(20, Some(11)), (21, Some(11)), (22, Some(12)), (19, None)] {
        let mut table = table_of(count);
        for node in nodes(count) {
            let alarm = table.evidence_of_death(node, 1_000, 2_000);
            if Some(node.0) == alarm_at {
                let (silent, nodes) = (node.0 as usize, count as usize);
                assert_eq!(alarm, Some(LeaseAlarm::ManySilent { silent, nodes }));
            } else {
                assert_eq!(alarm, None, "{count} nodes, evidence on {node}");
            }
        }
        let expected = if alarm_at.is_some() { 0 } else { 19 };
        assert_eq!(on_time(&mut table, 11_001).len(), expected, "{count} nodes");
        if alarm_at.is_some() {
            assert_eq!(on_time(&mut table, 312_000), []);
            assert_eq!(
                on_time(&mut table, 312_001).len(),
                count as usize,
                "held, not lost"
            );
        }
    }
}

#[test]
fn evidence_counts_for_one_grace_and_while_it_stands() {
    let mut table = table_of(20);
    for node in nodes(10) {
        assert_eq!(table.evidence_of_death(node, 2_000, 2_000), None);
    }
    // Ten have fallen silent and expired; they still count among the twenty.
    assert_eq!(on_time(&mut table, 12_000), []);
    assert_eq!(
        table.evidence_of_death(NodeId(11), 12_000, 12_000),
        Some(LeaseAlarm::ManySilent {
            silent: 11,
            nodes: 20
        })
    );

    let mut table = table_of(20);
    for node in nodes(10) {
        table.evidence_of_death(node, 2_000, 2_000);
    }
    assert_eq!(
        table.evidence_of_death(NodeId(11), 12_001, 12_001),
        None,
        "the first ten are a grace old"
    );

    let mut table = table_of(20);
    for node in nodes(20) {
        table.evidence_of_death(node, 2_000, 2_000);
        table.renew(node, 2_001, 200);
    }
    assert_eq!(
        on_time(&mut table, 202_001),
        [],
        "a rolling restart is no illness"
    );
}

#[test]
fn those_who_expired_within_the_window_still_count() {
    let mut table = table_of(30);
    for node in nodes(10) {
        assert_eq!(table.evidence_of_death(node, 1_000, 8_000), None);
    }
    assert_eq!(on_time(&mut table, 11_001).len(), 10);
    for node in (11..=15).map(NodeId) {
        assert_eq!(table.evidence_of_death(node, 11_001, 11_001), None);
    }
    let alarm = LeaseAlarm::ManySilent {
        silent: 16,
        nodes: 30,
    };
    assert_eq!(table.evidence_of_death(NodeId(16), 11_001, 11_001), Some(alarm));
}

#[test]
fn a_held_table_trusts_evidence_only_against_those_it_has_heard_again() {
    let mut table = table_of(40);
    for node in nodes(21) {
        table.evidence_of_death(node, 1_000, 2_000);
    }
    for node in (22..=40).map(NodeId) {
        assert_eq!(table.evidence_of_death(node, 1_000, 2_100), None);
        assert_eq!(table.deadline_ms(node), Some(312_000));
    }
    table.renew(NodeId(5), 3_000, 200);
    table.evidence_of_death(NodeId(5), 3_000, 4_000);
    assert_eq!(on_time(&mut table, 13_001), [NodeId(5)]);
}

/// Leases of a leader that has gone deaf run out one after the other, spread as the heartbeats were.
#[test]
fn heartbeats_that_do_not_come_hold_expiry_before_anybody_is_given_up() {
    let mut table = LeaseTable::new(CONFIG);
    for node in nodes(40) {
        table.renew(node, node.0 * 250, 10);
    }
    let mut alarm = None;
    for now_ms in (10_000..=30_000).step_by(500) {
        let ticked = table.advance(now_ms, now_ms);
        assert_eq!(ticked.expired, [], "at {now_ms} ms");
        alarm = alarm.or(ticked.alarm.map(|alarm| (now_ms, alarm)));
    }
    let (at_ms, alarm) = alarm.unwrap();
    assert!(at_ms < 20_250, "before the first lease would have run out");
    let (silent, nodes) = (21, 40);
    assert_eq!(alarm, LeaseAlarm::ManySilent { silent, nodes });
    let end_ms = at_ms + 310_000;
    assert_eq!(on_time(&mut table, end_ms), []);
    assert_eq!(
        on_time(&mut table, end_ms + 1).len(),
        40,
        "they do not count again"
    );
}

#[test]
fn half_of_the_heartbeats_staying_away_is_no_alarm() {
    let mut table = LeaseTable::new(CONFIG);
    let mut lost = Vec::new();
    for now_ms in (0..60_000).step_by(500) {
        for node in nodes(40).filter(|node| node.0 > 20 || now_ms < 5_000) {
            table.renew(node, now_ms, 10);
        }
        lost.extend(on_time(&mut table, now_ms));
    }
    assert_eq!(lost, nodes(20).collect::<Vec<_>>());
}

#[test]
fn who_was_not_heard_in_a_hold_goes_at_its_end_whatever_befalls_the_others() {
    let mut table = table_of(40);
    for node in nodes(21) {
        table.evidence_of_death(node, 1_000, 2_000);
    }
    // All but ten are heard again, and fall silent together when the hold of those ten ends.
    for node in (11..=40).map(NodeId) {
        table.renew(node, 300_000, 200);
    }
    for node in (11..=33).map(NodeId) {
        table.evidence_of_death(node, 311_500, 311_900);
    }
    assert_eq!(table.deadline_ms(NodeId(1)), Some(312_000), "not held again");
    assert_eq!(on_time(&mut table, 312_001), nodes(10).collect::<Vec<_>>());
    assert_eq!(table.len(), 30);
}

#[test]
fn who_was_never_heard_after_an_election_is_known() {
    let mut table = LeaseTable::new(CONFIG);
    table.after_election(20_000, nodes(2));
    table.renew(NodeId(2), 21_000, 10);
    assert!(table.is_unheard(NodeId(1)));
    assert!(!table.is_unheard(NodeId(2)) && !table.is_unheard(NodeId(3)));
}

#[test]
fn a_late_timer_holds_expiry() {
    let mut table = table_of(1);
    assert_eq!(on_time(&mut table, 100_000), []);
    let ticked = table.advance(400_000, 101_000);
    assert_eq!(ticked.expired, []);
    assert_eq!(ticked.alarm, Some(LeaseAlarm::LateTimer { late_ms: 299_000 }));
    assert_eq!(table.deadline_ms(NodeId(1)), Some(710_000));

    let mut table = table_of(1);
    let ticked = table.advance(216_000, 211_000);
    assert_eq!(ticked.expired, [NodeId(1)], "half a grace late is not too late");
    assert_eq!(
        LeaseTable::new(CONFIG).advance(1_000_000, 0).alarm,
        None,
        "an empty table misses nobody"
    );
}

#[test]
fn a_grace_of_zero_still_expires() {
    let mut table = LeaseTable::new(AdaptiveTtlConfig {
        grace_secs: 0,
        ..CONFIG
    });
    table.renew(NodeId(1), 0, 10);
    let ticked = table.advance(10_020, 10_001);
    assert_eq!((ticked.expired, ticked.alarm), (vec![NodeId(1)], None));
}

#[test]
fn a_shorter_grace_in_the_configuration_takes_nothing_back() {
    let mut table = table_of(1);
    table.set_config(AdaptiveTtlConfig {
        grace_secs: 1,
        ..CONFIG
    });
    assert_eq!(table.deadline_ms(NodeId(1)), Some(211_000));
    table.evidence_of_death(NodeId(1), 1_000, 1_000);
    assert_eq!(table.deadline_ms(NodeId(1)), Some(11_000));
    table.renew(NodeId(1), 2_000, 10);
    assert_eq!(table.deadline_ms(NodeId(1)), Some(13_000));
}

#[test]
fn a_clock_that_runs_backwards_expires_nobody() {
    let mut table = table_of(3);
    assert_eq!(on_time(&mut table, 100_000), []);
    table.evidence_of_death(NodeId(1), 1_000, 100_000);
    for now_ms in [99_999, 50_000, 0] {
        assert_eq!(on_time(&mut table, now_ms), []);
    }
    // A heartbeat with an old time counts from the present.
    table.renew(NodeId(2), 0, 10);
    assert_eq!(table.deadline_ms(NodeId(2)), Some(120_000));
    assert_eq!(on_time(&mut table, 100_000), [NodeId(1)]);
}

#[test]
fn the_next_ttl_follows_the_number_of_leases() {
    assert_eq!(LeaseTable::new(CONFIG).next_ttl_secs(), 10);
    assert_eq!(table_of(1_000).next_ttl_secs(), 20);
}

/// Ten thousand nodes for an hour of their time; with a scan per heartbeat this would not end soon.
#[test]
fn ten_thousand_leases() {
    let mut table = LeaseTable::new(CONFIG);
    table.after_election(0, nodes(10_000));
    let ttl_secs = table.next_ttl_secs();
    assert_eq!(ttl_secs, 200);
    let mut reports: Vec<(u64, NodeId)> = nodes(9_999).map(|node| (node.0 * 20, node)).collect();
    let mut expired = Vec::new();
    for round in 0..18 {
        for (at_ms, node) in &mut reports {
            assert_eq!(table.renew(*node, *at_ms, ttl_secs), Renewal::Renewed);
            *at_ms += 200_000;
        }
        expired.extend(on_time(&mut table, 200_000 * (round + 1)));
    }
    assert_eq!(expired, [NodeId(10_000)], "the one that never reported");
    assert_eq!(table.len(), 9_999);
}

/// A caller that sleeps until the table asks to be woken finds each expiry in its first millisecond.
#[test]
fn waking_when_asked_misses_nothing() {
    let mut table = LeaseTable::new(CONFIG);
    // So few that their silence is no alarm.
    for node in nodes(19) {
        table.renew(node, node.0 * 777, 200);
    }
    let mut seen = Vec::new();
    while let Some(wake_ms) = table.next_wake_ms() {
        for node in on_time(&mut table, wake_ms) {
            assert_eq!(wake_ms, node.0 * 777 + 210_001);
            seen.push(node);
        }
    }
    assert_eq!(seen, nodes(19).collect::<Vec<_>>());
}
