//! What a node says of itself.

use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::directory::REVERSE;
use dhow_core::spec::VolumeSupport;
use dhow_core::state::{NodeInfo, NodeRole};

use super::malformed::Malformed;
use super::proto;

/// Labels that a node may carry, and the longest text of any field: more is nobody's wish.
const LABELS_MAX: usize = 256;
const TEXT_CHARS_MAX: usize = 1_024;

pub fn to_node_info(info: &NodeInfo) -> proto::NodeInfo {
    let role = match info.role {
        NodeRole::Server => proto::NodeRole::Server,
        NodeRole::Worker => proto::NodeRole::Worker,
        NodeRole::Peer => proto::NodeRole::Peer,
    };
    proto::NodeInfo {
        role: role.into(),
        api_addr: info.api_addr.as_deref().map(str::to_owned),
        os: info.os.to_string(),
        arch: info.arch.to_string(),
        labels: info.labels.as_ref().clone().into_iter().collect(),
        cpu_milli: info.capacity.cpu_milli,
        memory_bytes: info.capacity.memory_bytes,
        runs_replicas: info.runs_replicas,
        tries_settings: info.tries_settings,
        mesh_addr: info.mesh_addr.as_deref().map(str::to_owned),
        mounts_files: info.mounts_files,
        runs_steps: info.runs_steps,
        volumes: match info.volumes {
            VolumeSupport::Named => proto::VolumeSupport::Named,
            VolumeSupport::Ephemeral => proto::VolumeSupport::Ephemeral,
            VolumeSupport::Sized => proto::VolumeSupport::Sized,
        }
        .into(),
    }
}

pub fn from_node_info(info: proto::NodeInfo) -> Result<NodeInfo, Malformed> {
    let role = match info.role() {
        proto::NodeRole::Server => NodeRole::Server,
        proto::NodeRole::Worker => NodeRole::Worker,
        proto::NodeRole::Peer => NodeRole::Peer,
        proto::NodeRole::Unspecified => return Err(Malformed::Missing("role")),
    };
    if info.labels.len() > LABELS_MAX {
        return Err(Malformed::TooMany {
            what: "labels",
            found: info.labels.len(),
            max: LABELS_MAX,
        });
    }
    let labels = info.labels.iter().flat_map(|(key, value)| [key, value]);
    let texts = labels.chain([&info.os, &info.arch]).chain(&info.api_addr);
    if let Some(long) = texts.map(String::len).find(|length| *length > TEXT_CHARS_MAX) {
        return Err(Malformed::TooMany {
            what: "text of the node",
            found: long,
            max: TEXT_CHARS_MAX,
        });
    }
    let volumes = match info.volumes() {
        proto::VolumeSupport::Named => VolumeSupport::Named,
        proto::VolumeSupport::Ephemeral => VolumeSupport::Ephemeral,
        proto::VolumeSupport::Sized => VolumeSupport::Sized,
    };
    // One that is no address is left out: the node is not reached there either way.
    let mesh_addr = info.mesh_addr.filter(|text| {
        let is_address = text.parse::<SocketAddr>().is_ok_and(|addr| addr.port() != 0);
        is_address || (text == REVERSE && role == NodeRole::Worker)
    });
    Ok(NodeInfo {
        role,
        api_addr: info.api_addr.map(Arc::from),
        os: info.os.into(),
        arch: info.arch.into(),
        labels: Arc::new(info.labels.into_iter().collect()),
        capacity: Amount {
            cpu_milli: info.cpu_milli,
            memory_bytes: info.memory_bytes,
        },
        runs_replicas: info.runs_replicas,
        tries_settings: info.tries_settings,
        mesh_addr: mesh_addr.map(Arc::from),
        mounts_files: info.mounts_files,
        runs_steps: info.runs_steps,
        volumes,
    })
}
