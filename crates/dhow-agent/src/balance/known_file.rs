//! The last directory that the node was told, on its disk: a daemon that is started while no server answers goes on with
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhow_core::directory::{Absent, Directory, Listing};
use dhow_core::ids::{DeploymentName, NodeId, ServiceKey, ServiceName};
use dhow_core::spec::Endpoint;
use dhow_disk::{Outlives, read_or_set_aside};
use dhow_wire::grpc::MeshPass;
use serde::{Deserialize, Serialize};

use crate::session::KnownDirectory;

const VERSION: u32 = 1;

/// What stands in the file. A newer version adds fields with a default.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    node: NodeId,
    services: Vec<WrittenService>,
    nodes: BTreeMap<u64, Arc<str>>,
    is_ingress: bool,
    #[serde(default)]
    ticket: Option<Arc<str>>,
    #[serde(default)]
    ticket_key: Option<[u8; 32]>,
    #[serde(default)]
    believed_cas: Option<Arc<str>>,
    #[serde(default)]
    removed: Vec<NodeId>,
    #[serde(default)]
    by_interest: bool,
    /// Services of other deployments that were asked for.
    #[serde(default)]
    wanted: BTreeSet<ServiceKey>,
    /// What of it there was not.
    #[serde(default)]
    absent: BTreeSet<ServiceKey>,
    #[serde(default)]
    absent_deployments: BTreeSet<DeploymentName>,
    /// Those whose addresses answer though they are told no more.
    #[serde(default)]
    asleep: Vec<WrittenSleeper>,
}

#[derive(Serialize, Deserialize)]
struct WrittenSleeper {
    deployment: DeploymentName,
    service: ServiceName,
    endpoints: Arc<[Endpoint]>,
}

/// What was known when it was written.
#[derive(Debug, PartialEq)]
pub struct Remembered {
    /// Whom it was told.
    pub node: NodeId,
    pub known: KnownDirectory,
    /// What this node had asked for.
    pub wanted: BTreeSet<ServiceKey>,
    /// The endpoints of services that were given up and whose addresses answer all the same.
    pub asleep: BTreeMap<ServiceKey, Arc<[Endpoint]>>,
}

#[derive(Serialize, Deserialize)]
struct WrittenService {
    deployment: DeploymentName,
    service: ServiceName,
    listing: Arc<Listing>,
}

fn file(dir: &Path) -> PathBuf {
    dir.join("directory.json")
}

/// Forgets it. That there is none is no error.
pub fn remove(dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(file(dir)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The last directory, and whose it is; none where there is none that can be read.
pub fn read(dir: &Path) -> io::Result<Option<Remembered>> {
    let kept = read_or_set_aside(&file(dir), |bytes| {
        let written: Written = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match written.version {
            VERSION => Ok(written),
            other => Err(format!("it has form {other}, this version knows form {VERSION}")),
        }
    })?;
    let written = kept.or_tell(|aside, why| {
        tracing::error!(aside = %aside.display(), why, "what is known of services cannot be read; servers tell it anew");
    });
    Ok(written.map(|written| {
        let services = written.services.into_iter().map(|found| {
            let key = ServiceKey {
                deployment: found.deployment,
                service: found.service,
            };
            (key, found.listing)
        });
        let asleep = written.asleep.into_iter().map(|found| {
            let key = ServiceKey {
                deployment: found.deployment,
                service: found.service,
            };
            (key, found.endpoints)
        });
        let nodes = written.nodes.into_iter();
        let known = KnownDirectory {
            directory: Directory {
                services: services.collect(),
                nodes: nodes.map(|(node, addr)| (NodeId(node), addr)).collect(),
                is_ingress: written.is_ingress,
                removed: written.removed.into_iter().collect(),
                // The balancer has them; servers say which versions count.
                certificates: BTreeMap::new(),
                by_interest: written.by_interest,
                absent: Absent {
                    services: written.absent,
                    deployments: written.absent_deployments,
                },
            },
            pass: MeshPass {
                ticket: written.ticket,
                ticket_key: written.ticket_key,
                believed_cas: written.believed_cas,
            },
        };
        Remembered {
            node: written.node,
            known,
            wanted: written.wanted,
            asleep: asleep.collect(),
        }
    }))
}

/// Keeps a directory for its owner alone: it has the node's ticket. A power cut may cost it, because the servers tell it
/// again. Blocks.
pub fn write(dir: &Path, remembered: &Remembered) -> io::Result<()> {
    let Remembered {
        node,
        known,
        wanted,
        asleep,
    } = remembered;
    let KnownDirectory { directory, pass } = known;
    let services = directory.services.iter().map(|(key, listing)| WrittenService {
        deployment: key.deployment.clone(),
        service: key.service.clone(),
        listing: Arc::clone(listing),
    });
    let nodes = directory.nodes.iter();
    let asleep = asleep.iter().map(|(key, endpoints)| WrittenSleeper {
        deployment: key.deployment.clone(),
        service: key.service.clone(),
        endpoints: Arc::clone(endpoints),
    });
    let written = Written {
        version: VERSION,
        node: *node,
        services: services.collect(),
        nodes: nodes.map(|(node, addr)| (node.0, addr.clone())).collect(),
        is_ingress: directory.is_ingress,
        ticket: pass.ticket.clone(),
        ticket_key: pass.ticket_key,
        believed_cas: pass.believed_cas.clone(),
        removed: directory.removed.iter().copied().collect(),
        by_interest: directory.by_interest,
        wanted: wanted.clone(),
        absent: directory.absent.services.clone(),
        absent_deployments: directory.absent.deployments.clone(),
        asleep: asleep.collect(),
    };
    let bytes = serde_json::to_vec(&written).map_err(io::Error::other)?;
    std::fs::create_dir_all(dir)?;
    dhow_disk::replace(&file(dir), &bytes, Outlives::Process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::directory::ReadyReplica;
    use dhow_core::ids::{Generation, RoleName};

    #[test]
    fn what_was_known_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("network");
        assert_eq!(read(&dir).unwrap(), None);
        let key = ServiceKey {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new("db").unwrap(),
        };
        let endpoint = r#"{"name":"pg","protocol":"tcp","port":5432,"expose":"cluster","allow":["web"]}"#;
        let endpoints: Arc<[Endpoint]> = vec![serde_json::from_str(endpoint).unwrap()].into();
        let listing = Listing {
            endpoints: Arc::clone(&endpoints),
            ready: [ReadyReplica {
                node: NodeId(4),
                role: RoleName::fallback(),
                index: 0,
                generation: Generation(2),
            }]
            .into(),
            canary: None,
            cold_start: None,
        };
        let known = KnownDirectory {
            directory: Directory {
                services: [(key.clone(), Arc::new(listing))].into(),
                nodes: [(NodeId(4), "10.0.0.4:3672".into())].into(),
                is_ingress: true,
                removed: [NodeId(9)].into_iter().collect(),
                by_interest: true,
                absent: Absent {
                    services: [key.clone()].into(),
                    deployments: [DeploymentName::new("com").unwrap()].into(),
                },
                ..Directory::default()
            },
            pass: MeshPass {
                ticket: Some("t".into()),
                ticket_key: Some([3; 32]),
                believed_cas: Some("ca".into()),
            },
        };
        let remembered = Remembered {
            node: NodeId(2),
            known,
            wanted: [key.clone()].into(),
            asleep: [(key, endpoints)].into(),
        };
        write(&dir, &remembered).unwrap();
        assert_eq!(read(&dir).unwrap(), Some(remembered));
        std::fs::write(file(&dir), "[]").unwrap();
        assert_eq!(read(&dir).unwrap(), None);
    }
}
