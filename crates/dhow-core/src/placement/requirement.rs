//! What a spec demands of a node's labels and platform, as a list in a fixed order.

use std::borrow::Cow;

use super::node_row::NodeRow;
use super::tag_index::TagIndex;
use super::unplaced::Reason;
use crate::spec::{LabelRule, ServiceSpec};

/// One demand. A node that does not meet it is no place for the service, whatever else it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement<'a> {
    Os(&'a str),
    Arch(&'a str),
    Label { key: &'a str, value: &'a str },
    Rule(&'a LabelRule),
}

impl<'a> Requirement<'a> {
    /// The platform first, then the labels by name, then the comparisons as they are written.
    pub(super) fn all(spec: &'a ServiceSpec) -> impl Iterator<Item = Self> {
        let os = spec.platform.os.iter().map(|os| Self::Os(os));
        let arch = spec.platform.arch.iter().map(|arch| Self::Arch(arch));
        let labels = spec.node_selector.labels.iter();
        os.chain(arch)
            .chain(labels.map(|(key, value)| Self::Label { key, value }))
            .chain(spec.node_selector.rules.iter().map(Self::Rule))
    }

    /// How many there are.
    pub(super) fn count(spec: &'a ServiceSpec) -> u32 {
        u32::try_from(Self::all(spec).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_met_by(self, node: &NodeRow) -> bool {
        match self {
            Self::Os(os) => *node.os == *os,
            Self::Arch(arch) => *node.arch == *arch,
            Self::Label { key, value } => node.labels.get(key).is_some_and(|has| has == value),
            Self::Rule(rule) => rule.is_met_by(node.labels.get(&rule.label).map(String::as_str)),
        }
    }

    /// The rows that meet it.
    pub(super) fn rows(self, tags: &'a TagIndex, count: u32) -> Cow<'a, [u32]> {
        match self {
            Self::Os(os) => tags.with_os(os).into(),
            Self::Arch(arch) => tags.with_arch(arch).into(),
            Self::Label { key, value } => tags.with_label(key, value).into(),
            Self::Rule(rule) => tags.meeting(rule, count).into(),
        }
    }

    /// What to tell where it is not met.
    pub(super) fn reason(self, spec: &ServiceSpec) -> Reason {
        match self {
            Self::Os(_) | Self::Arch(_) => Reason::Platform {
                os: spec.platform.os.clone(),
                arch: spec.platform.arch.clone(),
            },
            Self::Label { key, value } => Reason::LacksLabel {
                key: key.to_owned(),
                value: value.to_owned(),
            },
            Self::Rule(rule) => Reason::LabelDiffers { rule: rule.clone() },
        }
    }
}
