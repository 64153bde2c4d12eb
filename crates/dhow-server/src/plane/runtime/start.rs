//! Starts the tasks and ties them together.

use std::future::Future;
use std::sync::Arc;

use dhow_core::state::State;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::directory::{DirectoryTask, TouchedSince};
use super::event::EventId;
use super::event_hub::EventHub;
use super::event_log::{EventLogSender, EventLogWriter, EventStore, channel};
use super::handle::{Ended, RuntimeHandle};
use super::inbox::InputSender;
use super::limits::{EFFECT_BATCHES_MAX, INBOX_MAX};
use super::log_hold::LogHold;
use super::manifest_poll::ManifestPoll;
use super::options::{RuntimeLog, RuntimeOptions};
use super::past_writer::PastWriter;
use super::reducer::{Channels, Parts, Reducer};
use super::shutdown::{RuntimeTask, ShutdownSender, ShutdownToken, TaskName};
use super::view::{Events, Publisher};
use super::volatile_log::VolatileLog;
use super::wakeups::NodeWakeups;
use super::{applier, plan_tick};
use crate::clock::Clock;
use crate::plane::log::Log;
use crate::plane::log::store::LogPosition;
use crate::plane::past::Past;

/// Starts a runtime that keeps nothing on disk. Must be called inside a tokio runtime.
pub fn spawn(cancel: CancellationToken, state: State, clock: Arc<dyn Clock>) -> RuntimeHandle {
    spawn_with(cancel, state, clock, RuntimeOptions::default())
}

/// Starts a runtime. When `cancel` is cancelled it takes nothing new, finishes what it has taken, and ends.
pub fn spawn_with(
    cancel: CancellationToken,
    state: State,
    clock: Arc<dyn Clock>,
    options: RuntimeOptions,
) -> RuntimeHandle {
    let keeps_log = options.log.is_some();
    let log = options.log.unwrap_or_else(|| volatile(&state));
    let (inbox, inbox_receiver) = mpsc::channel(INBOX_MAX);
    let input = InputSender::new(inbox);
    let (effects, effects_receiver) = mpsc::channel(EFFECT_BATCHES_MAX);
    let (wakeups, touched) = (NodeWakeups::default(), TouchedSince::default());
    let publisher = Publisher::new(&state, log.applied.index);
    let mut tasks = Tasks::default();
    let last_event = last_event(options.event_store.as_ref(), &state);
    let hub = EventHub::new(last_event);
    let (event_log, messages) = channel();
    let events = events(options.event_store.as_ref(), &hub, &event_log);
    let (states, quiet_ms) = (publisher.states(), options.directory_quiet_ms);
    let (directory, directories) = DirectoryTask::new(touched.clone(), states, Arc::clone(&clock), quiet_ms);
    let view = publisher.view(
        &log.log,
        wakeups.clone(),
        events,
        Arc::clone(&options.sources),
        options.storage.clone(),
        directories,
    );
    let past = options.past.filter(|_| keeps_log).map(Past::new);
    let view = view.with_past(write_past(past, &mut tasks, &publisher, &log.log, &clock));
    tasks.start(TaskName::Applier, |token| {
        applier::run(effects_receiver, wakeups, touched, token)
    });
    tasks.start(TaskName::Directory, |token| directory.run(token));
    let writer = EventLogWriter::new(messages, options.event_store, hub, Arc::clone(&clock), last_event);
    let replayed = options.replayed_events;
    tasks.start(TaskName::EventLogWriter, |token| writer.run(replayed, token));
    tasks.start(TaskName::PlanTick, |token| {
        plan_tick::run(input.downgrade(), Arc::clone(&clock), options.plan_tick_ms, token)
    });
    let (weak, notes) = (input.downgrade(), event_log.clone());
    let poll = ManifestPoll::new(options.sources, view.clone(), weak, notes, Arc::clone(&clock));
    tasks.start(TaskName::ManifestPoll, |token| poll.run(token));
    let hold = LogHold::new(&log.log);
    let reducer = Reducer::new(Parts {
        state,
        applied: log.applied,
        since_snapshot: log.since_snapshot,
        log: log.log,
        clock,
        planner: options.planner,
        plan_debounce_ms: options.plan_debounce_ms,
        snapshots: keeps_log.then_some(options.snapshots),
        storage: options.storage,
        publisher,
        effects,
        event_log: event_log.clone(),
        cancel,
        children: std::mem::take(&mut tasks.senders),
    });
    let (inbox, log_events) = (inbox_receiver, log.events);
    let ended = tasks.start_reducer(hold, reducer, Channels { inbox, log_events });
    RuntimeHandle {
        input,
        event_log,
        view,
        ended,
        tasks: tasks.started,
    }
}

/// Starts the task that writes what the server keeps of its past, where it keeps any, and hands that on.
fn write_past(
    past: Option<Past>,
    tasks: &mut Tasks,
    publisher: &Publisher,
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
) -> Option<Past> {
    let past = past?;
    let writer = PastWriter {
        past: past.clone(),
        states: publisher.states(),
        log: Arc::downgrade(log),
        clock: Arc::clone(clock),
    };
    tasks.start(TaskName::PastWriter, |token| writer.run(token));
    Some(past)
}

/// What readers of events get at.
fn events(store: Option<&EventStore>, hub: &EventHub, log: &EventLogSender) -> Events {
    Events {
        hub: hub.clone(),
        reader: store.map(EventStore::reader),
        audit_reader: store.map(EventStore::audit_reader),
        log: log.clone(),
    }
}

/// The newest event that was written; without a store, one behind all that the state has seen.
fn last_event(store: Option<&EventStore>, state: &State) -> EventId {
    store.map_or_else(|| EventId::behind(state.revision), EventStore::last_id)
}

fn volatile(state: &State) -> RuntimeLog {
    let (log, events) = VolatileLog::new(state.revision.0);
    RuntimeLog {
        log: Arc::new(log),
        events,
        applied: LogPosition {
            index: state.revision.0,
            term: 0,
        },
        since_snapshot: 0,
    }
}

#[derive(Default)]
struct Tasks {
    started: Vec<RuntimeTask>,
    /// For the reducer to hold.
    senders: Vec<ShutdownSender>,
}

impl Tasks {
    /// Starts a child that ends when the reducer does.
    fn start<F>(&mut self, name: TaskName, task: impl FnOnce(ShutdownToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, token) = ShutdownToken::pair();
        self.senders.push(sender);
        let task = task(token);
        let handle = tokio::spawn(async move {
            task.await;
            Ok(())
        });
        self.started.push(RuntimeTask { name, handle });
    }

    fn start_reducer(
        &mut self,
        hold: LogHold,
        reducer: Reducer,
        channels: Channels,
    ) -> watch::Receiver<Ended> {
        let (sender, ended) = watch::channel(None);
        let handle = tokio::spawn(async move {
            // First, so that it is the last to go when the task is aborted.
            let hold = hold;
            let outcome = reducer.run(channels).await.map_err(Arc::new);
            if let Err(failure) = &outcome {
                let error = failure.as_ref() as &dyn std::error::Error;
                tracing::error!(error, "the control plane has stopped");
            }
            // Nobody may be waiting.
            let _ = sender.send(Some(outcome.clone()));
            hold.close().await;
            outcome
        });
        self.started.push(RuntimeTask {
            name: TaskName::Reducer,
            handle,
        });
        ended
    }
}
