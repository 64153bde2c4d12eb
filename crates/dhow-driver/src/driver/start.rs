//! What the agent hands to a driver to start a replica, and what of it is kept on disk.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::ServiceSpec;
use serde::{Deserialize, Serialize};

use super::Pending;
use crate::cgroup::Group;
use crate::logs::LogLimits;
use crate::shim::record::{RECORD_VERSION, Record};

/// A port of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortBinding {
    /// The endpoint's name.
    pub endpoint: String,
    /// The port that the workload shall listen on, or that the host forwards to it.
    pub host_port: u16,
    /// The port inside the workload's own network, where it has one.
    pub target_port: u16,
}

/// A file or folder of the host that a container sees and cannot change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileBind {
    pub source: PathBuf,
    pub target: String,
}

/// Everything a start needs. Nothing in it is looked up any more.
#[derive(Clone, Debug)]
pub struct ReplicaStart {
    pub name: ReplicaName,
    /// As `ServiceSpec::for_role` gives it.
    pub spec: Arc<ServiceSpec>,
    /// The resolved environment, in place of the spec's.
    pub env: BTreeMap<String, String>,
    /// The part of it that came from secrets: reaches the workload, never the disk.
    pub secret_env: BTreeMap<String, String>,
    pub ports: Vec<PortBinding>,
    /// Where the node keeps each named volume.
    pub volumes: BTreeMap<String, PathBuf>,
    /// Configs and secrets that a container sees.
    pub files: Vec<FileBind>,
    /// The folders of the host that storage may bind; any where it is absent.
    pub bind_folders: Option<Vec<String>>,
    pub log: LogLimits,
    /// Who is told the replica's address, where it has a network of its own.
    pub on_address: Option<OnAddress>,
}

/// Told the address of a replica once it has it; nothing of the replica runs before the answer.
#[derive(Clone)]
pub struct OnAddress(pub Arc<TellAddress>);

type TellAddress = dyn Fn(IpAddr) -> Pending<'static, ()> + Send + Sync;

impl fmt::Debug for OnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnAddress")
    }
}

impl ReplicaStart {
    /// A start of this spec with nothing around it.
    pub fn new(name: ReplicaName, spec: Arc<ServiceSpec>) -> Self {
        Self {
            name,
            env: spec.env.clone(),
            spec,
            secret_env: BTreeMap::new(),
            ports: Vec::new(),
            volumes: BTreeMap::new(),
            files: Vec::new(),
            bind_folders: None,
            log: LogLimits::default(),
            on_address: None,
        }
    }
}

/// `spec.json`: what was started, for the daemon after this one. Secrets are named, never written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartRecord {
    pub version: u32,
    pub name: ReplicaName,
    pub spec: ServiceSpec,
    pub env: BTreeMap<String, String>,
    pub secret_names: Vec<String>,
    pub ports: Vec<PortBinding>,
    pub volumes: BTreeMap<String, PathBuf>,
    /// Where its processes are, in case a later daemon would put them elsewhere.
    pub group: Option<Group>,
}

impl From<&ReplicaStart> for StartRecord {
    fn from(start: &ReplicaStart) -> Self {
        let is_secret = |key: &String| start.secret_env.contains_key(key);
        Self {
            version: RECORD_VERSION,
            name: start.name.clone(),
            spec: (*start.spec).clone(),
            env: start
                .env
                .iter()
                .filter(|(key, _)| !is_secret(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            secret_names: start.secret_env.keys().cloned().collect(),
            ports: start.ports.clone(),
            volumes: start.volumes.clone(),
            group: None,
        }
    }
}

impl Record for StartRecord {
    fn version(&self) -> u32 {
        self.version
    }
}
