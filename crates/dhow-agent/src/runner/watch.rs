//! A run of a replica, from its start to its end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::Runtime;
use dhow_driver::driver::{DriverResult, Exit, error_chain};
use tokio::time::{Instant, sleep, sleep_until};

use super::files::FilesDue;
use super::trial::Trial;
use super::{Runner, ended, known_exit, message};
use crate::balance::{CallsFrom, of_process};
use crate::health::{Checks, Subject, Verdict};
use crate::limits::STEADY_AFTER;
use crate::ports;

/// What ends the wait for something to do.
enum Turn {
    Ended(DriverResult<Exit>),
    Wished,
    Judged(Verdict),
    /// What the trial has shown.
    Tried(Verdict),
    Steady,
    /// Its files are as they should be and it knows, or why not.
    Files(Result<(), String>),
}

impl Runner {
    /// Watches it until it ends or another thing is wished.
    pub(super) async fn watch_run(&mut self) {
        let mut checks = self.checks_at_start();
        let steady_at = self.forgets_at();
        if steady_at <= Instant::now() && self.core.has_failures_to_forget() {
            // The interval ended while it was being started.
            self.happen(ReplicaEvent::RanSteadily).await;
        }
        self.open_endpoints().await;
        self.tell_callers_place().await;
        self.claim_again().await;
        let mut trial = self.trial(None);
        // A daemon before this one may have been killed in the middle of it.
        let mut due = self.files_due();
        if self.core.machine().healthy {
            self.admit().await;
        }
        loop {
            match self
                .turn(&mut checks, trial.as_mut(), steady_at, due.as_ref())
                .await
            {
                Turn::Ended(Ok(exit)) => return self.run_ended(&exit).await,
                Turn::Ended(Err(error)) => {
                    // Its folder may have been taken away; what it is now will be seen by asking again.
                    tracing::warn!(replica = %self.name(), why = error_chain(&error), "cannot be watched");
                    sleep(Duration::from_secs(1)).await;
                    return self.look_again().await;
                }
                Turn::Wished => {
                    let change = self.take_wish().await;
                    if self.core.is_to_end() {
                        return;
                    }
                    trial = self.trial(trial);
                    if change.has_other_files {
                        due = self.files_due();
                    }
                }
                Turn::Files(Ok(())) => due = None,
                Turn::Files(Err(why)) => due = self.files_failed(due, &why).await,
                Turn::Tried(Verdict::Healthy) => {
                    if let Some(passed) = trial.take() {
                        checks = self.pass_trial(passed).await;
                    }
                }
                Turn::Tried(Verdict::Unhealthy(why)) => {
                    if let Some(trial) = &trial {
                        self.fail_trial(trial, &why).await;
                    }
                }
                Turn::Judged(Verdict::Healthy) => {
                    self.admit().await;
                    self.happen(ReplicaEvent::BecameHealthy).await;
                }
                Turn::Judged(Verdict::Unhealthy(why)) => return self.restart_sick(&why).await,
                // It was not healthy before, so that this brings the reason and changes nothing.
                Turn::Judged(Verdict::FailsSoFar(why)) => {
                    let message = why.into();
                    self.happen(ReplicaEvent::BecameUnhealthy { message }).await;
                }
                // What it has goes on to count meanwhile.
                Turn::Tried(Verdict::FailsSoFar(_)) => {}
                Turn::Steady => self.happen(ReplicaEvent::RanSteadily).await,
            }
        }
    }

    /// Its checks from the beginning; those of a service that wakes for its callers look more often at first.
    fn checks_at_start(&self) -> Checks {
        let checks = Checks::new(self.core.machine().healthy);
        let spec = self.core.spec();
        match spec.is_some_and(|spec| spec.scale.cold_start().is_some()) {
            true => checks.of_one_that_is_awaited(),
            false => checks,
        }
    }

    /// When the failures so far count no more, if it still runs then.
    fn forgets_at(&self) -> Instant {
        let now = Instant::now();
        match self.core.counting_interval() {
            None => now + STEADY_AFTER,
            Some(interval) => self.failing_since.unwrap_or(now) + Duration::from_millis(interval.as_millis()),
        }
    }

    async fn turn(
        &mut self,
        checks: &mut Checks,
        trial: Option<&mut Trial>,
        steady_at: Instant,
        due: Option<&FilesDue>,
    ) -> Turn {
        let spec = self.core.deciding().unwrap_or_default();
        let (driver, name) = (&*self.driver, self.core.name());
        let ports = ports::under(self.core.ports(), &spec);
        let subject = Subject {
            driver,
            name,
            spec: &spec,
            ports: &ports,
        };
        let (given, balancer) = (self.core.ports(), &*self.context.balancer);
        let tried = async {
            // What it is to try includes its files.
            let Some(trial) = trial.filter(|_| due.is_none()) else {
                return std::future::pending().await;
            };
            let spec = Arc::clone(&trial.spec);
            let subject = Subject {
                driver,
                name,
                spec: &spec,
                ports: &ports::under(given, &spec),
            };
            trial.next(&subject, balancer).await
        };
        let context = &self.context;
        let files = async {
            match due {
                Some(due) => due.settle(context, driver, name).await,
                None => std::future::pending().await,
            }
        };
        let has_failures = self.core.has_failures_to_forget();
        tokio::select! {
            biased;
            exit = driver.wait(name) => Turn::Ended(exit),
            changed = self.wish.changed() => match changed {
                Ok(()) => Turn::Wished,
                Err(_) => std::future::pending().await,
            },
            settled = files => Turn::Files(settled),
            verdict = tried => Turn::Tried(verdict),
            verdict = checks.next(spec.health.as_ref(), &subject) => Turn::Judged(verdict),
            () = sleep_until(steady_at), if has_failures => Turn::Steady,
        }
    }

    /// Opens the endpoints of a replica that runs already: where one cannot be opened, the runner says so in the log
    /// and lets the replica run.
    pub(super) async fn open_endpoints(&self) {
        let Some(spec) = self.core.spec() else { return };
        if let Err(why) = self.context.balancer.open(self.name(), spec).await {
            tracing::warn!(replica = %self.name(), why, "its endpoint is not open");
        }
    }

    /// Says from where it calls others. A container's was said before it ran, unless an earlier daemon started it.
    async fn tell_callers_place(&self) {
        let Some(spec) = self.core.spec() else { return };
        let from = match (spec.runtime(), self.core.machine().pid) {
            (Runtime::Container, _) => match self.driver.address(self.name()).await {
                Ok(Some(IpAddr::V4(address))) => CallsFrom::Bridge(address),
                Ok(_) | Err(_) => return,
            },
            (Runtime::Process, Some(pid)) => {
                let looked = tokio::task::spawn_blocking(move || of_process(pid)).await;
                let Ok(from) = looked else { return };
                from
            }
            (Runtime::Process, None) => return,
        };
        self.context.balancer.calls_from(self.name(), from).await;
    }

    pub(super) async fn admit(&mut self) {
        let backends = self.backends().await;
        if !backends.is_empty() {
            self.context.balancer.admit(self.name(), &backends).await;
        }
    }

    async fn run_ended(&mut self, exit: &Exit) {
        self.context.balancer.withdraw(self.name(), Duration::ZERO).await;
        tracing::info!(replica = %self.name(), %exit, "ended");
        self.happen(ended(exit)).await;
    }

    async fn look_again(&mut self) {
        let found = self.driver.inspect(self.name()).await.ok();
        self.resume(found).await;
    }

    /// One that is unhealthy is ended and started again.
    async fn restart_sick(&mut self, why: &str) {
        tracing::warn!(replica = %self.name(), why, "is unhealthy and is restarted");
        let message = message(why);
        self.happen(ReplicaEvent::BecameUnhealthy { message }).await;
        self.context.balancer.withdraw(self.name(), Duration::ZERO).await;
        let exit = self.end_workload().await;
        let event = self.core.sick_ends(exit.as_ref().map(known_exit));
        self.happen(event).await;
    }
}
