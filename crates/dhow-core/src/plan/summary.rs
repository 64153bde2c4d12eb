//! What is remembered of a service between plans, so that a change of one replica costs a look at its slot
//! and not at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::Vector;

use crate::ids::{Generation, NodeId, Slot};
use crate::state::{GenerationInfo, Replica, ScheduleRun, Service};

/// What the plan cache keeps of one service.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// What the rest was derived from. None until the first look.
    basis: Option<Basis>,
    /// Slots that may need something.
    pub open: BTreeSet<Slot>,
    /// How many replicas that are to run are on which node.
    pub present: BTreeMap<NodeId, u32>,
}

/// What decides how a slot is seen, replicas and nodes apart.
#[derive(Debug)]
struct Basis {
    target: Generation,
    info: Arc<GenerationInfo>,
    counts: Arc<[u32]>,
    cron_base: u32,
    runs: Vector<Arc<ScheduleRun>>,
    is_late: bool,
    rolling: bool,
    removing: bool,
}

impl Summary {
    pub fn new(service: &Service, present: &[(NodeId, u32)]) -> Self {
        let basis = service.target_info().map(|info| Basis {
            target: service.target,
            info: info.clone(),
            counts: service.counts.clone(),
            cron_base: service.cron_base,
            runs: service.runs.clone(),
            is_late: service.late.is_some(),
            rolling: service.rolling,
            removing: service.is_off(),
        });
        Self {
            basis,
            open: BTreeSet::new(),
            present: present.iter().copied().collect(),
        }
    }

    /// Whether it still speaks of the service as it is.
    pub fn is_of(&self, service: &Service) -> bool {
        self.basis.as_ref().is_some_and(|basis| {
            basis.target == service.target
                && service
                    .target_info()
                    .is_some_and(|info| Arc::ptr_eq(info, &basis.info))
                && basis.counts == service.counts
                && basis.cron_base == service.cron_base
                && basis.runs == service.runs
                && basis.is_late == service.late.is_some()
                && (basis.rolling, basis.removing) == (service.rolling, service.is_off())
        })
    }

    /// Follows one replica's change; `counts` says whether it counts where the service's replicas are.
    pub fn follow(
        &mut self,
        slot: Slot,
        old: Option<&Replica>,
        new: Option<&Replica>,
        counts: impl Fn(&Replica) -> bool,
    ) {
        self.open.insert(slot);
        if let Some(old) = old.filter(|old| counts(old)) {
            let count = self.present.get_mut(&old.node).map(|count| {
                *count = count.saturating_sub(1);
                *count
            });
            if count == Some(0) {
                self.present.remove(&old.node);
            }
        }
        if let Some(new) = new.filter(|new| counts(new)) {
            *self.present.entry(new.node).or_default() += 1;
        }
    }
}
