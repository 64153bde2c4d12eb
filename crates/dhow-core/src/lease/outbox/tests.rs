//! What waits for the leader: together, in bounds, in time.

use super::*;

fn entered(outbox: &mut Outbox<&'static str>, node: u64, size_bytes: usize, name: &'static str) {
    outbox
        .enter((NodeId(node), size_bytes), name, (0, LEADER_ANSWER_MAX_MS))
        .unwrap();
}

#[test]
fn one_message_holds_no_more_than_the_leader_takes() {
    let mut outbox = Outbox::new(OutboxKind::Reports);
    let large = TOGETHER_BYTES_MAX / 2;
    let sizes = [
        ("a", 1),
        ("b", 1),
        ("c", 2 * TOGETHER_BYTES_MAX),
        ("d", large),
        ("e", large),
    ];
    for (node, (name, size_bytes)) in (1..).zip(sizes) {
        entered(&mut outbox, node, size_bytes, name);
    }
    let mut told = Vec::new();
    while let Some(parcel) = outbox.next(0, |_| false) {
        told.push(parcel.asked.concat());
        outbox.done(parcel.id);
    }
    assert_eq!(told, ["ab", "c", "de"]);
    for node in 0..=TOGETHER_MAX {
        entered(&mut outbox, node as u64, 1, "x");
    }
    assert_eq!(outbox.next(0, |_| false).unwrap().asked.len(), TOGETHER_MAX);
}

#[test]
fn one_node_takes_no_more_than_its_part() {
    let mut outbox = Outbox::new(OutboxKind::Reports);
    for _ in 0..REPORTS_OF_NODE_MAX {
        entered(&mut outbox, 7, 8, "r");
    }
    let enter =
        |outbox: &mut Outbox<_>, node, size_bytes| outbox.enter((NodeId(node), size_bytes), "s", (0, 9));
    assert_eq!(enter(&mut outbox, 7, 8), Err(OutboxFull::OfNode));
    let rest = PASSED_ON_BYTES_MAX - 8 * REPORTS_OF_NODE_MAX;
    assert_eq!(enter(&mut outbox, 8, rest), Ok(()));
    assert_eq!(enter(&mut outbox, 9, 1), Err(OutboxFull::OfAll));
    // What is on its way counts until it is done.
    let parcel = outbox.next(0, |_| false).unwrap();
    assert_eq!(enter(&mut outbox, 7, 8), Err(OutboxFull::OfNode));
    outbox.done(parcel.id);
    outbox.done(parcel.id);
    assert_eq!(enter(&mut outbox, 7, 8), Ok(()));
    while let Some(parcel) = outbox.next(0, |_| false) {
        outbox.done(parcel.id);
    }
    assert_eq!((outbox.size_bytes, outbox.of_nodes.len()), (0, 0));
}

#[test]
fn few_messages_are_on_their_way_at_a_time() {
    let mut outbox = Outbox::new(OutboxKind::Sessions);
    let mut sent = Vec::new();
    for node in 0..3 {
        entered(&mut outbox, node, 1, "x");
        assert_eq!(outbox.wakes_at_ms().is_some(), sent.len() < MESSAGES_AT_ONCE);
        assert!(
            outbox.next(GATHER_MS - 1, |_| false).is_none(),
            "it waits for others"
        );
        sent.extend(outbox.next(GATHER_MS, |_| false));
    }
    assert_eq!(sent.len(), MESSAGES_AT_ONCE);
    outbox.done(sent[0].id);
    assert_eq!(outbox.next(GATHER_MS, |_| false).unwrap().asked, ["x"]);
}

#[test]
fn who_has_gone_is_left_out_and_who_is_late_is_told() {
    let mut outbox = Outbox::new(OutboxKind::Sessions);
    for (node, name, until_ms) in [
        (1, "late", 60),
        (2, "gone", 4_000),
        (3, "first", 2_000),
        (4, "last", 3_000),
    ] {
        outbox.enter((NodeId(node), 1), name, (0, until_ms)).unwrap();
    }
    let parcel = outbox.next(50, |name| *name == "gone").unwrap();
    assert_eq!((parcel.late, parcel.asked), (vec!["late"], vec!["first", "last"]));
    assert_eq!(parcel.until_ms, 2_000 - GATHER_MS);
    outbox.done(parcel.id);
    assert_eq!((outbox.size_bytes, outbox.of_nodes.len()), (0, 0));

    let mut outbox = Outbox::new(OutboxKind::Reports);
    outbox.enter((NodeId(1), 1), "late", (0, 40)).unwrap();
    let parcel = outbox.next(50, |_| false).unwrap();
    assert_eq!((parcel.late, parcel.asked.len()), (vec!["late"], 0));
    assert!(outbox.on_its_way.is_empty());
}

#[test]
fn what_finds_no_room_is_refused() {
    let mut outbox = Outbox::new(OutboxKind::Sessions);
    for node in 0..SESSIONS_WAITING_MAX {
        entered(&mut outbox, node as u64, 1, "x");
    }
    let full = outbox.enter((NodeId(0), 1), "x", (0, 9));
    assert_eq!(full, Err(OutboxFull::OfAll));
}
