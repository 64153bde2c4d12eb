//! A server that holds sessions for another one that leads: what becomes of them when a node, the leader or this server
//! is too slow.

use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;

use dhow_core::lease::{LEADER_ANSWER_MAX_MS, SessionId};
use dhow_wire::grpc::proto::{
    HeldAcks, HeldRenewal, HeldReports, HolderBeat, HolderBeatAnswer, OpenReply, OpenRequest, OpenedSession,
    RegisterReply, RegisterRequest, RenewReply, opened_session,
};
use dhow_wire::grpc::to_session;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::*;
use crate::gateway::LeaderDoor;
use crate::gateway::limits::WARM_UP_MS;

const GIVEN: SessionId = SessionId {
    term: Term(1),
    number: 4,
};

/// A leader that answers beats, and everything else when the test says so.
#[derive(Default)]
struct FakeLeader {
    beats: Mutex<Vec<HolderBeat>>,
    opens: Mutex<Vec<oneshot::Sender<OpenReply>>>,
    reports: Mutex<usize>,
    /// How many more questions it answers as one that does not lead.
    not_leading: Mutex<usize>,
}

impl FakeLeader {
    /// Gives the session that was asked for; the holder's state has to have so much.
    fn give(&self, read_index: u64) {
        let asked = self.opens.lock().unwrap().remove(0);
        let opened = OpenedSession {
            outcome: Some(opened_session::Outcome::Session(to_session(GIVEN))),
            ttl_secs: 10,
        };
        // The holder may have given up.
        let _ = asked.send(OpenReply {
            sessions: vec![opened],
            read_index,
        });
    }

    /// The sessions that it was told broke, and those that it was told ended.
    fn over(&self) -> (Vec<u64>, Vec<u64>) {
        let beats = self.beats.lock().unwrap();
        let ids = |of: fn(&HolderBeat) -> &[proto::LastSign]| {
            let signs = beats.iter().flat_map(|beat| of(beat).to_vec());
            let ids: BTreeSet<u64> = signs.map(|sign| sign.node_id).collect();
            ids.into_iter().collect()
        };
        (ids(|beat| &beat.broke), ids(|beat| &beat.ended))
    }
}

impl LeaderDoor for FakeLeader {
    fn open(&self, _: NodeId, _: OpenRequest) -> BoxFuture<'_, Result<OpenReply, Refusal>> {
        let mut not_leading = self.not_leading.lock().unwrap();
        if let Some(left) = not_leading.checked_sub(1) {
            *not_leading = left;
            return Box::pin(std::future::ready(Err(Refusal::NotLeader { leader: None })));
        }
        let (asked, answer) = oneshot::channel();
        self.opens.lock().unwrap().push(asked);
        Box::pin(async { answer.await.map_err(|_| Refusal::Busy) })
    }

    fn beat(&self, _: NodeId, beat: HolderBeat) -> BoxFuture<'_, Result<HolderBeatAnswer, Refusal>> {
        let seq = beat.seq;
        self.beats.lock().unwrap().push(beat);
        Box::pin(std::future::ready(Ok(HolderBeatAnswer {
            term: 1,
            seq,
            ttl_secs: 10,
            ..HolderBeatAnswer::default()
        })))
    }

    fn report(&self, _: NodeId, _: HeldReports) -> BoxFuture<'_, Result<HeldAcks, Refusal>> {
        *self.reports.lock().unwrap() += 1;
        Box::pin(std::future::pending())
    }

    fn register(&self, _: NodeId, _: RegisterRequest) -> BoxFuture<'_, Result<RegisterReply, Refusal>> {
        Box::pin(std::future::pending())
    }

    fn renew(&self, _: NodeId, _: HeldRenewal) -> BoxFuture<'_, Result<RenewReply, Refusal>> {
        Box::pin(std::future::pending())
    }
}

/// A holder beside its leader.
struct Held {
    door: Door,
    leader: Arc<FakeLeader>,
}

impl Held {
    async fn begin(server: TestServer) -> Self {
        let leader = Arc::new(FakeLeader::default());
        let door = Door::with(server, Some(Arc::clone(&leader) as Arc<dyn LeaderDoor>));
        tokio::spawn(door.gateway.clone().hold(door.end.clone()));
        Self { door, leader }
    }

    /// One that the leader has answered.
    async fn fresh() -> Self {
        let held = Self::begin(TestServer::start_following(&[7]).await).await;
        while !held.door.gateway.inner.holder.is_fresh() {
            held.pass(100).await;
        }
        held
    }

    fn now_ms(&self) -> u64 {
        self.door.server.clock.monotonic_ms()
    }

    /// Lets time pass, and everybody do what they do then.
    async fn pass(&self, span_ms: u64) {
        self.door.server.clock.advance(span_ms);
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    /// How long something takes, to a tenth of a second.
    async fn time_of<T>(&self, asked: impl Future<Output = T>) -> (T, u64) {
        let (mut asked, begun_ms) = (pin!(asked), self.now_ms());
        loop {
            if let Poll::Ready(answer) = futures_util::poll!(asked.as_mut()) {
                return (answer, self.now_ms() - begun_ms);
            }
            self.pass(100).await;
        }
    }
}

#[tokio::test]
async fn a_session_whose_node_went_while_it_was_asked_for_breaks() {
    for is_given_first in [true, false] {
        let held = Held::fresh().await;
        {
            let mut asked = pin!(held.door.session(member(7), hello(7)));
            while held.leader.opens.lock().unwrap().is_empty() {
                assert!(futures_util::poll!(asked.as_mut()).is_pending());
                held.pass(10).await;
            }
            if is_given_first {
                held.leader.give(0);
                // It is on its way to the node, which does not look any more.
                held.pass(10).await;
            }
        }
        if !is_given_first {
            held.leader.give(0);
        }
        held.pass(50).await;
        held.pass(500).await;
        assert_eq!(held.leader.over(), (vec![7], vec![]), "{is_given_first}");
        assert!(!held.door.gateway.inner.holder.has(NodeId(7)));
    }
}

#[tokio::test]
async fn a_session_that_this_server_is_too_old_for_ends_and_its_node_is_told_in_time() {
    let held = Held::fresh().await;
    let asked = held.door.session(member(7), hello(7));
    let given = async {
        while held.leader.opens.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // Its log never comes here.
        held.leader.give(1_000_000);
        std::future::pending::<()>().await
    };
    let answered = async {
        tokio::select! {
            answered = asked => answered,
            () = given => unreachable!("it never ends"),
        }
    };
    let (refused, took_ms) = held.time_of(answered).await;
    assert_eq!(refused.err(), Some(Refusal::Busy));
    assert!(took_ms <= LEADER_ANSWER_MAX_MS, "{took_ms}");
    held.pass(500).await;
    assert_eq!(held.leader.over(), (vec![], vec![7]));
}

#[tokio::test]
async fn who_comes_while_nobody_leads_has_its_session_from_the_next_leader() {
    let held = Held::fresh().await;
    *held.leader.not_leading.lock().unwrap() = 9;
    let given = async {
        while held.leader.opens.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        held.leader.give(0);
        std::future::pending::<()>().await
    };
    let answered = async {
        tokio::select! {
            answered = held.door.session(member(7), hello(7)) => answered,
            () = given => unreachable!("it never ends"),
        }
    };
    let (opened, took_ms) = held.time_of(answered).await;
    assert!(opened.is_ok() && held.door.gateway.inner.holder.has(NodeId(7)));
    assert!((900..LEADER_ANSWER_MAX_MS).contains(&took_ms), "{took_ms}");
    // Nobody comes to lead: the node is told in time.
    *held.leader.not_leading.lock().unwrap() = usize::MAX;
    let (refused, took_ms) = held.time_of(held.door.session(member(7), hello(7))).await;
    assert_eq!(refused.err(), Some(Refusal::Busy));
    assert!(took_ms <= LEADER_ANSWER_MAX_MS, "{took_ms}");
}

#[tokio::test]
async fn a_leader_that_hangs_is_not_waited_for_longer_than_a_node_waits() {
    let held = Held::fresh().await;
    let (refused, took_ms) = held.time_of(held.door.session(member(7), hello(7))).await;
    assert_eq!(refused.err(), Some(Refusal::Busy));
    assert!(took_ms <= LEADER_ANSWER_MAX_MS, "{took_ms}");
    // More than are on their way at a time, so that one waits for those.
    let mut reports: Vec<_> = (0..3)
        .map(|_| Box::pin(held.door.report(member(7), beat(7))))
        .collect();
    for report in &mut reports {
        assert!(futures_util::poll!(report.as_mut()).is_pending());
        held.pass(1).await;
    }
    let (refused, took_ms) = held.time_of(futures_util::future::join_all(reports)).await;
    assert_eq!(refused, [const { Err(Refusal::Busy) }; 3]);
    assert!(took_ms <= LEADER_ANSWER_MAX_MS + 100, "{took_ms}");
    // What nobody waits for any more is not sent either.
    held.pass(5_000).await;
    assert_eq!(*held.leader.reports.lock().unwrap(), 2);
}

#[tokio::test]
async fn who_comes_to_a_server_that_never_leads_in_earnest_waits_once() {
    let held = Held::begin(TestServer::start_elected(&[7]).await).await;
    let (refused, took_ms) = held.time_of(held.door.session(member(7), hello(7))).await;
    assert!(matches!(refused.err(), Some(Refusal::NotLeader { .. })));
    assert!(took_ms <= WARM_UP_MS, "{took_ms}");
}
