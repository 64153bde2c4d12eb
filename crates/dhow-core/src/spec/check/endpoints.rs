//! Where a service is reached: ports that clash, names, roles and routes.

use std::collections::{BTreeMap, BTreeSet};

use super::endpoint_options;
use super::finding::{FieldPath, SpecFinding};
use super::host::hostname_problem;
use super::limits::NAME_MAX_BYTES;
use super::names::secret_name_problem;
use super::suggest::did_you_mean;
use super::words::{name_of, quoted};
use crate::acme;
use crate::ids::RoleName;
use crate::spec::{DeploymentSpec, Endpoint, Protocol, ServiceSpec, Takes};

/// A wrong role is compared with this many of the service's own to suggest one.
const ROLES_COMPARED_MAX: usize = 64;

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let list = at.key("endpoints");
    let roles: BTreeSet<RoleName> = spec.roles().into_iter().collect();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (position, endpoint) in spec.endpoints.iter().enumerate() {
        let place = list.index(position);
        check_name(&place, endpoint, findings);
        match names.get(endpoint.name.as_str()) {
            Some(first) => findings.push(
                SpecFinding::at(
                    place.key("name"),
                    format!("the endpoint {} is there twice", quoted(&endpoint.name)),
                )
                .also(list.index(*first).key("name"), "first here")
                .hint("give each endpoint its own name"),
            ),
            None => {
                names.insert(&endpoint.name, position);
            }
        }
        check_numbers(&place, endpoint, findings);
        check_route(&place, endpoint, findings);
        check_tls(&place, endpoint, findings);
        endpoint_options::check(&place, endpoint, findings);
        if let Some(role) = &endpoint.target_role
            && !roles.contains(role)
        {
            let known = roles.iter().take(ROLES_COMPARED_MAX).map(|role| role.as_str());
            let hint = did_you_mean(role.as_str(), known).unwrap_or_else(|| {
                if spec.replica_groups.is_empty() {
                    "without `replica_groups` the one role is `default`".into()
                } else {
                    let shown: Vec<String> = roles.iter().take(5).map(|role| format!("`{role}`")).collect();
                    format!("its roles are {}", shown.join(", "))
                }
            });
            findings.push(
                SpecFinding::at(
                    place.key("target_role"),
                    format!("the service has no role `{role}`"),
                )
                .because(at.key("replica_groups"))
                .hint(hint),
            );
        }
    }
}

fn check_name(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let name = &endpoint.name;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let message = if name.is_empty() {
        "the endpoint's name is empty".to_owned()
    } else if name.len() > NAME_MAX_BYTES {
        format!(
            "an endpoint's name has at most {NAME_MAX_BYTES} characters, this one has {}",
            name.chars().count()
        )
    } else if let Some(c) = name.chars().find(|c| !fits(*c)) {
        format!("an endpoint's name holds no {}", name_of(c))
    } else {
        return;
    };
    let hint = "use letters, digits, `-`, `_` and `.`, such as `http`";
    findings.push(SpecFinding::at(at.key("name"), message).hint(hint));
}

fn check_numbers(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let ports = [
        ("port", Some(endpoint.port)),
        ("target_port", endpoint.target_port),
    ];
    for (field, _) in ports.into_iter().filter(|(_, port)| *port == Some(0)) {
        findings.push(
            SpecFinding::at(at.key(field), "0 is not a port")
                .hint("a port is 1 to 65535; callers have to know it, so it cannot be left to chance"),
        );
    }
}

/// Whether a protocol tells its requests apart by host and path.
fn is_routed(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Http | Protocol::Https | Protocol::Websocket => true,
        Protocol::Tcp | Protocol::Udp => false,
    }
}

fn check_route(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let scheme = endpoint.protocol.scheme();
    for (field, value) in [("path", &endpoint.path), ("host", &endpoint.host)] {
        let Some(value) = value else { continue };
        if !is_routed(endpoint.protocol) {
            findings.push(
                SpecFinding::at(at.key(field), format!("a {scheme} endpoint has no `{field}`"))
                    .because(at.key("protocol"))
                    .hint("only http, https and websocket requests name one"),
            );
            continue;
        }
        let problem = match field {
            "path" => path_problem(value),
            _ => hostname_problem(value.strip_prefix("*.").unwrap_or(value)),
        };
        if let Some((message, hint)) = problem {
            findings.push(SpecFinding::at(at.key(field), message).hint(hint));
        }
    }
}

fn check_tls(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let Some(tls) = &endpoint.tls else { return };
    let place = at.key("tls");
    if endpoint.takes() != Takes::Http {
        let scheme = endpoint.protocol.scheme();
        let hint = match endpoint.protocol {
            Protocol::Https => "write `protocol: http`: the replica then gets plain requests",
            Protocol::Http | Protocol::Websocket | Protocol::Tcp | Protocol::Udp => {
                "only http and websocket endpoints have one"
            }
        };
        findings.push(
            SpecFinding::at(
                place.clone(),
                format!("the TLS of a {scheme} endpoint is the replica's own"),
            )
            .because(at.key("protocol"))
            .hint(hint),
        );
    }
    if !endpoint.is_public() {
        findings.push(
            SpecFinding::at(place.clone(), "only requests from outside come over TLS")
                .because(at.key("expose"))
                .hint("write `expose: public`, or remove `tls`: between nodes everything is encrypted"),
        );
    }
    match tls.is_by_acme() {
        true => check_acme(at, endpoint, findings),
        false => {
            if let Some((message, hint)) = secret_name_problem(&tls.secret) {
                findings.push(SpecFinding::at(place.key("secret"), message).hint(hint));
            }
        }
    }
    if tls.redirect.is_some() && endpoint.host.is_none() {
        findings.push(
            SpecFinding::at(
                place.key("redirect"),
                "without a `host` nothing is served but TLS, at the endpoint's own port",
            )
            .hint("name the `host`, or remove `redirect`"),
        );
    }
}

/// A certificate is ordered for one name, which the ACME server asks for at port 80.
fn check_acme(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let place = at.key("tls").key("acme");
    let secret = endpoint.tls.as_ref().map(|tls| tls.secret.as_str());
    let (message, hint) = match endpoint.host.as_deref() {
        None => (
            "a certificate is ordered for a `host`".to_owned(),
            "name the `host`, such as `host: shop.example`",
        ),
        Some(host) if host.starts_with("*.") => (
            format!(
                "a certificate for {} would have to be proved by DNS-01, which Dhow does not do",
                quoted(host)
            ),
            "name each host, or write `secret` with a certificate that something else orders",
        ),
        Some(host) if host.parse::<std::net::IpAddr>().is_ok() => (
            format!(
                "{} is an address: certificates are ordered for names",
                quoted(host)
            ),
            "write the name that clients use",
        ),
        Some(host) if secret != Some(acme::certificate_of(host).as_str()) => (
            "its certificate is ordered for another host".to_owned(),
            "write `acme: true`",
        ),
        Some(_) => return,
    };
    findings.push(SpecFinding::at(place, message).because(at.key("host")).hint(hint));
}

fn path_problem(path: &str) -> Option<(String, String)> {
    if !path.starts_with('/') {
        let hint = format!("did you mean {}?", quoted(&format!("/{path}")));
        return Some((format!("the path {} does not start with `/`", quoted(path)), hint));
    }
    let bad = path
        .chars()
        .find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#'));
    bad.map(|c| {
        let message = format!("a path holds no {}", name_of(c));
        (
            message,
            "write the plain start of the path, such as `/api`".into(),
        )
    })
}

/// What one listening port already serves.
struct Holder {
    place: FieldPath,
    service: String,
    takes: Takes,
    routes: BTreeMap<Route, (FieldPath, String)>,
}

type Route = (Option<String>, Option<String>);

/// Whose ports they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// A service's own address.
    Service(String),
    /// The nodes' own addresses, which all services share.
    Nodes,
}

/// Two endpoints on one port of one address clash, unless requests can be told apart by host or path. A service has an
/// address of its own; public endpoints are served at the nodes' own addresses as well.
pub(super) fn check_ports(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    let mut holders: BTreeMap<(Scope, bool, u16), Holder> = BTreeMap::new();
    for (service, spec) in &deployment.services {
        let list = FieldPath::of("services")
            .key(service.to_string())
            .key("endpoints");
        for (position, endpoint) in spec
            .endpoints
            .iter()
            .enumerate()
            .filter(|(_, endpoint)| endpoint.port != 0)
        {
            let place = list.index(position);
            // What clashes at several is one mistake.
            let clash = ports_of(service.as_str(), endpoint)
                .into_iter()
                .find_map(|(scope, port, takes)| {
                    let place = match port == endpoint.port {
                        true => place.key("port"),
                        false => place.key("host"),
                    };
                    let wanted = Wanted {
                        port,
                        takes,
                        service: service.as_str(),
                        place: &place,
                    };
                    let holders = &mut holders;
                    take(
                        holders,
                        (scope, takes == Takes::Datagrams, port),
                        endpoint,
                        &wanted,
                    )
                });
            findings.extend(clash);
        }
    }
}

/// The port at its service's own address, which callers inside the cluster use, and those that it is served at to
/// everybody.
fn ports_of(service: &str, endpoint: &Endpoint) -> Vec<(Scope, u16, Takes)> {
    let own = (
        Scope::Service(service.to_owned()),
        endpoint.port,
        endpoint.takes(),
    );
    let mut ports = vec![own];
    if endpoint.is_public() {
        let public = endpoint.public_ports().into_iter();
        ports.extend(public.map(|(port, takes)| (Scope::Nodes, port, takes)));
    }
    ports
}

/// A port that an endpoint is to have.
struct Wanted<'a> {
    port: u16,
    takes: Takes,
    service: &'a str,
    place: &'a FieldPath,
}

/// Takes a port for an endpoint, or says who has it.
fn take(
    holders: &mut BTreeMap<(Scope, bool, u16), Holder>,
    key: (Scope, bool, u16),
    endpoint: &Endpoint,
    wanted: &Wanted<'_>,
) -> Option<SpecFinding> {
    let host = endpoint.host.as_ref().map(|host| host.to_ascii_lowercase());
    let route = (host, endpoint.path.clone());
    let Some(holder) = holders.get_mut(&key) else {
        let (place, service) = (wanted.place.clone(), wanted.service.to_owned());
        let holder = Holder {
            routes: BTreeMap::from([(route, (place.clone(), service.clone()))]),
            place,
            service,
            takes: wanted.takes,
        };
        holders.insert(key, holder);
        return None;
    };
    clash(holder, wanted, route)
}

fn clash(holder: &mut Holder, wanted: &Wanted<'_>, route: Route) -> Option<SpecFinding> {
    let (port, service) = (wanted.port, wanted.service);
    let by = |other: &str| {
        if other == service {
            "another endpoint of this service".to_owned()
        } else {
            format!("`{other}`")
        }
    };
    let is_routed = matches!(wanted.takes, Takes::Http | Takes::HttpOverTls);
    if !is_routed || wanted.takes != holder.takes {
        return Some(
            SpecFinding::at(
                wanted.place.clone(),
                format!("port {port} is taken by {} too", by(&holder.service)),
            )
            .also(holder.place.clone(), "here")
            .hint("give one of the two another port; `target_port` can stay as it is"),
        );
    }
    if let Some((first, owner)) = holder.routes.get(&route) {
        return Some(
            SpecFinding::at(
                wanted.place.clone(),
                format!("port {port} is taken by {} too", by(owner)),
            )
            .also(first.clone(), "here")
            .hint("give one of the two another port, or tell them apart by `host` or `path`"),
        );
    }
    holder
        .routes
        .insert(route, (wanted.place.clone(), service.into()));
    None
}
