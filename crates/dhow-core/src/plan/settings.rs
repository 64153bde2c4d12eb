//! Settings that change under running replicas: tried by one after the other, counted when all have passed.
//!
//! Until it has passed, a replica goes on under the settings that count, so that a bad check takes nothing down.

use super::Planner;
use super::report::{ServiceReport, Why};
use super::view::{Seen, View};
use crate::command::PlanCommand;
use crate::ids::{ReplicaKey, Slot};
use crate::spec::TimeSpan;
use crate::state::{State, Trial};
use crate::time::ClusterTime;

/// How far a replica has come with the settings that are to count next.
enum SettingsProgress<'a> {
    /// It has not been told.
    ToCome,
    Trying(&'a Trial),
    /// It has passed, and shows that it stays so.
    Proving {
        until: Option<ClusterTime>,
    },
    Done,
}

impl Planner<'_> {
    /// Moves replicas to the settings that are to come, where there are any. Whether there are none.
    pub(super) fn settings(&mut self, view: &View<'_>, report: &mut ServiceReport) -> bool {
        let Some(next) = &view.info.next else {
            return true;
        };
        let service = view.service;
        let (mut sick, mut serving, mut busy) = (Vec::new(), Vec::new(), false);
        for (slot, seen) in tried(view) {
            match progress_of(self.state, view, seen) {
                SettingsProgress::Done => {}
                SettingsProgress::ToCome if seen.available => serving.push((slot, seen.key)),
                SettingsProgress::ToCome => sick.push(seen.key),
                SettingsProgress::Trying(trial) => {
                    busy = true;
                    if let Some(role) = service.role(slot.role) {
                        let why = Why::TriesSettings {
                            node: seen.replica.node,
                            message: trial.message.clone(),
                        };
                        report.add(role, slot, why);
                    }
                }
                SettingsProgress::Proving { until } => {
                    busy = true;
                    if let Some(at) = until {
                        self.cache.wake_at(service.id, at);
                    }
                }
            }
        }
        if sick.is_empty() && serving.is_empty() && !busy {
            self.push(PlanCommand::AdoptSettings {
                service: service.id,
                generation: service.target,
                settings: next.id,
            });
            return false;
        }
        // Those that serve nobody lose nothing; of the others one at a time, while all that was promised is there.
        let mut replicas: Vec<ReplicaKey> = sick;
        if replicas.is_empty() && !busy && is_whole(view) {
            replicas.extend(serving.first().map(|(_, key)| *key));
        }
        for (slot, key) in serving {
            if let (Some(role), false) = (service.role(slot.role), replicas.contains(&key)) {
                report.add(role, slot, Why::TurnToCome);
            }
        }
        if !replicas.is_empty() && !service.held {
            self.push(PlanCommand::TrySettings {
                service: service.id,
                generation: service.target,
                settings: next.id,
                replicas,
            });
        }
        false
    }

    /// Why the revision is given up for its settings, where it is; looks again when one is late.
    pub(super) fn settings_late(&mut self, view: &View<'_>) -> Option<String> {
        let given = view.spec().rollout.healthy_deadline;
        let mut cause = None;
        for (_, seen) in tried(view) {
            let SettingsProgress::Trying(trial) = progress_of(self.state, view, seen) else {
                continue;
            };
            let by = trial.began.after(given);
            if by > self.now {
                self.cache.wake_at(view.service.id, by);
                continue;
            }
            let id = self.state.replica_name(&seen.key).map(|name| name.id());
            let why = trial.message.as_ref();
            cause = cause.or_else(|| {
                Some(format!(
                    "`{}` on node {} did not pass its new settings within {given}{}",
                    id?,
                    seen.replica.node,
                    why.map(|why| format!(": {why}")).unwrap_or_default()
                ))
            });
        }
        cause
    }
}

/// The replicas that have to pass: those that stay, and that can.
fn tried<'v, 'a>(view: &'v View<'a>) -> impl Iterator<Item = (Slot, &'v Seen<'a>)> {
    let wanted = view.slots.iter().filter(|(slot, _)| view.wants(*slot));
    wanted
        .flat_map(|(slot, seen)| seen.fresh.iter().map(|seen| (*slot, seen)))
        .filter(|(_, seen)| !seen.is_lost() && !seen.has_ended())
}

fn progress_of<'s>(state: &State, view: &View<'_>, seen: &'s Seen<'_>) -> SettingsProgress<'s> {
    let knows = state
        .node(seen.replica.node)
        .is_some_and(|node| node.info.tries_settings);
    if !knows {
        return SettingsProgress::Done;
    }
    let next = view.info.next.as_ref().map(|next| next.id);
    let trial = seen.replica.trial.as_ref();
    let Some(trial) = trial.filter(|trial| Some(trial.settings) == next) else {
        return SettingsProgress::ToCome;
    };
    let Some(passed) = trial.passed else {
        return SettingsProgress::Trying(trial);
    };
    let span: TimeSpan = view.spec().rollout.min_healthy;
    let until = passed.after(span);
    if until <= view.now && seen.replica.is_healthy_for(span, view.now) {
        return SettingsProgress::Done;
    }
    let healthy = seen.replica.healthy_since.map(|since| since.after(span));
    SettingsProgress::Proving {
        until: healthy.map(|healthy| healthy.max(until)),
    }
}

/// Whether as many slots are served as the spec promises.
fn is_whole(view: &View<'_>) -> bool {
    let wanted = view.slots.iter().filter(|(slot, _)| view.wants(*slot));
    let (mut all, mut available) = (0_usize, 0_usize);
    for (_, slot) in wanted {
        all += 1;
        available += usize::from(slot.is_available());
    }
    available >= all.saturating_sub(view.spec().max_unavailable() as usize)
}
