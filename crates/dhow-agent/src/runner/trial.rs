//! Settings that a running replica tries: their check is made beside the one that decides, which goes on to decide
//! traffic and restarts until the new one passes.

use std::sync::Arc;

use dhow_core::ids::SettingsId;
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::ServiceSpec;

use super::{Runner, message};
use crate::health::Checks;

/// A trial under way.
pub(super) struct Trial {
    settings: SettingsId,
    pub spec: Arc<ServiceSpec>,
    pub checks: Checks,
    /// Whether it was told that they do not pass.
    pub told: bool,
}

impl Runner {
    /// The trial of what is to be tried now; one that is under way goes on.
    pub(super) fn trial(&self, under_way: Option<Trial>) -> Option<Trial> {
        let next = self.next.as_ref().filter(|next| Some(next.id) != self.passed)?;
        match under_way {
            Some(trial) if trial.settings == next.id && trial.spec.health == next.spec.health => Some(trial),
            Some(_) | None => Some(Trial {
                settings: next.id,
                spec: Arc::clone(&next.spec),
                checks: Checks::new(false),
                told: false,
            }),
        }
    }

    /// It bears the new settings: from now on they decide, and its ports are theirs.
    pub(super) async fn pass_trial(&mut self, trial: Trial) -> Checks {
        let settings = trial.settings;
        tracing::info!(replica = %self.name, "passes its new check");
        self.passed = Some(settings);
        if let Some(spec) = self.spec.clone() {
            self.track(&spec).await;
        }
        self.admit().await;
        self.happen(ReplicaEvent::SettingsPassed { settings }).await;
        if !self.machine.healthy {
            self.happen(ReplicaEvent::BecameHealthy).await;
        }
        trial.checks
    }

    /// It does not pass for now: told once, and tried further.
    pub(super) async fn fail_trial(&mut self, trial: &mut Trial, why: &str) {
        trial.told = true;
        tracing::warn!(replica = %self.name, why, "does not pass its new check; the one before counts");
        self.happen(ReplicaEvent::SettingsFailed {
            settings: trial.settings,
            message: message(why),
        })
        .await;
    }
}
