//! This server as a holder of sessions: what it tells the leader of them, twice a second and whenever one opens or
//! breaks, and whether it is fresh enough to serve. The leader is a holder like the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::NodeId;
use dhow_core::lease::{
    FreshServer, Freshness, HeldSessions, HolderBeat, HolderBeatAnswer, HolderSight, LEADER_ANSWER_MAX_MS,
    Move, OutboxKind, SessionId,
};
use dhow_core::state::State;
use dhow_wire::grpc::proto::status_report::Body;
use dhow_wire::grpc::proto::{
    HeldRenewal, HeldReport, HeldReports, OpenReply, OpenRequest, OpenSession, RegisterReply,
    RegisterRequest, RenewReply, StatusAck, held_ack,
};
use dhow_wire::grpc::{Refusal, from_answer, held_report_bytes, open_session_bytes, to_beat};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::carrier::{Answers, Carried, Carrier};
use super::given::{Unserved, given_in};
use super::leader_door::LeaderDoor;
use super::limits::{ASKED_OFTEN_MAX, HEARTBEATS_GATHER_MS, LEADER_AGAIN_MS};
use super::sessions::Sessions;
use crate::clock::Clock;
use crate::plane::leases::Leases;
use crate::plane::log::Leadership;
use crate::plane::runtime::RuntimeView;

/// A holder; cheap to clone.
#[derive(Clone)]
pub(super) struct Holder(Arc<HolderState>);

/// What the clones of a holder and its tasks share.
struct HolderState {
    own: NodeId,
    held: Mutex<HeldSessions>,
    sessions: Sessions,
    leases: Leases,
    view: RuntimeView,
    clock: Arc<dyn Clock>,
    /// The way to another server that leads. Without one only the leader takes sessions.
    door: Option<Arc<dyn LeaderDoor>>,
    /// How long a server has to be fresh before nodes are sent to it.
    move_after_ms: u64,
    /// Sessions have opened or broken.
    news: Notify,
    /// What became of the last beat.
    beaten: watch::Sender<Beaten>,
    openings: Carrier<OpenSession, Unserved>,
    reports: Carrier<HeldReport, StatusAck>,
    heartbeats: Carrier<HeldReport, StatusAck>,
}

/// What became of the beats so far.
#[derive(Clone, Copy, Debug, Default)]
struct Beaten {
    count: u64,
    /// The leader is of an older version, and takes all sessions itself.
    is_led_by_older: bool,
}

impl Holder {
    pub fn new(
        leases: Leases,
        view: RuntimeView,
        clock: Arc<dyn Clock>,
        door: Option<Arc<dyn LeaderDoor>>,
        move_after_ms: u64,
    ) -> Self {
        Self(Arc::new(HolderState {
            own: leases.own(),
            held: Mutex::new(HeldSessions::new(rand::random())),
            sessions: Sessions::default(),
            leases,
            view,
            clock,
            door,
            move_after_ms,
            news: Notify::new(),
            beaten: watch::Sender::default(),
            openings: Carrier::new(OutboxKind::Sessions),
            reports: Carrier::new(OutboxKind::Reports),
            heartbeats: Carrier::new(OutboxKind::Reports),
        }))
    }

    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    pub fn boot(&self) -> u64 {
        self.held().boot()
    }

    /// Whether only a leader takes sessions here.
    pub fn is_alone(&self) -> bool {
        self.0.door.is_none()
    }

    /// Whether this server has a session of the node.
    pub fn has(&self, node: NodeId) -> bool {
        self.held().has(node)
    }

    /// Whether this server may serve nodes while another one leads.
    pub fn is_fresh(&self) -> bool {
        let shared = &self.0;
        let applied_index = shared.view.applied_index();
        let now_ms = shared.clock.monotonic_ms();
        shared.door.is_some() && self.held().freshness(now_ms, applied_index) == Freshness::Fresh
    }

    /// Whether only the leader takes sessions, because it knows no other way.
    pub fn is_led_by_older(&self) -> bool {
        self.is_alone() || self.0.beaten.borrow().is_led_by_older
    }

    /// Waits until this server may serve nodes while another one leads, where it soon may.
    pub async fn until_fresh(&self, until_ms: u64) -> bool {
        let mut beaten = self.0.beaten.subscribe();
        let fresh = async {
            while !self.is_fresh() {
                if self.is_led_by_older() || beaten.changed().await.is_err() {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        self.in_time(until_ms, fresh).await.unwrap_or(false)
    }

    /// A node was heard, in a session or not; the time to live that it is granted.
    pub fn heard(&self, node: NodeId) -> u32 {
        let now_ms = self.0.clock.monotonic_ms();
        let mut held = self.held();
        held.heard(node, now_ms);
        held.ttl_secs()
    }

    /// The leader has given a node this session here.
    pub fn opened(&self, node: NodeId, session: SessionId) {
        let now_ms = self.0.clock.monotonic_ms();
        self.held().opened(node, session, now_ms);
        self.0.news.notify_one();
    }

    /// This server has ended a session.
    pub fn ended(&self, node: NodeId, session: SessionId, last_sign_ms: u64) {
        self.held().ended(node, session, last_sign_ms);
    }

    /// A session broke.
    pub fn broke(&self, node: NodeId, session: SessionId, last_sign_ms: u64) {
        let now_ms = self.0.clock.monotonic_ms();
        self.held().broke(node, session, last_sign_ms, now_ms);
        // The leader says it to itself at once.
        let leases = &self.0.leases;
        leases.session_broke(self.0.own, (node, session), last_sign_ms);
        self.0.news.notify_one();
    }

    /// A session that the leader has given was not served: its node went before.
    pub fn broke_unserved(&self, node: NodeId, session: SessionId) {
        let now_ms = self.0.clock.monotonic_ms();
        self.held().broke_unserved(node, session, now_ms);
        self.0.news.notify_one();
    }

    /// Until when the leader is waited for on behalf of a node that asks now.
    pub fn answered_until_ms(&self) -> u64 {
        self.0.clock.monotonic_ms().saturating_add(LEADER_ANSWER_MAX_MS)
    }

    /// Asks the leader, which is another server, for a session.
    pub async fn ask_for(&self, asked: OpenSession, until_ms: u64) -> Result<Unserved, Refusal> {
        let of = (NodeId(asked.node_id), open_session_bytes(&asked));
        let times_ms = (self.0.clock.monotonic_ms(), until_ms);
        let answered = self.0.openings.enter(of, asked, times_ms)?;
        let answered = async { answered.await.unwrap_or(Err(Refusal::ShuttingDown)) };
        self.in_time(until_ms, answered).await
    }

    /// Hands a report to the leader, which is another server; answered once it is durable and in the state here.
    pub async fn forward(&self, report: HeldReport, until_ms: u64) -> Result<StatusAck, Refusal> {
        let of = (NodeId(report.node_id), held_report_bytes(&report));
        let now_ms = self.0.clock.monotonic_ms();
        let (carrier, goes_at_ms) = match report.report.as_ref().and_then(|report| report.body.as_ref()) {
            Some(Body::Heartbeat(_)) => {
                let gather_ms = self.heartbeats_gather_ms();
                (&self.0.heartbeats, now_ms.saturating_add(gather_ms))
            }
            Some(Body::Events(_) | Body::Inventory(_)) | None => (&self.0.reports, now_ms),
        };
        let answered = carrier.enter(of, report, (goes_at_ms, until_ms))?;
        let answered = async { answered.await.unwrap_or(Err(Refusal::ShuttingDown)) };
        self.in_time(until_ms, answered).await
    }

    /// The state with everything in it that any server had acknowledged before this was called, confirmed by the leader,
    /// which is another server.
    pub async fn confirmed_state(&self) -> Result<Arc<State>, Refusal> {
        let (door, leader) = self.leader()?;
        let request = OpenRequest {
            boot: self.boot(),
            sessions: Vec::new(),
        };
        let asked = async { self.reached(door.open(leader, request).await?.read_index).await };
        self.in_time(self.answered_until_ms(), asked).await
    }

    /// A worker joins here, and the leader, which is another server, takes it.
    pub async fn register(&self, request: RegisterRequest) -> Result<RegisterReply, Refusal> {
        let (door, leader) = self.leader()?;
        self.in_time(self.answered_until_ms(), door.register(leader, request))
            .await
    }

    /// The next certificate of a worker that has proved who it is, from the leader, which is another server.
    pub async fn renew(&self, renewal: HeldRenewal) -> Result<RenewReply, Refusal> {
        let (door, leader) = self.leader()?;
        self.in_time(self.answered_until_ms(), door.renew(leader, renewal))
            .await
    }

    fn leader(&self) -> Result<(&dyn LeaderDoor, NodeId), Refusal> {
        let leadership = self.0.view.leadership();
        let leader = leadership.leader.filter(|_| !leadership.is_here);
        match (&self.0.door, leader) {
            (Some(door), Some(leader)) => Ok((door.as_ref(), NodeId(leader))),
            (None, _) | (_, None) => Err(Refusal::NotLeader { leader: None }),
        }
    }

    async fn in_time<T>(
        &self,
        until_ms: u64,
        asked: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            answer = asked => answer,
            () = self.0.clock.sleep_until_monotonic(until_ms) => Err(Refusal::Busy),
        }
    }

    /// Waits until the state here is as new as that.
    async fn reached(&self, index: u64) -> Result<Arc<State>, Refusal> {
        let state = self.0.view.state_at(index).await;
        state.map_err(|_| Refusal::ShuttingDown)
    }

    /// Tells the leader of the sessions here, and forwards what is for it, until `end`.
    pub async fn run(self, end: CancellationToken) {
        let shared = &self.0;
        let work = async {
            tokio::join!(
                self.beats(),
                self.open_for_nodes(),
                self.report_for_nodes(&shared.reports),
                self.report_for_nodes(&shared.heartbeats)
            )
        };
        tokio::select! {
            () = end.cancelled() => {}
            _ = work => {}
        }
        self.0.openings.close();
        self.0.reports.close();
        self.0.heartbeats.close();
    }

    async fn beats(&self) {
        let shared = &self.0;
        loop {
            let due_ms = self.held().beat_due_ms();
            tokio::select! {
                () = shared.clock.sleep_until_monotonic(due_ms) => {}
                // It may be due earlier now.
                () = shared.news.notified() => continue,
            }
            let sight = HolderSight {
                now_ms: shared.clock.monotonic_ms(),
                leader: shared.view.leadership().leader.map(NodeId),
                applied_index: shared.view.applied_index(),
                heard_ms: shared.sessions.heard_but_for(shared.own),
            };
            let Some((beat, until_ms)) = self.held().begin_beat(&sight) else {
                continue;
            };
            let answer = self.beat(&beat, until_ms).await;
            let is_led_by_older = matches!(answer, Err(Refusal::NotGiven(_)));
            let now_ms = shared.clock.monotonic_ms();
            let replaced = self.held().beat_over(answer.as_ref().ok(), now_ms);
            for (node, session) in replaced {
                shared.sessions.end(node, session, Refusal::Replaced);
            }
            if let Ok(answer) = answer {
                self.send_home(&answer.servers, now_ms);
            }
            shared.beaten.send_modify(|beaten| {
                beaten.count += 1;
                beaten.is_led_by_older = is_led_by_older;
            });
            self.end_where_cut_off();
        }
    }

    /// Nodes that belong to other servers, which are there again, are sent to them.
    fn send_home(&self, servers: &[FreshServer], now_ms: u64) {
        let shared = &self.0;
        let moves = self
            .held()
            .moves(shared.own, servers, shared.move_after_ms, now_ms);
        for Move { node, session, to } in moves {
            shared.sessions.move_to(node, session, to);
        }
    }

    /// Tells the leader, and waits for its answer for as long as that is of use.
    async fn beat(&self, beat: &HolderBeat, until_ms: u64) -> Result<HolderBeatAnswer, Refusal> {
        let shared = &self.0;
        if shared.leases.term().is_some() {
            let confirmed = async { shared.view.latest().await.map_err(|_| Refusal::Busy) };
            self.in_time(until_ms, confirmed).await?;
            let read_index = shared.view.applied_index();
            let answer = shared.leases.beat(shared.own, beat);
            let answer = answer.ok_or(Refusal::NotLeader { leader: None })?;
            return Ok(HolderBeatAnswer { read_index, ..answer });
        }
        let (door, leader) = self.leader()?;
        let answer = self.in_time(until_ms, door.beat(leader, to_beat(beat)));
        answer.await.map(from_answer).inspect_err(|refusal| {
            tracing::debug!(%refusal, %leader, "the leader does not answer a holder");
        })
    }

    /// A holder that no leader has answered for too long ends its sessions, so that their nodes find another server.
    fn end_where_cut_off(&self) {
        let shared = &self.0;
        if shared.door.is_none() {
            return;
        }
        let now_ms = shared.clock.monotonic_ms();
        let applied_index = shared.view.applied_index();
        let cut_off = self.held().cut_off(now_ms, applied_index);
        for (node, session) in cut_off {
            let why = Refusal::NotLeader { leader: None };
            shared.sessions.end(node, session, why);
        }
    }

    /// Sessions are asked for together: one round among the servers serves them all.
    async fn open_for_nodes(&self) {
        let mut asking = JoinSet::new();
        loop {
            let carried = self.0.openings.next(&*self.0.clock).await;
            let holder = self.clone();
            asking.spawn(async move { holder.open_together(carried).await });
            while asking.try_join_next().is_some() {}
        }
    }

    async fn open_together(&self, mut carried: Carried<OpenSession, Unserved>) {
        let until_ms = carried.until_ms;
        let (sessions, answers) = carried.take();
        let nodes: Vec<NodeId> = sessions.iter().map(|asked| NodeId(asked.node_id)).collect();
        let boot = self.boot();
        let asked = self.open_at_leader(OpenRequest { boot, sessions });
        let reply = match self.in_time(until_ms, asked).await {
            Ok(reply) => reply,
            Err(refusal) => return tell_all(answers, &refusal),
        };
        let reached = self.in_time(until_ms, self.reached(reply.read_index)).await;
        let mut opened = reply.sessions.into_iter();
        for (node, answer) in nodes.into_iter().zip(answers) {
            let outcome = match (given_in(opened.next()), &reached) {
                (Ok(given), Ok(_)) => Ok(Unserved::new(self.clone(), node, given)),
                (Ok(given), Err(refusal)) => {
                    // The state here is too old to serve it, which says nothing of its node.
                    let now_ms = self.0.clock.monotonic_ms();
                    self.held().ended_unserved(node, given.session, now_ms);
                    Err(refusal.clone())
                }
                (Err(refusal), _) => Err(refusal),
            };
            // Whoever asked may have gone: then the session breaks here.
            let _ = answer.send(outcome);
        }
    }

    /// Asks whoever leads. Where nobody does, or whoever did is gone, the next leader is waited for: the nodes that ask would
    /// only come again, each with a handshake. A server that leads itself by then says so to who asked.
    async fn open_at_leader(&self, request: OpenRequest) -> Result<OpenReply, Refusal> {
        let shared = &self.0;
        let mut leaderships = shared.view.leaderships();
        loop {
            let led_by = leaderships.borrow_and_update().leader;
            let is_other = |now: &Leadership| now.leader.is_some() && now.leader != led_by;
            let asked = async {
                let (door, leader) = self.leader()?;
                door.open(leader, request.clone()).await
            };
            tokio::select! {
                biased;
                answer = asked => match answer {
                    Err(Refusal::NotLeader { .. }) if !shared.view.leadership().is_here => {}
                    answer => return answer,
                },
                other = leaderships.wait_for(is_other) => match other {
                    Ok(_) => continue,
                    Err(_) => return Err(Refusal::ShuttingDown),
                },
            }
            let again_ms = shared.clock.monotonic_ms().saturating_add(LEADER_AGAIN_MS);
            tokio::select! {
                _ = leaderships.wait_for(is_other) => {}
                () = shared.clock.sleep_until_monotonic(again_ms) => {}
            }
        }
    }

    /// How long heartbeats are gathered: nobody waits for their answers, and of thousands of nodes each would be a message.
    fn heartbeats_gather_ms(&self) -> u64 {
        match self.0.sessions.len() > ASKED_OFTEN_MAX {
            true => HEARTBEATS_GATHER_MS,
            false => 0,
        }
    }

    /// Reports go together, two messages at a time.
    async fn report_for_nodes(&self, carrier: &Carrier<HeldReport, StatusAck>) {
        let mut handing_in = JoinSet::new();
        loop {
            let carried = carrier.next(&*self.0.clock).await;
            let holder = self.clone();
            handing_in.spawn(async move { holder.report_together(carried).await });
            while handing_in.try_join_next().is_some() {}
        }
    }

    async fn report_together(&self, mut carried: Carried<HeldReport, StatusAck>) {
        let until_ms = carried.until_ms;
        let (reports, answers) = carried.take();
        let asked = async {
            let (door, leader) = self.leader()?;
            let acks = door.report(leader, HeldReports { reports }).await?;
            self.reached(acks.index).await?;
            Ok(acks.acks)
        };
        let asked = self.in_time(until_ms, asked);
        match asked.await {
            Err(refusal) => tell_all(answers, &refusal),
            Ok(acks) => {
                let mut acks = acks.into_iter();
                for answer in answers {
                    let outcome = match acks.next().and_then(|ack| ack.outcome) {
                        Some(held_ack::Outcome::Ack(ack)) => Ok(ack),
                        Some(held_ack::Outcome::Refused(refused)) => Err(Refusal::from_refused(&refused)),
                        None => Err(Refusal::Busy),
                    };
                    let _ = answer.send(outcome);
                }
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldSessions> {
        // Every change is whole before the lock is let go of, so one left by a panic is sound.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell_all<T>(answers: Answers<T>, refusal: &Refusal) {
    for answer in answers {
        let _ = answer.send(Err(refusal.clone()));
    }
}
