//! The names of the cluster, as this node's table has them. Pure.
//!
//! `db.shop.dhow` is the service, `db-default-0.db.shop.dhow` one replica, `all.db.shop.dhow` all of them,
//! `_sql._tcp.db.shop.dhow` where an endpoint listens, `host.dhow` the host. Who asks from a deployment may say `db`.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::packet::Request;
use crate::proxy::table::{Dns, NamedService, Names, Transport, WantedService};

/// A service that is called by a node's old address is met for this long at most.
const TTL_SECS: u32 = 5;
const TOP: &str = "dhow";
const ALL: &str = "all";
const HOST: &str = "host";

/// Every name that a table has.
#[derive(Default)]
pub struct Zone {
    services: HashMap<(String, String), Service>,
    deployments: HashSet<String>,
    /// Whose deployment an address belongs to.
    askers: HashMap<Ipv4Addr, String>,
    host: Option<Ipv4Addr>,
    incomplete: bool,
    /// None where all that may be called is here.
    on_demand: Option<OnDemandNames>,
}

/// What is known of services that are told of on demand.
struct OnDemandNames {
    own: HashSet<String>,
    absent: HashSet<WantedService>,
    absent_deployments: HashSet<String>,
}

struct Service {
    /// Below the top.
    name: Name,
    address: Ipv4Addr,
    /// By `_name` and `_tcp` or `_udp`.
    ports: HashMap<(String, &'static str), u16>,
    replicas: HashMap<String, Ipv4Addr>,
}

/// What the zone says to a question.
pub enum Answer {
    /// With the service of another deployment than the asker's that it is about, where it is told of on demand.
    Here(Message, Option<WantedService>),
    /// It is no name of the cluster.
    Elsewhere,
    /// Whether there is this service, servers have to be asked.
    Wanted(WantedService),
}

/// What stands at a name.
enum Found {
    Addresses(Vec<Ipv4Addr>),
    /// A port, and the names with the addresses where it is.
    Port(u16, Vec<(Name, Ipv4Addr)>),
    /// There are names below it.
    Above,
    Nothing,
    /// It may be there: nobody has said yet what this deployment has.
    Unknown,
    /// It may be there: nobody here has asked for it yet.
    Wanted(WantedService),
}

impl Zone {
    pub fn new(names: &Names, dns: &Dns) -> Self {
        let mut zone = Self {
            host: Some(dns.host),
            incomplete: names.incomplete,
            on_demand: names.on_demand.as_ref().map(|known| OnDemandNames {
                own: known.own.iter().cloned().collect(),
                absent: known.absent.iter().cloned().collect(),
                absent_deployments: known.absent_deployments.iter().cloned().collect(),
            }),
            ..Self::default()
        };
        for service in &names.services {
            zone.deployments.insert(service.deployment.clone());
            let key = (service.deployment.clone(), service.service.clone());
            // A name that DNS has no room for cannot be asked for either.
            if let Some(service) = Service::new(service) {
                zone.services.insert(key, service);
            }
        }
        let askers = names.callers.iter();
        zone.askers = askers
            .map(|caller| (caller.addr, caller.deployment.clone()))
            .collect();
        zone
    }

    pub fn answer(&self, request: &Request, asker: IpAddr) -> Answer {
        let name = request.query.name();
        let Some(labels) = labels(name) else {
            return Answer::Elsewhere;
        };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let mut used = None;
        let found = match labels.as_slice() {
            [rest @ .., TOP] => {
                used = self.used(rest, asker);
                self.find(rest)
            }
            [rest @ .., service] if matches!(rest, [] | [_, "_tcp" | "_udp"]) => {
                match self.in_own_deployment(rest, service, asker) {
                    Some(found) => found,
                    None => return Answer::Elsewhere,
                }
            }
            [endpoint, protocol @ ("_tcp" | "_udp"), service, deployment] => {
                // Resolvers ask for a name with so many dots as it stands first; no public name has an endpoint of ours.
                used = self.used(&[service, deployment], asker);
                let service = self.service(deployment, service);
                match service.map(|service| service.find(&[endpoint, protocol])) {
                    Some(found @ Found::Port(..)) => found,
                    Some(_) | None => return Answer::Elsewhere,
                }
            }
            _ => return Answer::Elsewhere,
        };
        match found {
            Found::Wanted(wanted) => Answer::Wanted(wanted),
            found => Answer::Here(self.message(request, name, found), used),
        }
    }

    /// The service that a name below the top is about, where it is told of on demand: one of another deployment than the
    /// asker's, which is here, or known not to be.
    fn used(&self, labels: &[&str], asker: IpAddr) -> Option<WantedService> {
        let (known, [.., service, deployment]) = (self.on_demand.as_ref()?, labels) else {
            return None;
        };
        let is_own = self.deployment_of(asker).is_some_and(|own| own == *deployment);
        let wanted = WantedService {
            deployment: (*deployment).to_owned(),
            service: (*service).to_owned(),
        };
        let is_absent = || known.absent.contains(&wanted) || known.absent_deployments.contains(*deployment);
        let is_known = self.service(deployment, service).is_some() || is_absent();
        (!is_own && is_known && wanted.can_be()).then_some(wanted)
    }

    fn deployment_of(&self, asker: IpAddr) -> Option<&String> {
        match asker.to_canonical() {
            IpAddr::V4(asker) => self.askers.get(&asker),
            IpAddr::V6(_) => None,
        }
    }

    fn in_own_deployment(&self, rest: &[&str], service: &str, asker: IpAddr) -> Option<Found> {
        let deployment = self.deployment_of(asker)?;
        Some(self.service(deployment, service)?.find(rest))
    }

    fn service(&self, deployment: &str, service: &str) -> Option<&Service> {
        self.services.get(&(deployment.to_owned(), service.to_owned()))
    }

    /// What stands at the labels below the top.
    fn find(&self, labels: &[&str]) -> Found {
        match labels {
            [] => Found::Above,
            [HOST] => self
                .host
                .map_or(Found::Nothing, |host| Found::Addresses(vec![host])),
            [deployment] if self.deployments.contains(*deployment) => Found::Above,
            [rest @ .., deployment] => match rest {
                [rest @ .., service] => match self.service(deployment, service) {
                    Some(service) => service.find(rest),
                    None => self.missing(deployment, Some(service)),
                },
                [] => self.missing(deployment, None),
            },
        }
    }

    /// What is to be said of a service, or of a deployment, that the table does not have.
    fn missing(&self, deployment: &str, service: Option<&str>) -> Found {
        if let Some(known) = &self.on_demand {
            let wanted = service.map(|service| WantedService {
                deployment: deployment.to_owned(),
                service: service.to_owned(),
            });
            let is_known = known.own.contains(deployment) || known.absent_deployments.contains(deployment);
            return match wanted {
                // Only names that a service can have are asked for.
                Some(wanted) if !is_known && !known.absent.contains(&wanted) && wanted.can_be() => {
                    Found::Wanted(wanted)
                }
                Some(_) | None => Found::Nothing,
            };
        }
        match self.incomplete && !self.deployments.contains(deployment) {
            true => Found::Unknown,
            false => Found::Nothing,
        }
    }

    fn message(&self, request: &Request, name: &Name, found: Found) -> Message {
        let code = match found {
            Found::Unknown | Found::Wanted(_) => ResponseCode::ServFail,
            Found::Nothing => ResponseCode::NXDomain,
            Found::Addresses(_) | Found::Port(..) | Found::Above => ResponseCode::NoError,
        };
        let mut message = request.response(code);
        message.metadata.authoritative = code != ResponseCode::ServFail;
        let asked = request.query.query_type();
        let wants = |kind| asked == kind || asked == RecordType::ANY;
        let address =
            |name: &Name, address: Ipv4Addr| Record::from_rdata(name.clone(), TTL_SECS, RData::A(A(address)));
        match found {
            Found::Addresses(addresses) if wants(RecordType::A) => {
                message.add_answers(addresses.into_iter().map(|found| address(name, found)));
            }
            Found::Port(port, targets) if wants(RecordType::SRV) => {
                for (target, found) in targets {
                    let record = RData::SRV(SRV::new(0, 0, port, target.clone()));
                    message.add_answer(Record::from_rdata(name.clone(), TTL_SECS, record));
                    message.add_additional(address(&target, found));
                }
            }
            Found::Addresses(_)
            | Found::Port(..)
            | Found::Above
            | Found::Nothing
            | Found::Unknown
            | Found::Wanted(_) => {}
        }
        if message.answers.is_empty() && code != ResponseCode::ServFail {
            // Says for how long the absence may be remembered.
            message.add_authorities(start_of_authority());
        }
        message
    }
}

impl Service {
    fn new(service: &NamedService) -> Option<Self> {
        let name = format!("{}.{}.{TOP}.", service.service, service.deployment);
        let ports = service.endpoints.iter().map(|endpoint| {
            let protocol = match endpoint.protocol.transport() {
                Transport::Stream => "_tcp",
                Transport::Datagram => "_udp",
            };
            (
                (format!("_{}", endpoint.name.to_ascii_lowercase()), protocol),
                endpoint.port,
            )
        });
        let replicas = service.replicas.iter();
        let replicas = replicas.map(|replica| (replica.name.clone(), replica.address));
        Some(Self {
            name: Name::from_ascii(name).ok()?,
            address: service.address,
            ports: ports.collect(),
            replicas: replicas.collect(),
        })
    }

    /// What stands at the labels before the service's name.
    fn find(&self, labels: &[&str]) -> Found {
        match labels {
            [] => Found::Addresses(vec![self.address]),
            [ALL] => Found::Addresses(self.all()),
            ["_tcp" | "_udp"] | ["_tcp" | "_udp", ALL] => Found::Above,
            [one] => match self.replicas.get(*one) {
                Some(address) => Found::Addresses(vec![*address]),
                None => Found::Nothing,
            },
            [endpoint, protocol] => match self.port(endpoint, protocol) {
                Some(port) => Found::Port(port, vec![(self.name.clone(), self.address)]),
                None => Found::Nothing,
            },
            [endpoint, protocol, ALL] => match self.port(endpoint, protocol) {
                Some(port) => Found::Port(port, self.each()),
                None => Found::Nothing,
            },
            _ => Found::Nothing,
        }
    }

    fn port(&self, endpoint: &str, protocol: &str) -> Option<u16> {
        let protocol = match protocol {
            "_tcp" => "_tcp",
            "_udp" => "_udp",
            _ => return None,
        };
        self.ports.get(&(endpoint.to_owned(), protocol)).copied()
    }

    fn all(&self) -> Vec<Ipv4Addr> {
        let mut all: Vec<Ipv4Addr> = self.replicas.values().copied().collect();
        all.sort_unstable();
        all
    }

    /// The names of all replicas below the service's.
    fn each(&self) -> Vec<(Name, Ipv4Addr)> {
        let named = |(name, address): (&String, &Ipv4Addr)| {
            // A name that DNS has no room for is found by `all` alone.
            Some((self.name.prepend_label(name.as_str()).ok()?, *address))
        };
        let mut each: Vec<(Name, Ipv4Addr)> = self.replicas.iter().filter_map(named).collect();
        each.sort_unstable();
        each
    }
}

/// In lower case; `None` for names that are not of letters as ours are, and for the root.
fn labels(name: &Name) -> Option<Vec<String>> {
    let text = |label: &[u8]| Some(std::str::from_utf8(label).ok()?.to_ascii_lowercase());
    let labels: Option<Vec<String>> = name.iter().map(text).collect();
    labels.filter(|labels| !labels.is_empty())
}

fn start_of_authority() -> Option<Record> {
    const REFRESH_SECS: i32 = 60;
    let top = Name::from_ascii("dhow.").ok()?;
    let server = Name::from_ascii("ns.dhow.").ok()?;
    let refresh = REFRESH_SECS;
    let soa = SOA::new(server.clone(), server, 1, refresh, refresh, refresh, TTL_SECS);
    Some(Record::from_rdata(top, TTL_SECS, RData::SOA(soa)))
}
