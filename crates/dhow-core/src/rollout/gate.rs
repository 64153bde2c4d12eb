//! The gates of a rollout: each has a name that stays and says in words what it waits for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::judgement::{Figures, JUDGED_FROM, Judgement, judge, judge_at_last};
use crate::spec::{Promote, RolloutSpec, TimeSpan};
use crate::state::Rollout;
use crate::time::ClusterTime;

/// Where a rollout may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// A person stopped it.
    Paused,
    /// The canary runs and has proved itself.
    CanaryHealthy,
    /// It has been called often enough to be compared, or long enough not to be.
    CanaryErrors,
    /// A person says that the others may follow.
    Promotion,
    /// What a large service has replaced so far is good.
    Wave,
}

/// A rollout that waits, and why in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtGate {
    pub gate: Gate,
    pub reason: Arc<str>,
}

impl Gate {
    pub fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::CanaryHealthy => "canary_healthy",
            Self::CanaryErrors => "canary_errors",
            Self::Promotion => "promotion",
            Self::Wave => "wave",
        }
    }

    pub(crate) fn waits(self, reason: impl Into<Arc<str>>) -> AtGate {
        AtGate {
            gate: self,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for AtGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gate `{}`)", self.reason, self.gate.name())
    }
}

/// What is known of a canary.
#[derive(Clone, Copy, Debug)]
pub struct CanaryLook<'a> {
    pub rollout: &'a Rollout,
    pub spec: &'a RolloutSpec,
    /// How many there are to be, and how many can be relied on.
    pub wanted: u32,
    pub proven: u32,
    /// Since when all of them can.
    pub proven_since: Option<ClusterTime>,
    /// Whether anybody can call it.
    pub has_endpoints: bool,
    pub figures: Figures,
    pub now: ClusterTime,
}

/// What becomes of a canary now.
#[derive(Clone, Debug, PartialEq)]
pub enum Passage {
    /// Looked at again then, or when something changes.
    Waits(AtGate, Option<ClusterTime>),
    Judged(Judgement),
}

/// Whether a person stopped the rollout.
pub fn paused(rollout: Option<&Rollout>) -> Option<AtGate> {
    let by = rollout?.paused_by.as_ref()?;
    Some(Gate::Paused.waits(format!(
        "{by} paused the rollout; `dhow rollout resume` lets it go on"
    )))
}

/// The gates of a canary, one after the other.
pub fn canary_passage(look: &CanaryLook<'_>) -> Passage {
    if let Some(at) = paused(Some(look.rollout)) {
        return Passage::Waits(at, None);
    }
    // With no replica at all there is nothing to judge.
    let since = match (look.wanted, look.proven_since) {
        (0, _) => look.now,
        (_, Some(since)) => look.rollout.tried_anew.map_or(since, |anew| anew.max(since)),
        (_, None) => return Passage::Waits(unproven(look), None),
    };
    // Failures count as soon as there are enough requests, and for as long as it runs.
    let judged = judge(&look.figures).filter(|_| is_news(look));
    match (judged, &look.rollout.judgement) {
        (Some(judgement), _) => Passage::Judged(judgement),
        (None, Some(known)) if look.spec.promote == Promote::Manual => {
            let text = format!("{known}; it waits for `dhow rollout promote`");
            Passage::Waits(Gate::Promotion.waits(text), None)
        }
        (None, _) => without_enough(look, since),
    }
}

fn unproven(look: &CanaryLook<'_>) -> AtGate {
    let CanaryLook { wanted, proven, .. } = look;
    let replicas = if *wanted == 1 { "replica" } else { "replicas" };
    let span = look.spec.min_healthy;
    Gate::CanaryHealthy.waits(format!(
        "{proven} of {wanted} canary {replicas} can be relied on, each after {span} in health"
    ))
}

/// Whether the figures say more than those that it was judged by: each judgement needs twice the requests of the one
/// before, so that a canary that waits for a person is looked at a few times and not at every request.
fn is_news(look: &CanaryLook<'_>) -> bool {
    let judged = look.rollout.judgement.as_ref();
    let before = judged.map_or(0, |known| known.figures.canary.requests);
    look.figures.canary.requests >= before.saturating_mul(2).max(JUDGED_FROM)
}

fn without_enough(look: &CanaryLook<'_>, since: ClusterTime) -> Passage {
    let observe = match look.has_endpoints && look.wanted > 0 {
        true => look.spec.observe,
        false => TimeSpan::ZERO,
    };
    let until = since.after(observe);
    if until <= look.now {
        return Passage::Judged(judge_at_last(&look.figures));
    }
    let requests = look.figures.canary.requests;
    let text = format!(
        "the canary got {requests} of the {JUDGED_FROM} requests that it is judged by; after {observe} it is judged by \
         what it got and its health"
    );
    Passage::Waits(Gate::CanaryErrors.waits(text), Some(until))
}
