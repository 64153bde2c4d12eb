//! Whole control planes on copied logs, over a network inside the process that can be cut.

mod chaos;
mod net;
mod peer;

use std::collections::BTreeSet;
use std::time::Duration;

use super::message::Copies;
use super::{Claim, ClaimAnswer, CopyAnswer, CopyError};
use net::Net;
use peer::{Peer, until};

async fn cluster(count: u64) -> (Net, Vec<Peer>) {
    let net = Net::default();
    let all: Vec<u64> = (1..=count).collect();
    let mut peers = Vec::new();
    for node in &all {
        peers.push(Peer::start(*node, &all, &net));
    }
    until("the lowest leads", || peers[0].leads()).await;
    until("all follow it", || {
        peers.iter().all(|peer| peer.leader() == Some(1))
    })
    .await;
    (net, peers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lowest_leads_and_a_write_is_on_every_peer_when_it_is_acknowledged() {
    let (_net, peers) = cluster(3).await;
    peers[0].deploy("shop", "web:1").await.unwrap();
    let index = peers[0].log.beat().index;
    for peer in &peers {
        assert_eq!(peer.log.beat().index, index, "durable before it was acknowledged");
    }
    until("all have applied it", || {
        peers.iter().all(|peer| peer.has("shop", "web:1"))
    })
    .await;
    let refused = peers[1].deploy("shop", "web:2").await;
    assert!(refused.is_err(), "only the leader writes");
    let hashes: BTreeSet<_> = peers
        .iter()
        .map(|peer| peer.view.state().hash().to_string())
        .collect();
    assert_eq!(hashes.len(), 1);
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_has_everything_and_the_old_one_takes_over_again() {
    let (net, mut peers) = cluster(3).await;
    peers[0].deploy("shop", "web:1").await.unwrap();
    let first = peers.remove(0).end().await;
    until("the next lowest leads", || peers[0].leads()).await;
    assert!(peers[0].has("shop", "web:1"));
    peers[0].deploy("shop", "web:2").await.unwrap();
    peers.insert(0, first.start_again(&net));
    until("the lowest leads again", || peers[0].leads()).await;
    assert!(peers[0].has("shop", "web:2"));
    until("all follow", || peers.iter().all(|peer| peer.leader() == Some(1))).await;
    for peer in &peers {
        assert!(peer.log.kept_lost().all().is_empty());
    }
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_was_away_is_in_line_once_it_has_what_the_leader_has() {
    let (net, mut peers) = cluster(2).await;
    let at = |peer: &Peer| *peer.log.in_line().borrow();
    until("both are in line", || peers.iter().all(|peer| at(peer).is_some())).await;
    let second = peers.remove(1).end().await;
    for version in ["web:1", "web:2"] {
        peers[0].deploy("shop", version).await.unwrap();
    }
    let index = peers[0].log.beat().index;
    peers.push(second.start_again(&net));
    until("it is in line again", || at(&peers[1]).is_some()).await;
    assert!(at(&peers[1]) >= Some(index));
    until("it has applied that", || peers[1].has("shop", "web:2")).await;
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_takes_its_leave_is_followed_at_once() {
    let (_net, mut peers) = cluster(2).await;
    peers[0].log.leave().await;
    until("the next lowest leads", || peers[1].leads()).await;
    assert!(!peers[0].leads());
    peers[1].deploy("shop", "web:1").await.unwrap();
    peers.truncate(2);
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_both_halves_wrote_is_kept_and_the_one_with_more_changes_wins() {
    let (net, peers) = cluster(3).await;
    peers[0].deploy("shop", "web:1").await.unwrap();
    net.isolate(1, &[2, 3]);
    until("the others have a leader", || peers[1].leads()).await;
    peers[0].deploy("shop", "web:lost").await.unwrap();
    peers[1].deploy("shop", "web:2").await.unwrap();
    peers[1].deploy("shop", "web:3").await.unwrap();
    net.heal();
    until("the lowest leads all again", || {
        peers[0].leads() && peers.iter().all(|peer| peer.leader() == Some(1))
    })
    .await;
    until("what won is everywhere", || {
        peers.iter().all(|peer| peer.has("shop", "web:3"))
    })
    .await;
    let lost = peers[0].log.kept_lost().all();
    assert_eq!(lost.revisions.len(), 1, "{lost:?}");
    let images = lost.revisions[0].spec.services.values();
    let images: Vec<_> = images
        .map(|service| service.image.clone().unwrap().name)
        .collect();
    assert_eq!(images, ["web:lost"]);
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_on_which_nobody_wrote_never_wins() {
    let (net, mut peers) = cluster(3).await;
    peers[0].deploy("shop", "web:1").await.unwrap();
    net.isolate(3, &[1, 2]);
    for _ in 0..3 {
        until("it leads alone", || peers[2].leads()).await;
        // Each restart is an epoch more.
        let ended = peers.remove(2).end().await;
        peers.push(ended.start_again(&net));
    }
    until("it leads alone", || peers[2].leads()).await;
    peers[0].deploy("shop", "web:2").await.unwrap();
    assert!(peers[2].log.promised() > peers[0].log.promised());
    net.heal();
    until("all follow the lowest", || {
        peers.iter().all(|peer| peer.leader() == Some(1))
    })
    .await;
    until("what was written is everywhere", || {
        peers.iter().all(|peer| peer.has("shop", "web:2"))
    })
    .await;
    for peer in &peers {
        assert!(peer.log.kept_lost().all().is_empty());
    }
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_alone_does_not_hear_the_leader_does_not_take_its_place() {
    let (net, peers) = cluster(3).await;
    net.cut(2, 1);
    net.cut(1, 2);
    // Longer than the threshold: it would have claimed by then.
    tokio::time::sleep(Duration::from_millis(3 * peer::THRESHOLD_MS)).await;
    assert!(!peers[1].leads());
    assert!(peers[0].leads());
    peers[0].deploy("shop", "web:1").await.unwrap();
    until("the other one has it", || peers[2].has("shop", "web:1")).await;
    net.heal();
    until("and so has this one", || peers[1].has("shop", "web:1")).await;
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deposed_leader_sends_late_is_refused() {
    let (_net, peers) = cluster(2).await;
    let (follower, epoch) = (&peers[1].log, peers[0].log.promised());
    let older = Copies {
        node: 1,
        epoch: epoch - 1,
        entries: Vec::new(),
    };
    let answer = follower.copies(older).await.unwrap();
    assert_eq!(answer, CopyAnswer::Promised { epoch });
    let claim = |node, epoch| Claim { node, epoch };
    let answer = follower.claim(claim(1, epoch - 1)).await.unwrap();
    assert_eq!(answer, ClaimAnswer::Promised { epoch });
    let answer = peers[0].log.claim(claim(2, epoch + 9)).await.unwrap();
    assert_eq!(answer, ClaimAnswer::Lower { node: 1 });
    let newer = Copies {
        node: 1,
        epoch: epoch + 2,
        entries: Vec::new(),
    };
    let answer = follower.copies(newer).await.unwrap();
    assert!(
        matches!(answer, CopyAnswer::Behind { .. }),
        "it was not claimed: {answer:?}"
    );
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_was_away_is_brought_up_to_date() {
    let (net, mut peers) = cluster(2).await;
    let second = peers.remove(1).end().await;
    for number in 0..40 {
        peers[0].deploy("shop", &format!("web:{number}")).await.unwrap();
    }
    peers.push(second.start_again(&net));
    until("it has everything", || peers[1].has("shop", "web:39")).await;
    assert_eq!(peers[1].log.beat().epoch, peers[0].log.promised());
    Peer::end_all(peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_that_nobody_can_have_reached_shuts_nobody_out() {
    let (_net, peers) = cluster(2).await;
    let before = peers[1].log.beat().promised;
    for epoch in [u64::MAX, u64::MAX / 2, 1 << 40] {
        let claim = Claim { node: 1, epoch };
        let answer = peers[1].log.claim(claim).await.unwrap();
        assert_eq!(answer, ClaimAnswer::Promised { epoch: before });
    }
    assert_eq!(peers[1].log.beat().promised, before);
    peers[0].deploy("shop", "web:1").await.unwrap();
    until("it is followed as before", || peers[1].has("shop", "web:1")).await;
    let claim = Claim {
        node: 1,
        epoch: before + (1 << 21),
    };
    let answer = peers[1].log.claim(claim).await.unwrap();
    assert!(
        matches!(answer, ClaimAnswer::Granted(_)),
        "a cluster that was begun anew: {answer:?}"
    );
    Peer::end_all(peers).await;
}

/// What is written to a directory that is gone is nowhere after the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_whose_directory_is_gone_promises_and_takes_nothing() {
    let (_net, peers) = cluster(2).await;
    let before = peers[1].log.beat();
    peers[1].storage.set_gone(true);
    let claim = Claim {
        node: 1,
        epoch: before.promised + 2,
    };
    assert!(matches!(peers[1].log.claim(claim).await, Err(CopyError::Gone)));
    let copies = Copies {
        node: 1,
        epoch: before.promised,
        entries: Vec::new(),
    };
    assert!(matches!(peers[1].log.copies(copies).await, Err(CopyError::Gone)));
    assert_eq!(peers[1].log.beat().promised, before.promised);
    Peer::end_all(peers).await;
}
