//! A node's directory as the parts in which it travels, and back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::directory::{
    Absent, CanaryShare, DirectoryChange, INTERESTS_MAX, Listing, ListingChange, ReadyReplica,
};
use dhow_core::ids::{DeploymentName, Generation, NodeId, RoleName, ServiceKey, ServiceName};
use dhow_core::spec::{Endpoint, TimeSpan};

use super::malformed::Malformed;
use super::proto;

/// A part is closed once it has so many replicas and services, at some 50 bytes each.
const PART_ITEMS: usize = 8_192;

/// Services and ready replicas of one directory; a server that sends more has gone mad.
const ITEMS_MAX: usize = 2_000_000;

/// What a node is told with its directory of who it is to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshPass {
    /// Shown to the proxies of other nodes.
    pub ticket: Option<Arc<str>>,
    /// Proves what others show.
    pub ticket_key: Option<[u8; 32]>,
    /// The CAs whose nodes are believed, as PEM.
    pub believed_cas: Option<Arc<str>>,
}

/// The parts, at least one.
pub fn to_directory_parts(
    change: &DirectoryChange,
    pass: &MeshPass,
) -> Result<Vec<proto::Directory>, Malformed> {
    let mut open = proto::Directory {
        whole: change.whole,
        is_ingress: change.is_ingress,
        ticket: pass.ticket.as_deref().map(str::to_owned),
        ticket_key: pass.ticket_key.map(|key| key.to_vec()),
        believed_cas_pem: pass.believed_cas.as_deref().map(str::to_owned),
        removed_nodes: change.removed.iter().map(|node| node.0).collect(),
        forgotten_nodes: change.forgotten.iter().map(|node| node.0).collect(),
        certificates: change.certificates.as_ref().map(|certificates| {
            let versions = certificates.iter();
            let versions = versions.map(|(name, version)| (name.to_string(), *version));
            proto::DirectoryCertificates {
                versions: versions.collect(),
            }
        }),
        by_interest: change.by_interest,
        absent: change.absent.as_ref().map(|absent| proto::DirectoryAbsent {
            services: to_service_names(&absent.services),
            deployments: absent.deployments.iter().map(ToString::to_string).collect(),
        }),
        ..proto::Directory::default()
    };
    let nodes = change.nodes.iter().map(|(node, addr)| proto::DirectoryNode {
        node_id: node.0,
        mesh_addr: addr.as_deref().map(str::to_owned),
    });
    open.nodes = nodes.collect();
    let (mut parts, mut items) = (Vec::new(), open.nodes.len());
    for (service, listing) in &change.services {
        if items > PART_ITEMS {
            open.more = true;
            let next = proto::Directory {
                whole: change.whole,
                ..proto::Directory::default()
            };
            parts.push(std::mem::replace(&mut open, next));
            items = 0;
        }
        let service = to_service(service, listing)?;
        items += 1 + service.ready.len() + service.unready.len();
        open.services.push(service);
    }
    parts.push(open);
    Ok(parts)
}

fn to_service(service: &ServiceKey, change: &ListingChange) -> Result<proto::DirectoryService, Malformed> {
    let mut told = proto::DirectoryService {
        deployment: service.deployment.to_string(),
        service: service.service.to_string(),
        ..proto::DirectoryService::default()
    };
    match change {
        ListingChange::Gone => told.gone = true,
        ListingChange::Ready { came, went } => {
            told.changes_only = true;
            told.ready = came.iter().map(to_ready).collect();
            told.unready = went.iter().map(to_ready).collect();
        }
        ListingChange::Set(listing) => {
            let endpoints = serde_json::to_vec(&listing.endpoints);
            let endpoints = endpoints.map_err(|_| Malformed::Unwritable {
                what: "endpoints_json",
            })?;
            told.endpoints_json = Some(endpoints);
            told.ready = listing.ready.iter().map(to_ready).collect();
            told.canary = listing.canary.as_ref().map(|canary| proto::CanaryShare {
                number: canary.number,
                generations: canary.generations.iter().map(|generation| generation.0).collect(),
                share: canary.share,
                of: canary.of,
            });
            told.cold_start_ms = listing.cold_start.map(TimeSpan::as_millis);
        }
    }
    Ok(told)
}

fn to_ready(ready: &ReadyReplica) -> proto::ReadyReplica {
    proto::ReadyReplica {
        role: ready.role.to_string(),
        index: ready.index,
        generation: ready.generation.0,
        node_id: ready.node.0,
    }
}

/// Parts that have come, and wait for the last one.
#[derive(Debug, Default)]
pub struct DirectoryAssembly {
    begun: Option<(DirectoryChange, MeshPass)>,
    items: usize,
}

impl DirectoryAssembly {
    /// Takes a part; the whole change once it was the last one.
    pub fn push(&mut self, part: proto::Directory) -> Result<Option<(DirectoryChange, MeshPass)>, Malformed> {
        let (mut change, mut pass) = self.begun.take().unwrap_or_default();
        change.whole |= part.whole;
        change.is_ingress = part.is_ingress.or(change.is_ingress);
        if let Some(told) = part.certificates {
            let versions = told.versions.into_iter().take(ITEMS_MAX);
            change.certificates = Some(versions.map(|(name, version)| (name.into(), version)).collect());
        }
        change.by_interest = part.by_interest.or(change.by_interest);
        if let Some(absent) = part.absent {
            change.absent = Some(from_absent(absent)?);
        }
        pass.ticket = part.ticket.map(Arc::from).or(pass.ticket);
        if let Some(key) = part.ticket_key {
            let key = <[u8; 32]>::try_from(key).map_err(|_| Malformed::Missing("ticket_key"))?;
            pass.ticket_key = Some(key);
        }
        pass.believed_cas = part.believed_cas_pem.map(Arc::from).or(pass.believed_cas);
        change.removed.extend(part.removed_nodes.into_iter().map(NodeId));
        change
            .forgotten
            .extend(part.forgotten_nodes.into_iter().map(NodeId));
        for node in part.nodes {
            change
                .nodes
                .insert(NodeId(node.node_id), node.mesh_addr.map(Arc::from));
        }
        for told in part.services {
            self.items += 1 + told.ready.len() + told.unready.len();
            if self.items > ITEMS_MAX {
                return Err(Malformed::TooMany {
                    what: "services and replicas",
                    found: self.items,
                    max: ITEMS_MAX,
                });
            }
            let (service, listing) = from_service(told)?;
            change.services.insert(service, listing);
        }
        if part.more {
            self.begun = Some((change, pass));
            return Ok(None);
        }
        self.items = 0;
        Ok(Some((change, pass)))
    }
}

/// Services by their names.
pub fn to_service_names<'a>(keys: impl IntoIterator<Item = &'a ServiceKey>) -> Vec<proto::ServiceName> {
    let names = keys.into_iter().map(|key| proto::ServiceName {
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
    });
    names.collect()
}

/// What a node wants to be told of, or is told that there is not: no more than it may ask for.
pub fn from_service_names(names: &[proto::ServiceName]) -> Result<BTreeSet<ServiceKey>, Malformed> {
    let found = names.len();
    if found > INTERESTS_MAX {
        let (what, max) = ("wanted services", INTERESTS_MAX);
        return Err(Malformed::TooMany { what, found, max });
    }
    let keys = names.iter().map(|name| {
        Ok(ServiceKey {
            deployment: DeploymentName::new(&name.deployment).map_err(name_of("deployment"))?,
            service: ServiceName::new(&name.service).map_err(name_of("service"))?,
        })
    });
    keys.collect()
}

fn from_absent(told: proto::DirectoryAbsent) -> Result<Absent, Malformed> {
    let deployments = told.deployments.iter().take(INTERESTS_MAX);
    let deployments = deployments.map(|name| DeploymentName::new(name).map_err(name_of("deployment")));
    Ok(Absent {
        services: from_service_names(&told.services)?,
        deployments: deployments.collect::<Result<_, _>>()?,
    })
}

fn from_service(told: proto::DirectoryService) -> Result<(ServiceKey, ListingChange), Malformed> {
    let service = ServiceKey {
        deployment: DeploymentName::new(&told.deployment).map_err(name_of("deployment"))?,
        service: ServiceName::new(&told.service).map_err(name_of("service"))?,
    };
    if told.gone {
        return Ok((service, ListingChange::Gone));
    }
    // Many replicas have few roles.
    let mut roles = BTreeMap::new();
    let mut ready = |told: Vec<proto::ReadyReplica>| {
        let ready = told.into_iter().map(|told| from_ready(told, &mut roles));
        ready.collect::<Result<Vec<_>, _>>()
    };
    let (came, went) = (ready(told.ready)?, ready(told.unready)?);
    if told.changes_only {
        return Ok((service, ListingChange::Ready { came, went }));
    }
    let json = told.endpoints_json.unwrap_or_default();
    let endpoints: Vec<Endpoint> = serde_json::from_slice(&json).map_err(|cause| Malformed::Spec {
        service: service.to_string(),
        cause,
    })?;
    let listing = Listing {
        endpoints: endpoints.into(),
        ready: came.into_iter().collect(),
        canary: told.canary.map(|canary| CanaryShare {
            number: canary.number,
            generations: canary.generations.into_iter().map(Generation).collect(),
            share: canary.share,
            of: canary.of,
        }),
        cold_start: told.cold_start_ms.map(TimeSpan::from_millis),
    };
    Ok((service, ListingChange::Set(Arc::new(listing))))
}

fn from_ready(
    told: proto::ReadyReplica,
    roles: &mut BTreeMap<String, RoleName>,
) -> Result<ReadyReplica, Malformed> {
    let role = match roles.get(&told.role) {
        Some(role) => role.clone(),
        None => {
            let role = RoleName::new(&told.role).map_err(name_of("role"))?;
            roles.insert(told.role, role.clone());
            role
        }
    };
    Ok(ReadyReplica {
        node: NodeId(told.node_id),
        role,
        index: told.index,
        generation: Generation(told.generation),
    })
}

fn name_of(what: &'static str) -> impl Fn(dhow_core::ids::NameError) -> Malformed {
    move |cause| Malformed::Name { what, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn key(service: &str) -> ServiceKey {
        ServiceKey {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new(service).unwrap(),
        }
    }

    fn ready(index: u32) -> ReadyReplica {
        ReadyReplica {
            node: NodeId(u64::from(index % 7)),
            role: RoleName::fallback(),
            index,
            generation: Generation(3),
        }
    }

    #[test]
    fn what_was_sent_in_parts_comes_back_as_one() {
        let endpoint: Endpoint = serde_json::from_str(
            r#"{"name":"pg","protocol":"tcp","port":5432,"expose":"cluster","allow":["web","blog/web"]}"#,
        )
        .unwrap();
        let many: BTreeSet<ReadyReplica> = (0..2 * PART_ITEMS as u32).map(ready).collect();
        let listing = Listing {
            endpoints: vec![endpoint].into(),
            ready: many,
            canary: Some(CanaryShare {
                number: 3,
                generations: vec![Generation(4), Generation(6)],
                share: 1,
                of: 41,
            }),
            cold_start: Some(TimeSpan::from_secs(20)),
        };
        let services = [
            (key("a"), ListingChange::Set(Arc::new(listing))),
            (key("b"), ListingChange::Gone),
            (
                key("c"),
                ListingChange::Ready {
                    came: vec![ready(1)],
                    went: vec![ready(2)],
                },
            ),
        ];
        let change = DirectoryChange {
            whole: true,
            services: services.into_iter().collect(),
            nodes: [(NodeId(1), Some("10.0.0.1:3672".into())), (NodeId(2), None)].into(),
            is_ingress: Some(true),
            removed: vec![NodeId(8), NodeId(9)],
            forgotten: vec![NodeId(7)],
            certificates: Some([("shop-tls".into(), 2)].into()),
            by_interest: Some(true),
            absent: Some(Absent {
                services: [key("x")].into(),
                deployments: [DeploymentName::new("com").unwrap()].into(),
            }),
        };
        let pass = MeshPass {
            ticket: Some("t".into()),
            ticket_key: Some([7; 32]),
            believed_cas: Some("ca".into()),
        };
        let parts = to_directory_parts(&change, &pass).unwrap();
        assert!(parts.len() > 1, "it must be cut");
        let mut assembly = DirectoryAssembly::default();
        let mut whole = None;
        for part in parts {
            assert!(whole.is_none());
            whole = assembly.push(part).unwrap();
        }
        assert_eq!(whole, Some((change, pass)));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let service = |service: &str| proto::DirectoryService {
            deployment: "shop".into(),
            service: service.into(),
            ..proto::DirectoryService::default()
        };
        let push = |service| {
            DirectoryAssembly::default().push(proto::Directory {
                services: vec![service],
                ..proto::Directory::default()
            })
        };
        assert!(push(service("Not A Name")).is_err());
        assert!(push(service("db")).is_err(), "a listing without endpoints");
        let key = proto::Directory {
            ticket_key: Some(vec![1, 2, 3]),
            ..proto::Directory::default()
        };
        assert!(DirectoryAssembly::default().push(key).is_err());
        let wanted = to_service_names(&[super::tests::key("db")]);
        assert_eq!(
            from_service_names(&wanted).unwrap(),
            [super::tests::key("db")].into()
        );
        let many = vec![wanted[0].clone(); INTERESTS_MAX + 1];
        assert!(from_service_names(&many).is_err(), "more than a node may ask for");
    }
}
