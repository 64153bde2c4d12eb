//! What a spec demands of a node's labels and platform, as a list in a fixed order.

use super::node_row::NodeRow;
use super::tag_index::TagIndex;
use super::unplaced::Reason;
use crate::spec::ServiceSpec;

/// One demand. A node that does not meet it is no place for the service, whatever else it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement<'a> {
    Os(&'a str),
    Arch(&'a str),
    Label { key: &'a str, value: &'a str },
}

impl<'a> Requirement<'a> {
    /// The platform first, then the labels by name.
    pub(super) fn all(spec: &'a ServiceSpec) -> impl Iterator<Item = Self> {
        let os = spec.platform.os.iter().map(|os| Self::Os(os));
        let arch = spec.platform.arch.iter().map(|arch| Self::Arch(arch));
        let labels = spec.node_selector.labels.iter();
        os.chain(arch)
            .chain(labels.map(|(key, value)| Self::Label { key, value }))
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
        }
    }

    /// The rows that meet it.
    pub(super) fn rows(self, tags: &TagIndex) -> &[u32] {
        match self {
            Self::Os(os) => tags.with_os(os),
            Self::Arch(arch) => tags.with_arch(arch),
            Self::Label { key, value } => tags.with_label(key, value),
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
        }
    }
}
