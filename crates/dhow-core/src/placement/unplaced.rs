//! Why a replica has no place, counted over all nodes, as a value and in words.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rules::Wish;
use crate::ids::{NodeId, ServiceName};
use crate::spec::{ByteSize, Cpu, LabelRule};

/// What keeps a replica off a node. A node counts under the first of these that holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The replica is bound to another node.
    NotItsNode,
    /// The node never runs replicas.
    RunsNone,
    Platform {
        os: Option<String>,
        arch: Option<String>,
    },
    LacksLabel {
        key: String,
        value: String,
    },
    /// A comparison of a label does not hold.
    LabelDiffers {
        rule: LabelRule,
    },
    /// Its agent is of a version that shows no configs and secrets as files.
    MountsNoFiles,
    /// Its agent is of a version that runs nothing before the program of a replica.
    RunsNoSteps,
    /// Its agent is of a version that makes no ephemeral volumes.
    MakesNoVolumes,
    /// Its file system holds no volume to a size.
    SizesNoVolumes,
    Unreachable,
    Draining,
    Drained,
    /// It has another deployment's service of that name and knows services by their name alone.
    Avoided,
    HeldExclusively,
    DedicatedToAnother,
    /// The replica wants no other service beside it.
    RunsOthers,
    /// The replica wants no other replica beside it.
    RunsAny,
    /// It has as many of the service as one node may have.
    MaxPerNode {
        max: u32,
    },
    /// It lacks the label by which the service is limited.
    LacksLabelOfLimit {
        key: String,
    },
    /// Nodes with its value of a label have as many of the service as may be.
    MaxPer {
        key: String,
        max: u32,
    },
    /// Another service is not where it is to be.
    Company {
        service: ServiceName,
        by: Option<String>,
        wish: Wish,
    },
    Cpu {
        /// The most that is free on one of these nodes.
        free_milli: u64,
        asked_milli: u64,
    },
    Memory {
        /// The most that is free on one of these nodes.
        free_bytes: u64,
        asked_bytes: u64,
    },
}

/// A reason and the number of nodes it holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hindrance {
    pub nodes: u32,
    pub reason: Reason,
}

/// The one node that a replica may use, and what binds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The node keeps its volume.
    Volume(NodeId),
    /// A system service's replica belongs to its node.
    System(NodeId),
    /// A rebalance moves it there.
    Move(NodeId),
}

/// Why the next replica cannot be placed. `fitting` and the nodes of all hindrances add up to `nodes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    pub nodes: u32,
    /// How many nodes would take it: with any, nothing stands in the way.
    pub fitting: u32,
    /// One entry for each reason, in the order in which they are tried.
    pub hindrances: Vec<Hindrance>,
    #[serde(default)]
    pub bound: Option<Bound>,
}

impl Unplaced {
    /// Whether no node takes it.
    pub fn is_hindered(&self) -> bool {
        self.fitting == 0
    }

    /// How many nodes fit, and what is in the way of the others.
    pub fn with_hindrances(&self) -> impl fmt::Display + '_ {
        WithHindrances(self)
    }

    fn fmt_bound(&self, bound: Bound, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match bound {
            Bound::Volume(node) => write!(f, "its volume is on node {node}, which ")?,
            Bound::System(node) => write!(f, "its own node {node} ")?,
            Bound::Move(node) => write!(f, "it is to be moved to node {node}, which ")?,
        }
        match self
            .hindrances
            .iter()
            .find(|hindrance| hindrance.reason != Reason::NotItsNode)
        {
            Some(hindrance) => hindrance.reason.fmt_predicate(1, f),
            None => f.write_str("is not in the cluster"),
        }
    }
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.fitting, self.nodes) {
            (0, 0) => return f.write_str("there are no nodes"),
            (0, _) => {}
            (1, _) => return write!(f, "1 of {} nodes fits", self.nodes),
            (fitting, nodes) => return write!(f, "{fitting} of {nodes} nodes fit"),
        }
        if let Some(bound) = self.bound {
            return self.fmt_bound(bound, f);
        }
        for (position, hindrance) in self.hindrances.iter().enumerate() {
            match (position, hindrance.nodes) {
                (0, 1) if self.nodes == 1 => f.write_str("the only node ")?,
                (0, all) if self.nodes == all => write!(f, "all {all} nodes ")?,
                (0, some) => write!(f, "{some} of {} nodes ", self.nodes)?,
                (_, some) => write!(f, "; {some} ")?,
            }
            hindrance.reason.fmt_predicate(hindrance.nodes, f)?;
        }
        Ok(())
    }
}

struct WithHindrances<'a>(&'a Unplaced);

impl fmt::Display for WithHindrances<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unplaced {
            nodes,
            fitting,
            hindrances,
            ..
        } = self.0;
        if *fitting == 0 || hindrances.is_empty() {
            return self.0.fmt(f);
        }
        let s = if *fitting == 1 { "s" } else { "" };
        write!(f, "{fitting} of {nodes} nodes fit{s}")?;
        for (position, hindrance) in hindrances.iter().enumerate() {
            let before = if position == 0 { ", " } else { "; " };
            write!(f, "{before}{} ", hindrance.nodes)?;
            hindrance.reason.fmt_predicate(hindrance.nodes, f)?;
        }
        Ok(())
    }
}

impl Reason {
    /// What so many nodes do, as the rest of a sentence.
    fn fmt_predicate(&self, nodes: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = nodes == 1;
        let is = if one { "is" } else { "are" };
        let has = if one { "has" } else { "have at most" };
        let s = if one { "s" } else { "" };
        match self {
            Self::NotItsNode => write!(f, "{is} not the node that it is bound to"),
            Self::RunsNone => write!(f, "run{s} no replicas"),
            Self::Platform { os, arch } => write!(f, "{is} not {}", Wanted { os, arch }),
            Self::LacksLabel { key, value } => write!(f, "lack{s} label {key}={value}"),
            Self::LabelDiffers { rule } => {
                let does = if one { "does" } else { "do" };
                write!(f, "{does} not have `{rule}`")
            }
            Self::MountsNoFiles => write!(f, "run{s} a version that mounts no configs and secrets"),
            Self::RunsNoSteps => write!(f, "run{s} a version that runs no `init` steps"),
            Self::MakesNoVolumes => write!(f, "run{s} a version that makes no ephemeral volumes"),
            Self::SizesNoVolumes => write!(
                f,
                "cannot hold a volume to a `size`, without project quotas on the disk of {}",
                if one {
                    "its data directory"
                } else {
                    "their data directories"
                }
            ),
            Self::Unreachable => write!(f, "{is} unreachable"),
            Self::Draining => write!(f, "{is} draining"),
            Self::Drained => write!(f, "{is} drained"),
            Self::Avoided => write!(
                f,
                "would not tell it from another deployment's service of that name"
            ),
            Self::HeldExclusively => write!(f, "{is} held by an exclusive replica"),
            Self::DedicatedToAnother => write!(f, "{is} dedicated to another service"),
            Self::RunsOthers => write!(f, "run{s} other services, a dedicated node is asked"),
            Self::RunsAny => write!(f, "run{s} replicas already, an exclusive node is asked"),
            Self::MaxPerNode { max } => {
                let have = if one { "has" } else { "have" };
                write!(f, "{have} {max} already: max_per_node {max}")
            }
            Self::LacksLabelOfLimit { key } => write!(f, "lack{s} label {key}, which max_per names"),
            Self::MaxPer { key, max } => {
                write!(f, "{is} in a {key} that has {max} already: max_per {key} {max}")
            }
            Self::Company { service, by, wish } => fmt_company(service, by.as_deref(), (*wish, one), f),
            Self::Cpu {
                free_milli,
                asked_milli,
            } => {
                write!(
                    f,
                    "{has} {} CPU free, {} asked",
                    Cpu(*free_milli),
                    Cpu(*asked_milli)
                )
            }
            Self::Memory {
                free_bytes,
                asked_bytes,
            } => {
                write!(
                    f,
                    "{has} {} free, {} asked",
                    RoundedDown(*free_bytes),
                    ByteSize(*asked_bytes)
                )
            }
        }
    }
}

/// What nodes lack or have of another service.
fn fmt_company(
    service: &ServiceName,
    by: Option<&str>,
    (wish, one): (Wish, bool),
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let s = if one { "s" } else { "" };
    let is = if one { "is" } else { "are" };
    match (wish, by) {
        (Wish::Near, None) => {
            let does = if one { "does" } else { "do" };
            write!(f, "{does} not run `{service}`, which it is to be near")
        }
        (Wish::Near, Some(label)) => write!(f, "{is} in no {label} with `{service}`, which it is to be near"),
        (Wish::Away, None) => write!(f, "run{s} `{service}`, which it keeps away from"),
        (Wish::Away, Some(label)) => {
            write!(f, "{is} in a {label} with `{service}`, which it keeps away from")
        }
        (Wish::AwayFromIt, None) => write!(f, "run{s} `{service}`, which keeps away from it"),
        (Wish::AwayFromIt, Some(label)) => {
            write!(f, "{is} in a {label} with `{service}`, which keeps away from it")
        }
    }
}

/// `linux/x86_64`, or the one of the two that is asked for.
struct Wanted<'a> {
    os: &'a Option<String>,
    arch: &'a Option<String>,
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.os, self.arch) {
            (Some(os), Some(arch)) => write!(f, "{os}/{arch}"),
            (Some(one), None) | (None, Some(one)) => f.write_str(one),
            (None, None) => f.write_str("any platform"),
        }
    }
}

/// A size to a tenth of its unit. Down, so that what is free never reads as if it were enough.
struct RoundedDown(u64);

impl fmt::Display for RoundedDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        let Some((unit, name)) = UNITS.iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{}B", self.0);
        };
        // The remainder is below 2^40, so ten times it is far from overflowing.
        match (self.0 / unit, self.0 % unit * 10 / unit) {
            (whole, 0) => write!(f, "{whole}{name}"),
            (whole, tenths) => write!(f, "{whole}.{tenths}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unplaced(nodes: u32, hindrances: &[(u32, Reason)]) -> Unplaced {
        let hindrances = hindrances
            .iter()
            .map(|(nodes, reason)| Hindrance {
                nodes: *nodes,
                reason: reason.clone(),
            })
            .collect();
        Unplaced {
            nodes,
            fitting: 0,
            hindrances,
            bound: None,
        }
    }

    fn lacks_zone() -> Reason {
        Reason::LacksLabel {
            key: "zone".into(),
            value: "a".into(),
        }
    }

    fn memory() -> Reason {
        Reason::Memory {
            free_bytes: (180 << 20) + 5,
            asked_bytes: 256 << 20,
        }
    }

    #[test]
    fn it_reads_as_a_sentence() {
        let text = unplaced(5, &[(3, lacks_zone()), (2, memory())]).to_string();
        assert_eq!(
            text,
            "3 of 5 nodes lack label zone=a; 2 have at most 180Mi free, 256Mi asked"
        );
        let text = unplaced(2, &[(1, lacks_zone()), (1, memory())]).to_string();
        assert_eq!(
            text,
            "1 of 2 nodes lacks label zone=a; 1 has 180Mi free, 256Mi asked"
        );
        assert_eq!(
            unplaced(1, &[(1, Reason::Draining)]).to_string(),
            "the only node is draining"
        );
        assert_eq!(
            unplaced(3, &[(1, Reason::Draining), (2, Reason::Drained)]).to_string(),
            "1 of 3 nodes is draining; 2 are drained"
        );
        assert_eq!(
            unplaced(4, &[(4, Reason::Unreachable)]).to_string(),
            "all 4 nodes are unreachable"
        );
        assert_eq!(unplaced(0, &[]).to_string(), "there are no nodes");
        let cpu = Reason::Cpu {
            free_milli: 500,
            asked_milli: 2_000,
        };
        assert_eq!(
            unplaced(3, &[(3, cpu)]).to_string(),
            "all 3 nodes have at most 0.5 CPU free, 2 asked"
        );
        let platform = Reason::Platform {
            os: Some("linux".into()),
            arch: Some("aarch64".into()),
        };
        assert_eq!(
            unplaced(3, &[(3, platform)]).to_string(),
            "all 3 nodes are not linux/aarch64"
        );
    }

    #[test]
    fn a_bound_replica_speaks_of_its_node() {
        let mut value = unplaced(3, &[(2, Reason::NotItsNode), (1, Reason::Unreachable)]);
        value.bound = Some(Bound::Volume(NodeId(7)));
        assert_eq!(value.to_string(), "its volume is on node 7, which is unreachable");
        value.hindrances[1].reason = memory();
        assert_eq!(
            value.to_string(),
            "its volume is on node 7, which has 180Mi free, 256Mi asked"
        );
        value.bound = Some(Bound::System(NodeId(7)));
        value.hindrances[1].reason = Reason::Draining;
        assert_eq!(value.to_string(), "its own node 7 is draining");
        value.hindrances.pop();
        assert_eq!(value.to_string(), "its own node 7 is not in the cluster");
    }

    #[test]
    fn free_memory_is_rounded_down() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1Ki"),
            ((256 << 20) - 1, "255.9Mi"),
            (3 << 29, "1.5Gi"),
            (u64::MAX, "16777215.9Ti"),
        ] {
            assert_eq!(RoundedDown(bytes).to_string(), text);
        }
    }

    #[test]
    fn it_survives_both_encodings() {
        let mut value = unplaced(6, &[(3, lacks_zone()), (2, memory()), (1, Reason::RunsNone)]);
        value.bound = Some(Bound::Volume(NodeId(1)));
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(serde_json::from_str::<Unplaced>(&json).unwrap(), value);
        let bytes = postcard::to_stdvec(&value).unwrap();
        assert_eq!(postcard::from_bytes::<Unplaced>(&bytes).unwrap(), value);
    }
}
