//! The handle on the leases for those who hear nodes, and the task that lets time pass.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::{NodeId, Term};
use dhow_core::lease::{
    AdaptiveTtlConfig, HolderBeat, HolderBeatAnswer, LeaseAlarm, SessionId, SessionTable,
};
use dhow_core::state::State;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::contact::PeerContact;
use super::losing::Losing;
use super::servers::Servers;
use crate::clock::Clock;
use crate::plane::runtime::{Event, EventLogSender, InputSender, RuntimeView};

/// How often the leader lets time pass: a lease ends at most this much late, and a late timer shows within it. An
/// empty turn costs a microsecond.
const TURN_MS: u64 = 500;

/// How often the log says that nodes follow a higher term: thousands may, and try again every few seconds.
const HIGHER_TERM_EVERY_MS: u64 = 60_000;

/// What the daemon opens the leases with.
pub struct LeaseOptions {
    /// The node that this server runs on: alive by definition while it leads.
    pub own: Option<NodeId>,
    pub config: AdaptiveTtlConfig,
    pub clock: Arc<dyn Clock>,
    pub view: RuntimeView,
    pub input: InputSender,
    pub event_log: EventLogSender,
    /// What is known of the other servers, where there are any.
    pub contact: Option<Arc<dyn PeerContact>>,
}

/// The handle on the leases that a leader keeps: the gateway tells it whom it heard, and its task gives up those who
/// were silent for too long; clones are the same.
#[derive(Clone)]
pub struct Leases {
    shared: Arc<LeaseState>,
}

/// The table of leases and sessions, and the term in which this server keeps it.
struct LeaseState {
    options: LeaseOptions,
    table: Mutex<SessionTable>,
    /// The term in which this server keeps leases; none while it does not lead.
    term: watch::Sender<Option<u64>>,
    /// When the log last said that a node follows a higher term.
    higher_term_ms: Mutex<Option<u64>>,
}

impl Leases {
    pub fn new(options: LeaseOptions) -> Self {
        let table = Mutex::new(SessionTable::new(
            options.config,
            Some(options.own.unwrap_or(NodeId(0))),
        ));
        Self {
            shared: Arc::new(LeaseState {
                options,
                table,
                term: watch::Sender::new(None),
                higher_term_ms: Mutex::new(None),
            }),
        }
    }

    /// The term in which this server keeps leases. Nobody is taken on before that: what the last leader wrote is not
    /// known here in full.
    pub fn term(&self) -> Option<u64> {
        *self.shared.term.borrow()
    }

    /// Follows that term.
    pub fn terms(&self) -> watch::Receiver<Option<u64>> {
        self.shared.term.subscribe()
    }

    /// The node that this server runs on.
    pub fn own(&self) -> NodeId {
        self.shared.options.own.unwrap_or(NodeId(0))
    }

    pub fn grace_secs(&self) -> u32 {
        self.shared.options.config.grace_secs
    }

    /// A node was heard: its lease lives from now on for the time to live that is returned, and the grace. None
    /// where this server does not lead.
    pub fn renew(&self, node: NodeId) -> Option<u32> {
        self.term()?;
        let now_ms = self.now_ms();
        let ttl_secs = self.table().renew(node, now_ms);
        self.show(node, ttl_secs);
        Some(ttl_secs)
    }

    /// Lets listings see a lease that was just renewed.
    fn show(&self, node: NodeId, ttl_secs: u32) {
        let options = &self.shared.options;
        if options.own == Some(node) {
            return;
        }
        let now_unix_secs = options.clock.wall_unix_ms().div_euclid(1_000);
        let observed = options.view.observed();
        observed.renewed(node, now_unix_secs, ttl_secs, options.config.grace_secs);
    }

    /// A holder opens a session with a node, which is as good as a heartbeat: its id, and the time to live. None where
    /// this server does not lead.
    pub fn session_opened(&self, holder: NodeId, boot: u64, node: NodeId) -> Option<(SessionId, u32)> {
        self.term()?;
        let now_ms = self.now_ms();
        let (session, ttl_secs) = self.table().open(holder, boot, node, now_ms);
        self.show(node, ttl_secs);
        Some((session, ttl_secs))
    }

    /// A session broke, and not by its holder's wish; the last sign of life on it was at this monotonic time.
    pub fn session_broke(&self, holder: NodeId, session: (NodeId, SessionId), last_sign_ms: u64) {
        if self.term().is_none() {
            return;
        }
        let now_ms = self.now_ms();
        let alarm = self.table().session_broke(holder, session, last_sign_ms, now_ms);
        if let Some(alarm) = alarm {
            self.raise(alarm);
        }
    }

    /// What a holder tells of its sessions. None where this server does not lead. The caller says how far a state must
    /// be, and that this server still leads.
    pub fn beat(&self, holder: NodeId, beat: &HolderBeat) -> Option<HolderBeatAnswer> {
        self.term()?;
        let now_ms = self.now_ms();
        let (answer, alarm) = self.table().beat(holder, beat, now_ms);
        if let Some(alarm) = alarm {
            self.raise(alarm);
        }
        for sign in &beat.heard {
            self.show(sign.node, answer.ttl_secs);
        }
        if holder != self.own() {
            let observed = self.shared.options.view.observed();
            observed.holders().heard(holder, beat.applied_index, now_ms);
        }
        Some(answer)
    }

    /// A server cannot be reached by the others; its last sign of life was at this monotonic time.
    pub fn peer_unreachable(&self, node: NodeId, last_sign_ms: u64) {
        if self.term().is_none() {
            return;
        }
        let now_ms = self.now_ms();
        let alarm = self.table().peer_unreachable(node, last_sign_ms, now_ms);
        if let Some(alarm) = alarm {
            self.raise(alarm);
        }
    }

    /// A node has acted on a higher term than this cluster has reached.
    pub fn higher_term(&self, node: NodeId, followed: Term, term: Term) {
        let now_ms = self.now_ms();
        let mut told_ms = self
            .shared
            .higher_term_ms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told_ms.is_none_or(|told_ms| now_ms.saturating_sub(told_ms) >= HIGHER_TERM_EVERY_MS) {
            *told_ms = Some(now_ms);
            drop(told_ms);
            self.raise(LeaseAlarm::HigherTerm { node, followed, term });
        }
    }

    /// A node was removed from the cluster.
    pub fn forget(&self, node: NodeId) {
        self.table().remove(node);
        self.shared.options.view.observed().ended([node]);
    }

    /// The last monotonic moment at which the node's lease still lives, where it has one.
    pub fn deadline_ms(&self, node: NodeId) -> Option<u64> {
        self.table().leases().deadline_ms(node)
    }

    /// How many leases there are.
    pub fn len(&self) -> usize {
        self.table().leases().len()
    }

    pub fn is_empty(&self) -> bool {
        self.table().leases().is_empty()
    }

    /// Keeps the leases while this server leads, until `end`.
    pub async fn run(self, end: CancellationToken) {
        let options = &self.shared.options;
        let (mut leaderships, mut states) = (options.view.leaderships(), options.view.states());
        let mut losing = Losing::default();
        let mut servers = Servers::default();
        let mut due_ms = self.now_ms();
        loop {
            leaderships.borrow_and_update();
            states.borrow_and_update();
            if self.follow() {
                losing = Losing::default();
                due_ms = self.now_ms().saturating_add(TURN_MS);
            }
            let leads = self.term().is_some();
            let awaits_term = options.view.leadership().is_here && !leads;
            let gone = tokio::select! {
                biased;
                () = end.cancelled() => true,
                changed = leaderships.changed() => changed.is_err(),
                changed = states.changed(), if awaits_term => changed.is_err(),
                () = options.clock.sleep_until_monotonic(due_ms), if leads => {
                    self.turn(due_ms, &mut losing, &mut servers);
                    due_ms = self.now_ms().saturating_add(TURN_MS);
                    false
                }
                () = losing.written(), if leads => false,
            };
            if gone {
                break;
            }
        }
        self.shared.term.send_replace(None);
    }

    /// Begins or stops to lead where the cluster says so; tells whether something has changed. Leading begins with
    /// the beginning of the term in the state: by then the state has everything that the last leader wrote.
    fn follow(&self) -> bool {
        let view = &self.shared.options.view;
        let (leadership, state) = (view.leadership(), view.state());
        let leads = leadership.is_here && state.term.0 == leadership.term;
        let term = leads.then_some(leadership.term);
        if term == self.term() {
            return false;
        }
        view.observed().forget_leases();
        view.observed().holders().begin(term.map(|_| self.now_ms()));
        // Before anybody may renew: what an election does away with must not be a heartbeat of this term.
        match term {
            Some(term) => self.take_over(Term(term), &state),
            None => {
                let options = &self.shared.options;
                *self.table() = SessionTable::new(options.config, Some(options.own.unwrap_or(NodeId(0))));
            }
        }
        self.shared.term.send_replace(term);
        true
    }

    fn take_over(&self, term: Term, state: &State) {
        let own = self.shared.options.own;
        let ready = state.nodes.values().filter(|node| node.is_ready());
        let nodes = ready.map(|node| node.id).filter(|node| Some(*node) != own);
        let nodes: Vec<NodeId> = nodes.collect();
        self.table()
            .begin_term(term, self.now_ms(), nodes.iter().copied());
        for node in nodes {
            self.show(node, self.shared.options.config.failover_ttl_secs);
        }
    }

    /// Time has passed.
    fn turn(&self, due_ms: u64, losing: &mut Losing, servers: &mut Servers) {
        let options = &self.shared.options;
        let state = options.view.state();
        self.ask_contact(servers.of(&state));
        let now_ms = self.now_ms();
        // Workers over HTTP have no session at any time, and only report.
        let has_sessions = |node| state.node(node).is_some_and(|node| node.session.incarnation != 0);
        let ticked = self.table().advance(now_ms, due_ms, has_sessions);
        for alarm in ticked.alarms {
            self.raise(alarm);
        }
        options.view.observed().ended(ticked.expired.iter().copied());
        losing.add(ticked.expired);
        let table = self.table();
        losing.retain(|node| {
            !table.leases().contains(*node) && state.node(*node).is_some_and(|node| node.is_ready())
        });
        drop(table);
        losing.go_on(&options.input);
    }

    fn ask_contact(&self, servers: &[NodeId]) {
        let options = &self.shared.options;
        let Some(contact) = &options.contact else { return };
        for node in servers.iter().filter(|node| options.own != Some(**node)) {
            if let Some(last_sign_ms) = contact.silent_since(*node) {
                self.peer_unreachable(*node, last_sign_ms);
            }
        }
    }

    fn raise(&self, alarm: LeaseAlarm) {
        tracing::error!("{alarm}");
        self.shared
            .options
            .event_log
            .note(Event::alarm(alarm.to_string()));
    }

    fn now_ms(&self) -> u64 {
        self.shared.options.clock.monotonic_ms()
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        // Every change of the table is whole before the lock is let go of, so one left by a panic is sound.
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
