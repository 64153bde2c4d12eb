//! Members among themselves.

use bytes::Bytes;
use dhow_core::ids::NodeId;

use super::support::{PATIENCE, Server, ask, ask_on, key, tls, transport};
use crate::net::peers::tls::PeerCounts;
use crate::net::peers::{FRAME_BYTES_MAX, Lane, PeerError, PeerTransport};

#[tokio::test]
async fn servers_with_one_key_talk() {
    let key = key();
    let one = Server::start(1, tls(&key, 1)).await;
    let two = Server::start(2, tls(&key, 2)).await;
    assert_eq!(one.transport.last_heard(NodeId(2)), None);
    assert_eq!(
        ask(&one.transport, 2, two.addr, "hello").await.unwrap(),
        "1: hello"
    );
    assert_eq!(
        ask(&two.transport, 1, one.addr, "and you").await.unwrap(),
        "2: and you"
    );
    for (server, peer) in [(&one, NodeId(2)), (&two, NodeId(1))] {
        assert!(server.transport.last_heard(peer).is_some());
        let heard_ms = server.transport.last_heard_ms(peer, 1_000_000).unwrap();
        assert!((900_000..=1_000_000).contains(&heard_ms));
        assert!(!server.transport.is_unreachable(peer));
        let counts = PeerCounts {
            asked: 1,
            answered: 1,
            failed: 0,
            connected: 1,
            heard: 1,
        };
        assert_eq!(server.transport.counts(peer), counts);
        assert_eq!(server.transport.refused(), 0);
    }
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn questions_overtake_each_other_on_one_connection_for_each_lane() {
    let key = key();
    let (one, two) = (
        Server::start(1, tls(&key, 1)).await,
        Server::start(2, tls(&key, 2)).await,
    );
    let slow = ask(&one.transport, 2, two.addr, "hold on");
    tokio::pin!(slow);
    let quick = async {
        two.echo.holding.notified().await;
        let answers = futures_util::future::join_all((0..100).map(|number| {
            let one = &one;
            async move {
                ask(&one.transport, 2, two.addr, &format!("q{number}"))
                    .await
                    .unwrap()
            }
        }));
        for (number, answer) in answers.await.into_iter().enumerate() {
            assert_eq!(answer, format!("1: q{number}"));
        }
        assert_eq!(one.transport.counts(NodeId(2)).connected, 1);
        ask_on(&one.transport, 2, two.addr, Lane::Snapshot, "part")
            .await
            .unwrap();
        assert_eq!(one.transport.counts(NodeId(2)).connected, 2);
    };
    tokio::select! {
        early = &mut slow => panic!("{early:?}"),
        () = quick => {}
    }
    two.echo.go.notify_one();
    assert_eq!(slow.await.unwrap(), "1: hold on");
}

#[tokio::test]
async fn the_largest_question_passes_and_a_larger_one_is_not_sent() {
    let key = key();
    let two = Server::start(2, tls(&key, 2)).await;
    let one = transport(1, tls(&key, 1));
    let ask = |size_bytes: usize| {
        let question = Bytes::from(vec![b'x'; size_bytes]);
        one.ask(2, two.addr, Lane::Snapshot, question, PATIENCE)
    };
    assert!(ask(FRAME_BYTES_MAX).await.unwrap().starts_with(b"1: xxx"));
    let size_bytes = FRAME_BYTES_MAX + 1;
    assert_eq!(
        ask(size_bytes).await.unwrap_err(),
        PeerError::TooLarge { size_bytes }
    );
    assert!(!one.is_unreachable(NodeId(2)), "that says nothing about the peer");
    assert_eq!(two.heard(), 1);
}

#[tokio::test]
async fn a_server_that_was_away_is_reached_again() {
    let key = key();
    let one = Server::start(1, tls(&key, 1)).await;
    let two = Server::start(2, tls(&key, 2)).await;
    let addr = two.addr;
    ask(&one.transport, 2, addr, "hello").await.unwrap();
    two.stop().await;
    // The first may find the connection broken, later ones find nobody.
    let mut unreached = ask(&one.transport, 2, addr, "gone").await.unwrap_err();
    while matches!(unreached, PeerError::Broken { .. }) {
        unreached = ask(&one.transport, 2, addr, "gone").await.unwrap_err();
    }
    assert!(matches!(unreached, PeerError::Unreachable { .. }), "{unreached}");
    assert!(one.transport.is_unreachable(NodeId(2)));
    let two = Server::start_at(2, tls(&key, 2), addr).await;
    // It calls, so that nobody waits for the end of a pause.
    ask(&two.transport, 1, one.addr, "back").await.unwrap();
    assert!(!one.transport.is_unreachable(NodeId(2)));
    assert_eq!(ask(&one.transport, 2, addr, "hello").await.unwrap(), "1: hello");
}

#[tokio::test]
async fn a_connection_to_an_earlier_process_is_dropped_at_once() {
    let key = key();
    let one = Server::start(1, tls(&key, 1)).await;
    let two = Server::start(2, tls(&key, 2)).await;
    let waiting = ask(&one.transport, 2, two.addr, "hold on");
    let anew = async {
        two.echo.holding.notified().await;
        // The same node as another process, while the old connection still looks alive.
        let reborn = transport(2, tls(&key, 2));
        ask(&reborn, 1, one.addr, "back").await.unwrap();
    };
    let (broken, ()) = tokio::join!(waiting, anew);
    let broken = broken.unwrap_err();
    assert!(
        matches!(&broken, PeerError::Broken { why, .. } if why.contains("anew")),
        "{broken}"
    );
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_not_waited_for() {
    let key = key();
    let two = Server::start(2, tls(&key, 2)).await;
    let one = transport(1, tls(&key, 1));
    ask(&one, 2, two.addr, "hello").await.unwrap();
    let short = std::time::Duration::from_millis(1);
    let late = one
        .ask(2, two.addr, Lane::Log, Bytes::from_static(b"hold"), short)
        .await;
    assert_eq!(late, Err(PeerError::TimedOut { node: 2 }));
    assert!(one.is_unreachable(NodeId(2)));
    // The connection is kept: one slow answer is no sign of death.
    ask(&one, 2, two.addr, "hello").await.unwrap();
    assert_eq!(one.counts(NodeId(2)).connected, 1);
    two.echo.go.notify_one();
    drop(one);
    two.stop().await;
}
