//! When to plan. One plan at a time, on a snapshot, on a thread that may block; the next one only when the commands
//! of the last are applied or refused, so that no plan is made on a state that the last one is about to change.

use std::sync::Arc;

use dhow_core::plan::{CanaryBook, Plan, PlanCache};
use dhow_core::state::State;
use dhow_core::time::ClusterTime;
use tokio::task::JoinHandle;

use crate::clock::{Clock, Sleep};
use crate::plane::runtime::limits::{PLAN_REST_MAX_MS, PLAN_STALE_WAIT_MAX_MS, PLANNED_PER_MS};
use crate::plane::runtime::options::PlanFn;

/// The reducer's planner: the plan that runs, when the next one is due, and the cache between them.
pub(super) struct Planning {
    planner: Arc<PlanFn>,
    clock: Arc<dyn Clock>,
    debounce_ms: u64,
    cache: PlanCache,
    running: Option<JoinHandle<(PlanCache, Plan)>>,
    /// How long the next plan waits after the one that runs.
    rest_ms: u64,
    due: Option<Due>,
    /// Parts of the last plan that are on their way.
    parts: usize,
    /// Whether any command of the last plan was applied.
    has_effect: bool,
    /// Plans in a row of which every command was refused.
    stale_rounds: u32,
    /// No plan before this.
    not_before_ms: u64,
}

struct Due {
    at_ms: u64,
    sleep: Sleep,
}

/// What happened to planning.
#[derive(Debug)]
pub(super) enum PlanTurn {
    /// It is time.
    Due,
    Planned(Plan),
    Panicked {
        message: String,
    },
}

impl Planning {
    pub fn new(planner: Arc<PlanFn>, clock: Arc<dyn Clock>, debounce_ms: u64) -> Self {
        Self {
            planner,
            clock,
            debounce_ms,
            cache: PlanCache::default(),
            running: None,
            rest_ms: 0,
            due: None,
            parts: 0,
            has_effect: false,
            stale_rounds: 0,
            not_before_ms: 0,
        }
    }

    /// The state has changed: plan soon, once for all that comes together.
    pub fn state_changed(&mut self) {
        self.schedule(self.clock.monotonic_ms().saturating_add(self.debounce_ms));
    }

    /// Plans at this moment at the latest.
    pub fn schedule(&mut self, at_ms: u64) {
        let at_ms = at_ms.max(self.not_before_ms);
        if self.due.as_ref().is_none_or(|due| due.at_ms > at_ms) {
            let sleep = self.clock.sleep_until_monotonic(at_ms);
            self.due = Some(Due { at_ms, sleep });
        }
    }

    /// The plan asked to be made again then. Never at once: a wish that lies behind must not make a loop.
    pub fn wake_at(&mut self, at_ms: u64) {
        let soonest_ms = self.clock.monotonic_ms().saturating_add(self.debounce_ms.max(1));
        self.schedule(at_ms.max(soonest_ms));
    }

    /// Whether another plan may be begun: none is being made, and nothing of the last one is on its way.
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.parts == 0
    }

    /// Waits for what comes next; for ever where nothing does. `may_start` says whether a plan may begin.
    pub async fn next(&mut self, may_start: bool) -> PlanTurn {
        if let Some(running) = &mut self.running {
            let ended = running.await;
            self.running = None;
            return match ended {
                Ok((cache, plan)) => {
                    self.cache = cache;
                    self.rest();
                    PlanTurn::Planned(plan)
                }
                Err(error) => PlanTurn::Panicked {
                    message: panic_message(error),
                },
            };
        }
        if may_start
            && self.is_idle()
            && let Some(due) = &mut self.due
        {
            due.sleep.as_mut().await;
            self.due = None;
            return PlanTurn::Due;
        }
        std::future::pending().await
    }

    /// Where there are tens of thousands of replicas, the next plan waits for about as long as this one took: planning has
    /// half of a processor at the most, and the reports that it waits for have the rest.
    fn rest(&mut self) {
        if self.rest_ms <= self.debounce_ms {
            return;
        }
        let soonest_ms = self.clock.monotonic_ms().saturating_add(self.rest_ms);
        self.not_before_ms = self.not_before_ms.max(soonest_ms);
        if let Some(due) = self.due.take() {
            self.schedule(due.at_ms);
        }
    }

    /// Begins a plan on a snapshot, with what was counted of canaries until now.
    pub fn start(&mut self, state: Arc<State>, canaries: CanaryBook, now: ClusterTime) {
        let planner = Arc::clone(&self.planner);
        let mut cache = std::mem::take(&mut self.cache);
        cache.hear(canaries);
        self.has_effect = false;
        let replicas = u64::try_from(state.replicas.len()).unwrap_or(u64::MAX);
        self.rest_ms = (replicas / PLANNED_PER_MS).min(PLAN_REST_MAX_MS);
        self.running = Some(tokio::task::spawn_blocking(move || {
            let plan = planner(&state, &mut cache, now);
            (cache, plan)
        }));
    }

    /// A part of the plan has been proposed.
    pub fn part_proposed(&mut self) {
        self.parts += 1;
    }

    /// A part of the plan came back. When it was the last one, the next plan is due: soon where something was
    /// done, later and later where all was refused, so that planner and state never race each other.
    pub fn part_ended(&mut self, has_effect: bool) {
        self.parts = self.parts.saturating_sub(1);
        self.has_effect |= has_effect;
        if self.parts > 0 {
            return;
        }
        if self.has_effect {
            self.stale_rounds = 0;
            self.state_changed();
            return;
        }
        self.stale_rounds = self.stale_rounds.saturating_add(1);
        let doubled = self.debounce_ms.max(1) << self.stale_rounds.min(10);
        let wait_ms = doubled.min(PLAN_STALE_WAIT_MAX_MS);
        if wait_ms == PLAN_STALE_WAIT_MAX_MS {
            tracing::warn!(
                rounds = self.stale_rounds,
                "every command of the last plans was refused"
            );
        }
        self.not_before_ms = self.clock.monotonic_ms().saturating_add(wait_ms);
        self.due = None;
        self.schedule(self.not_before_ms);
    }

    /// This server leads no more: what was planned counts no more.
    pub fn stop(&mut self) {
        self.due = None;
        self.parts = 0;
        self.stale_rounds = 0;
        self.not_before_ms = 0;
    }
}

fn panic_message(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "its thread was ended".to_owned();
    };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(message) => (*message).to_owned(),
            Err(_) => "no message".to_owned(),
        },
    }
}
