//! Whether a node is open to an ask, its room aside. The one place that knows the rules.

use super::ask::Ask;
use super::marks::Mark;
use super::node_row::{NodeRow, Occupant, Openness};
use super::rules::Broken;
use crate::ids::ServiceId;
use crate::spec::{NodeMode, VolumeSupport};

/// Why a node is closed to an ask, however much room it has; the first that holds, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closed {
    NotItsNode,
    RunsNone,
    /// A label or the platform differs.
    Unsuitable,
    /// Its agent is of a version that mounts no files.
    MountsNoFiles,
    RunsNoSteps,
    /// Its agent is of a version that makes no ephemeral volumes.
    MakesNoVolumes,
    /// Its file system holds no volume to a size.
    SizesNoVolumes,
    Unreachable,
    Draining,
    Drained,
    Avoided,
    HeldExclusively,
    DedicatedToAnother,
    /// The ask wants no other service's replicas beside it.
    RunsOthers,
    /// The ask wants no other replica beside it.
    RunsAny,
    Breaks(Broken),
}

/// Who is on a node, as seen by one service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenancy {
    occupant: Occupant,
    own: u32,
    others: u32,
}

impl Tenancy {
    pub(super) fn of(node: &NodeRow, own: u32) -> Self {
        Self {
            occupant: node.occupant,
            own,
            others: node.replicas.saturating_sub(own),
        }
    }

    /// As if the service itself had nothing there.
    pub(super) fn without(self, service: ServiceId) -> Self {
        let occupant = match self.occupant {
            Occupant::Dedicated(of) | Occupant::Exclusive(of) if of == service => Occupant::Nobody,
            other @ (Occupant::Nobody | Occupant::Dedicated(_) | Occupant::Exclusive(_)) => other,
        };
        Self {
            occupant,
            own: 0,
            ..self
        }
    }

    fn closed_to(self, service: ServiceId, mode: NodeMode) -> Option<Closed> {
        match self.occupant {
            Occupant::Exclusive(_) => return Some(Closed::HeldExclusively),
            Occupant::Dedicated(of) if of != service => return Some(Closed::DedicatedToAnother),
            Occupant::Dedicated(_) | Occupant::Nobody => {}
        }
        match mode {
            NodeMode::Shared => None,
            NodeMode::Dedicated => (self.others > 0).then_some(Closed::RunsOthers),
            NodeMode::Exclusive => (self.own > 0 || self.others > 0).then_some(Closed::RunsAny),
        }
    }
}

/// Why the node is closed to the ask; none where it is open. `required` is the number of requirements on
/// labels and platform; `broken` the rule about several nodes that a replica there would break.
pub(super) fn closed(
    ask: &Ask<'_>,
    required: u32,
    node: &NodeRow,
    (mark, broken): (&Mark, Option<Broken>),
    tenancy: Tenancy,
) -> Option<Closed> {
    if ask.bound_to.is_some_and(|bound| bound != node.id) {
        return Some(Closed::NotItsNode);
    }
    if node.open == Openness::NoReplicas {
        return Some(Closed::RunsNone);
    }
    if mark.met != required {
        return Some(Closed::Unsuitable);
    }
    if ask.spec.has_files() && !node.mounts_files {
        return Some(Closed::MountsNoFiles);
    }
    if ask.spec.has_init_steps() && !node.runs_steps {
        return Some(Closed::RunsNoSteps);
    }
    let needs = ask.spec.volume_support();
    if node.volumes < needs {
        return Some(match needs {
            VolumeSupport::Named | VolumeSupport::Ephemeral => Closed::MakesNoVolumes,
            VolumeSupport::Sized => Closed::SizesNoVolumes,
        });
    }
    match node.open {
        Openness::Open | Openness::NoReplicas => {}
        Openness::Unreachable => return Some(Closed::Unreachable),
        Openness::Draining => return Some(Closed::Draining),
        Openness::Drained => return Some(Closed::Drained),
    }
    if mark.avoided {
        return Some(Closed::Avoided);
    }
    let occupied = tenancy.closed_to(ask.service, ask.spec.node_mode);
    occupied.or(broken.map(Closed::Breaks))
}
