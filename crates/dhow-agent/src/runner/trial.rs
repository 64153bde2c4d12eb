//! Settings that a running replica tries: their check is made beside the one that decides, which goes on to decide
//! traffic and restarts until the new one passes.

use std::sync::Arc;

use dhow_core::ids::SettingsId;
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::ServiceSpec;

use super::{Runner, message};
use crate::balance::Balancer;
use crate::health::{Checks, Subject, Verdict};
use crate::limits::CLAIM_RETRY;

/// A trial under way.
pub(super) struct Trial {
    settings: SettingsId,
    pub spec: Arc<ServiceSpec>,
    checks: Checks,
    /// The check has passed; only the ports are missing.
    checked: bool,
    /// Whether the runner has said that the settings do not pass, and that their ports cannot be had.
    told: bool,
    told_ports: bool,
}

impl Trial {
    /// Waits until there is something to tell: that it has passed, its ports are listened on and all, or why not.
    /// May be dropped and called again.
    pub async fn next(&mut self, subject: &Subject<'_>, balancer: &dyn Balancer) -> Verdict {
        loop {
            // Each told once: whatever ends this wait cuts off the check that decides.
            if self.checked {
                let Err(why) = balancer.claim(subject.name, Some(&self.spec)).await else {
                    return Verdict::Healthy;
                };
                self.checked = false;
                self.checks.again_after(CLAIM_RETRY);
                if !std::mem::replace(&mut self.told_ports, true) {
                    return Verdict::Unhealthy(why);
                }
            }
            match self.checks.next(self.spec.health.as_ref(), subject).await {
                Verdict::Healthy => self.checked = true,
                Verdict::Unhealthy(why) => {
                    if !std::mem::replace(&mut self.told, true) {
                        return Verdict::Unhealthy(why);
                    }
                }
                Verdict::FailsSoFar(_) => {}
            }
        }
    }
}

impl Runner {
    /// The trial of what is to be tried now; one that is under way goes on.
    pub(super) fn trial(&self, under_way: Option<Trial>) -> Option<Trial> {
        let next = self.core.tries()?;
        match under_way {
            Some(trial) if trial.settings == next.id && trial.spec == next.spec => Some(trial),
            Some(_) | None => Some(Trial {
                settings: next.id,
                spec: Arc::clone(&next.spec),
                checks: match self.core.machine().healthy {
                    true => Checks::of_one_that_is_up(),
                    false => Checks::new(false),
                },
                checked: false,
                told: false,
                told_ports: false,
            }),
        }
    }

    /// It bears the new settings: from now on they decide, and its ports are theirs.
    pub(super) async fn pass_trial(&mut self, trial: Trial) -> Checks {
        let settings = trial.settings;
        tracing::info!(replica = %self.name(), "passes its new settings");
        if let Some(happening) = self.core.pass(settings) {
            self.tell(happening).await;
        }
        self.admit().await;
        let events = self.core.passes(settings);
        self.happen_all(events).await;
        trial.checks
    }

    /// Listens again on the ports of settings that it has passed, after a daemon before this one. What cannot be had
    /// any more is tried again.
    pub(super) async fn claim_again(&mut self) {
        let Some(next) = self.core.passed().cloned() else {
            return;
        };
        if let Err(why) = self.context.balancer.claim(self.name(), Some(&next.spec)).await {
            tracing::warn!(replica = %self.name(), why, "the ports of its new settings are gone");
            self.core.try_again();
        }
    }

    /// Gives up the ports of settings that it has tried.
    pub(super) async fn unclaim(&self) {
        // There is nothing that could be refused.
        let _ = self.context.balancer.claim(self.name(), None).await;
    }

    /// It does not pass for now: told once, and tried further.
    pub(super) async fn fail_trial(&mut self, trial: &Trial, why: &str) {
        tracing::warn!(replica = %self.name(), why, "does not pass its new settings; those before count");
        self.happen(ReplicaEvent::SettingsFailed {
            settings: trial.settings,
            message: message(why),
        })
        .await;
    }
}
