//! Checks of a replica's health, one at a time, and the rhythm in which they are made. A check runs where the
//! workload is: its port is reached as the workload's own network has it, its command runs inside.

mod probe;

use std::time::Duration;

use dhow_core::spec::{Check, HealthSpec};
use tokio::time::{Instant, sleep_until};

pub use probe::Subject;

use crate::limits::{
    AWAITED_CHECK_PAUSE, FIRST_CHECK_PAUSE, FIRST_CHECK_PAUSE_MAX, HEALTHY_AFTER, TELL_AFTER, TOLD_MAX,
};

/// What a check, or the time, has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Healthy,
    /// Failed as often in a row as the spec allows.
    Unhealthy(String),
    /// It has never passed, and still has time to: nothing is decided, and people are to see what it waits for.
    FailsSoFar(String),
}

/// The checks of one run of a replica.
#[derive(Debug)]
pub struct Checks {
    started: Instant,
    next: Instant,
    pause: Duration,
    pause_max: Duration,
    healthy: bool,
    /// It runs long enough to be judged by its first check.
    is_up: bool,
    failures: u32,
    /// What was told last of failures within the grace, and how often something was.
    told: Option<String>,
    told_times: u32,
}

impl Checks {
    /// For a run that begins now, or that was found running and was healthy before.
    pub fn new(healthy: bool) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            next: now,
            pause: FIRST_CHECK_PAUSE,
            pause_max: FIRST_CHECK_PAUSE_MAX,
            healthy,
            is_up: healthy,
            failures: 0,
            told: None,
            told_times: 0,
        }
    }

    /// Somebody may be waiting for this run: what is not healthy yet is looked at often all the time.
    pub fn of_one_that_is_awaited(self) -> Self {
        Self {
            pause_max: AWAITED_CHECK_PAUSE,
            ..self
        }
    }

    /// Checks that nothing is known of yet, of a run that was healthy by others: it needs no time to start.
    pub fn of_one_that_is_up() -> Self {
        Self {
            is_up: true,
            ..Self::new(false)
        }
    }

    /// Begins anew after a pause, as if nothing had been shown.
    pub fn again_after(&mut self, pause: Duration) {
        *self = Self {
            pause_max: self.pause_max,
            ..Self::new(false)
        };
        self.next += pause;
    }

    /// Waits for the next change of the verdict. May be dropped and called again: a check that was cut off is
    /// made again.
    pub async fn next(&mut self, health: Option<&HealthSpec>, subject: &Subject<'_>) -> Verdict {
        let Some(health) = health else {
            if self.healthy {
                std::future::pending::<()>().await;
            }
            sleep_until(self.started + HEALTHY_AFTER).await;
            self.healthy = true;
            return Verdict::Healthy;
        };
        loop {
            sleep_until(self.next).await;
            let outcome = self
                .check(&health.check, millis(health.timeout.as_millis()), subject)
                .await;
            if let Some(verdict) = self.judge(outcome, health) {
                return verdict;
            }
        }
    }

    async fn check(&self, check: &Check, timeout: Duration, subject: &Subject<'_>) -> Result<(), String> {
        match tokio::time::timeout(timeout, subject.probe(check, timeout)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no answer within {} ms", timeout.as_millis())),
        }
    }

    fn judge(&mut self, outcome: Result<(), String>, health: &HealthSpec) -> Option<Verdict> {
        let now = Instant::now();
        let interval = millis(health.interval.as_millis());
        match outcome {
            Ok(()) => {
                self.failures = 0;
                self.next = now + interval;
                let news = !self.healthy;
                self.healthy = true;
                news.then_some(Verdict::Healthy)
            }
            Err(why) => {
                let in_grace = !self.healthy
                    && !self.is_up
                    && now < self.started + millis(health.start_grace.as_millis());
                if !in_grace {
                    self.failures += 1;
                }
                // One that was never healthy is looked at often; one that fails now is given its interval.
                let pause = match self.healthy {
                    true => interval,
                    false if in_grace => self.next_pause().min(interval),
                    false => interval,
                };
                self.next = now + pause;
                if in_grace {
                    return self.tell_so_far(why, now);
                }
                if self.failures < health.retries {
                    return None;
                }
                let times = match self.failures {
                    1 => "once".to_owned(),
                    n => format!("{n} times in a row"),
                };
                Some(Verdict::Unhealthy(format!("its check failed {times}: {why}")))
            }
        }
    }

    /// Quick starts are not worth a word, and each reason is worth one; a reason that changes all the time is cut off.
    fn tell_so_far(&mut self, why: String, now: Instant) -> Option<Verdict> {
        let is_due = now >= self.started + TELL_AFTER && self.told_times < TOLD_MAX;
        if !is_due || self.told.as_ref() == Some(&why) {
            return None;
        }
        self.told_times += 1;
        let words = format!("its check fails so far: {why} (within start_grace)");
        self.told = Some(why);
        Some(Verdict::FailsSoFar(words))
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.pause_max);
        pause
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests;
