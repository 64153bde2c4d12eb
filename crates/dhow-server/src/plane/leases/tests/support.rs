//! A server of a test: a reducer on a log in memory that can be held up, a clock that stands still, and leases.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dhow_core::amount::Amount;
use dhow_core::command::{Command, Entry as CoreEntry, NodeCommand};
use dhow_core::ids::{NodeId, Term};
use dhow_core::lease::AdaptiveTtlConfig;
use dhow_core::plan::Plan;
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::step::step;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, FakeClock};
use crate::plane::leases::{LeaseOptions, Leases, PeerContact};
use crate::plane::log::store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError};
use crate::plane::log::{Leadership, Log, LogEvent, LogStatus, ProposalId, ProposeError};
use crate::plane::runtime::{EventId, RuntimeHandle, RuntimeLog, RuntimeOptions, spawn_with};

/// The server's own node.
pub const OWN: NodeId = NodeId(1);

/// More than a test proposes.
const EVENTS_MAX: usize = 8_192;

#[derive(Debug)]
struct Held {
    events: mpsc::Sender<LogEvent>,
    last_index: u64,
    is_held: bool,
    is_deposed: bool,
    proposals: Vec<ProposalId>,
    leadership: Leadership,
}

/// A log that commits at once, or takes proposals and says nothing of them.
#[derive(Clone, Debug)]
pub struct HeldLog(Arc<Mutex<Held>>);

impl HeldLog {
    fn new(last_index: u64, leads: bool) -> (Self, mpsc::Receiver<LogEvent>) {
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let leadership = Leadership {
            term: 1,
            leader: Some(if leads { OWN.0 } else { 2 }),
            is_here: leads,
        };
        events.try_send(LogEvent::Leadership(leadership)).unwrap();
        let held = Held {
            events,
            last_index,
            is_held: false,
            is_deposed: false,
            proposals: Vec::new(),
            leadership,
        };
        (Self(Arc::new(Mutex::new(held))), receiver)
    }

    /// From now on nothing is committed.
    pub fn hold(&self) {
        self.0.lock().unwrap().is_held = true;
    }

    /// From now on everything is committed again; what was held is forgotten.
    pub fn release(&self) {
        self.0.lock().unwrap().is_held = false;
    }

    /// From now on another server leads, and this one has not heard of it: it finds out when it asks the others.
    pub fn depose(&self) {
        self.0.lock().unwrap().is_deposed = true;
    }

    /// Refuses the next proposal, or one that is held.
    pub fn refuse_held(&self) {
        let log = self.clone();
        tokio::spawn(async move {
            while !log.refuse_one() {
                tokio::task::yield_now().await;
            }
        });
    }

    fn refuse_one(&self) -> bool {
        let mut held = self.0.lock().unwrap();
        let Some(proposal) = held.proposals.pop() else {
            return false;
        };
        let cause = ProposeError::Full;
        held.events
            .try_send(LogEvent::Refused { proposal, cause })
            .unwrap();
        true
    }
}

impl Log for HeldLog {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        let mut held = self.0.lock().unwrap();
        if held.is_held {
            held.proposals.push(id);
            return Ok(());
        }
        let first = held.last_index + 1;
        held.last_index += entries.len() as u64;
        let entries = (first..).zip(entries).map(|(index, payload)| Entry {
            index,
            term: 1,
            payload,
        });
        let event = LogEvent::committed(Some(id), entries.collect());
        held.events.try_send(event).unwrap();
        Ok(())
    }

    fn status(&self) -> LogStatus {
        let held = self.0.lock().unwrap();
        LogStatus {
            leadership: held.leadership,
            first_index: held.last_index + 1,
            committed_index: held.last_index,
        }
    }

    fn read(&self, _from: u64, _max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        let is_deposed = self.0.lock().unwrap().is_deposed;
        Box::pin(std::future::ready(match is_deposed {
            true => Err(ProposeError::NotLeader { leader: Some(2) }),
            false => Ok(self.status().committed_index),
        }))
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        Ok(None)
    }

    fn begin_snapshot(&self, _at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        Err(StoreError::Closed)
    }

    fn compact(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    fn install(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }
}

/// A server of a test: its runtime, its clock, its leases and the log that the test can hold up.
pub struct TestServer {
    pub handle: RuntimeHandle,
    pub clock: FakeClock,
    pub leases: Leases,
    pub log: HeldLog,
    /// Where its events begin.
    pub first_event: EventId,
    end: CancellationToken,
}

/// What a node of a test says of itself.
pub fn info(role: NodeRole) -> NodeInfo {
    NodeInfo {
        role,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount {
            cpu_milli: 4_000,
            memory_bytes: 1 << 33,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: None,
    }
}

fn state_of(nodes: &[u64]) -> State {
    let mut state = State::default();
    for node in nodes {
        let register = NodeCommand::Register {
            node: NodeId(*node),
            info: Arc::new(info(NodeRole::Server)),
        };
        let entry = CoreEntry {
            time: Default::default(),
            term: Term(0),
            request: None,
            command: Command::Node(register),
        };
        step(&mut state, &entry, &mut ()).unwrap();
    }
    state
}

impl TestServer {
    /// A leader whose state has these nodes.
    pub async fn start(nodes: &[u64]) -> Self {
        Self::start_with(nodes, None).await
    }

    pub async fn start_with(nodes: &[u64], contact: Option<Arc<dyn PeerContact>>) -> Self {
        let server = Self::begin(nodes, contact, true);
        server.leases.terms().wait_for(Option::is_some).await.unwrap();
        server
    }

    /// One that was elected, and cannot begin its term.
    pub async fn start_elected(nodes: &[u64]) -> Self {
        let server = Self::begin(nodes, None, true);
        // No task has run yet.
        server.log.hold();
        let mut leaderships = server.handle.view().leaderships();
        leaderships
            .wait_for(|leadership| leadership.is_here)
            .await
            .unwrap();
        server
    }

    /// One that follows node 2.
    pub async fn start_following(nodes: &[u64]) -> Self {
        let server = Self::begin(nodes, None, false);
        let mut leaderships = server.handle.view().leaderships();
        leaderships
            .wait_for(|leadership| leadership.leader == Some(2))
            .await
            .unwrap();
        server
    }

    fn begin(nodes: &[u64], contact: Option<Arc<dyn PeerContact>>, leads: bool) -> Self {
        let (state, clock) = (state_of(nodes), FakeClock::new(1_800_000_000_000));
        let (log, events) = HeldLog::new(state.revision.0, leads);
        let applied = LogPosition {
            index: state.revision.0,
            term: 0,
        };
        let options = RuntimeOptions {
            log: Some(RuntimeLog {
                log: Arc::new(log.clone()),
                events,
                applied,
                since_snapshot: 0,
            }),
            planner: Arc::new(|_, _, _| Plan::default()),
            plan_debounce_ms: 0,
            // Nothing but the task of the leases wakes up as time passes.
            plan_tick_ms: u64::MAX / 2,
            ..RuntimeOptions::default()
        };
        let end = CancellationToken::new();
        let handle = spawn_with(end.clone(), state, Arc::new(clock.clone()), options);
        // No task has run yet.
        let first_event = *handle.view().events().newest().borrow();
        let leases = Leases::new(LeaseOptions {
            own: Some(OWN),
            config: AdaptiveTtlConfig::default(),
            clock: Arc::new(clock.clone()),
            view: handle.view(),
            input: handle.input(),
            event_log: handle.event_log(),
            contact,
        });
        tokio::spawn(leases.clone().run(end.clone()));
        Self {
            handle,
            clock,
            leases,
            log,
            first_event,
            end,
        }
    }

    pub fn state(&self) -> Arc<State> {
        self.handle.view().state()
    }

    pub async fn wait_for(&self, mut is_so: impl FnMut(&State) -> bool) -> Arc<State> {
        let mut states = self.handle.view().states();
        states.wait_for(|state| is_so(state)).await.unwrap().clone()
    }

    pub async fn write(&self, command: Command) {
        self.handle.input().write(command, None).await.unwrap();
    }

    pub fn clock_ms(&self) -> u64 {
        self.clock.monotonic_ms()
    }

    /// Lets time pass in steps that the timer of the leases does not miss.
    pub async fn pass(&self, span_ms: u64) {
        for _ in 0..span_ms / 500 {
            self.jump(500).await;
        }
    }

    /// Moves the time at once, and waits until the task of the leases has had its turn.
    pub async fn jump(&self, span_ms: u64) {
        let begun = self.clock.sleeps_begun();
        self.clock.advance(span_ms);
        self.clock.wait_for_sleeps_begun(begun + 1).await;
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
