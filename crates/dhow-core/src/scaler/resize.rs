//! One change of a count: what called for it, and what is kept of it.

use serde::{Deserialize, Serialize};

use super::Bounds;
use super::load::{Load, Measure};
use crate::spec::{ScaleSpec, ServiceSpec};
use crate::time::ClusterTime;

/// Within so many percent of its target a load changes nothing.
const TOLERANCE_PERCENT: u128 = 10;

/// Another count of an adaptive service, with the figures that it was decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    pub from: u32,
    pub to: u32,
    /// What was told when it was decided.
    pub load: Load,
    /// The most that was called for: where replicas are taken away, during the whole cooldown.
    pub most: u32,
}

/// How many replicas a load calls for, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Called {
    pub replicas: u32,
    pub by: Measure,
    /// What there is of it in all, in thousandths or in bytes.
    pub total: u64,
    /// What is wanted of it on each replica.
    pub each: u64,
}

/// A change of a count that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastResize {
    pub at: ClusterTime,
    pub resize: Resize,
    pub called: Called,
}

impl Called {
    /// In words: the figure and what it is held against.
    pub fn words(&self) -> String {
        let Self { by, total, each, .. } = *self;
        match by {
            Measure::Cpu | Measure::Memory | Measure::Rps | Measure::InFlight => {
                format!(
                    "{by}: {} in all, {} for each wanted",
                    by.shown(total),
                    by.shown(each)
                )
            }
            Measure::Calls if total == 0 => "nobody calls it".to_owned(),
            Measure::Calls => "it is called".to_owned(),
            Measure::Bounds => "the limits of its file".to_owned(),
        }
    }
}

impl Resize {
    /// In words, with what called for it.
    pub fn words(&self, called: &Called) -> String {
        format!("{} to {} replicas: {}", self.from, self.to, called.words())
    }
}

/// What each target says: the measure, what there is of it, and what is wanted of it on each replica.
fn measured(spec: &ServiceSpec, load: &Load) -> Vec<(Measure, u64, u64)> {
    let ScaleSpec::Adaptive { targets, .. } = &spec.scale else {
        return Vec::new();
    };
    let milli = |target: f64| (target * 1_000.0).round() as u64;
    let share = |of: Option<u64>, percent: Option<f64>| {
        // 70 % of 250 thousandths are 175 of them.
        let of = of?;
        let each = u128::from(of) * u128::from(milli(percent?)) / 100_000;
        u64::try_from(each).ok()
    };
    let cpu = share(spec.resources.cpu.map(|cpu| cpu.0), targets.cpu);
    let memory = share(spec.resources.memory.map(|memory| memory.0), targets.memory);
    let in_flight = load.in_flight.saturating_mul(1_000);
    let all = [
        (Measure::Cpu, load.cpu_milli, cpu),
        (Measure::Memory, load.memory_bytes, memory),
        (Measure::Rps, load.requests_milli, targets.rps.map(milli)),
        (Measure::InFlight, in_flight, targets.in_flight.map(milli)),
    ];
    let known = all.into_iter();
    known
        .filter_map(|(measure, total, each)| Some((measure, total, each?.max(1))))
        .collect()
}

/// So many replicas of `each` have the total between them; where it is about what so many have now, these.
fn enough(total: u64, each: u64, count: u32) -> u32 {
    let (total, each, count_wide) = (u128::from(total), u128::from(each), u128::from(count));
    let wanted = count_wide * each * 100;
    let is_about = total * 100 >= count_wide * each * (100 - TOLERANCE_PERCENT)
        && total * 100 <= wanted + count_wide * each * TOLERANCE_PERCENT;
    if count > 0 && is_about {
        return count;
    }
    u32::try_from(total.div_ceil(each)).unwrap_or(u32::MAX)
}

/// What the load calls for: the largest that any target does, within the limits. One that may have no replica has one as
/// soon as somebody calls, and none where nobody does, whatever its replicas use by themselves.
pub(super) fn called(spec: &ServiceSpec, bounds: &Bounds, count: u32, load: &Load) -> Called {
    let mut most = Called {
        replicas: bounds.min,
        by: Measure::Bounds,
        total: u64::from(bounds.min),
        each: 1,
    };
    let calls = |replicas| Called {
        replicas,
        by: Measure::Calls,
        total: load.in_flight.max(load.waiting).saturating_mul(1_000),
        each: 1_000,
    };
    if bounds.min == 0 {
        most = match load.is_idle() {
            true => return calls(0),
            false => Called {
                total: load.in_flight.max(load.waiting).max(1).saturating_mul(1_000),
                ..calls(1)
            },
        };
    }
    for (by, total, each) in measured(spec, load) {
        let replicas = enough(total, each, count);
        if replicas > most.replicas {
            most = Called {
                replicas,
                by,
                total,
                each,
            };
        }
    }
    // Where the limits say how many there are, what is nearest to them is told.
    if most.by == Measure::Bounds
        && let Some((by, total, each)) = fullest(spec, load)
    {
        most = Called {
            by,
            total,
            each,
            ..most
        };
    }
    most.replicas = most.replicas.min(bounds.max).max(bounds.min);
    most
}

/// The measure that calls for the most.
fn fullest(spec: &ServiceSpec, load: &Load) -> Option<(Measure, u64, u64)> {
    let all = measured(spec, load).into_iter();
    // total / each, compared without fractions.
    all.max_by(|(_, total, each), (_, other, other_each)| {
        let (this, that) = (
            u128::from(*total) * u128::from(*other_each),
            u128::from(*other) * u128::from(*each),
        );
        this.cmp(&that)
    })
}
