//! Ports: what the outside reaches, and what neighbours reach.

use std::collections::BTreeSet;

use dhow_core::spec::{Endpoint, Expose, Protocol};

use crate::Nodes;
use crate::item::Item;
use crate::report::Location;
use crate::service::Reader;

/// Ports of one service: a range of more was not meant one by one.
const PORTS_MAX: usize = 128;

/// Who reaches a published port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReachedFrom {
    Everywhere,
    ThisHost,
}

struct Port {
    place: Location,
    published: Option<u16>,
    target: u16,
    is_udp: bool,
    from: ReachedFrom,
    protocol: Option<Protocol>,
}

/// The endpoints that `ports` and `expose` ask for.
pub(crate) fn read(reader: &mut Reader<'_, '_>, service: &Item) -> Vec<(Endpoint, Location)> {
    let mut ports = Vec::new();
    if let Some(item) = service.get("ports") {
        match item.items() {
            Some(items) => {
                for item in items {
                    let found = match item.fields() {
                        Some(_) => long(reader, item),
                        None => short(reader, item),
                    };
                    ports.extend(found.unwrap_or_default());
                }
            }
            None => {
                let message = format!("`ports` takes a list, found {}", item.shown());
                let _: Option<()> = reader.refuse(item.place, "ports", message, "write `- \"8080:80\"`");
            }
        }
    }
    let mut inner: Vec<(u16, bool, Location)> = ports
        .iter()
        .map(|port| (port.target, port.is_udp, port.place))
        .collect();
    if let Some(item) = service.get("expose") {
        for (text, place) in reader.texts(item, "expose") {
            let (range, is_udp) = protocol_of(&text);
            match (numbers(range), is_udp) {
                (Some(numbers), Some(is_udp)) => inner.extend(numbers.map(|port| (port, is_udp, place))),
                (_, _) => {
                    let _: Option<()> =
                        reader.refuse(place, "expose", format!("`{text}` is no port"), "such as `5432`");
                }
            }
        }
    }
    if inner.len() > PORTS_MAX {
        let message = format!(
            "these are {} ports, a service has at most {PORTS_MAX}",
            inner.len()
        );
        let _: Option<()> = reader.refuse(service.place, "ports", message, "publish those that are used");
        return Vec::new();
    }
    endpoints(ports, inner)
}

fn name(protocol: Protocol, port: u16) -> String {
    match protocol {
        Protocol::Udp => format!("udp-{port}"),
        Protocol::Http | Protocol::Https | Protocol::Tcp | Protocol::Websocket => format!("tcp-{port}"),
    }
}

/// A port for neighbours alone.
pub(crate) fn internal(port: u16, is_udp: bool) -> Endpoint {
    let protocol = if is_udp { Protocol::Udp } else { Protocol::Tcp };
    Endpoint::new(name(protocol, port), protocol, port)
}

fn endpoints(ports: Vec<Port>, inner: Vec<(u16, bool, Location)>) -> Vec<(Endpoint, Location)> {
    let mut taken: BTreeSet<(u16, bool)> = BTreeSet::new();
    let mut endpoints = Vec::new();
    for port in ports {
        let Some(published) = port.published else { continue };
        if !taken.insert((published, port.is_udp)) {
            continue;
        }
        let protocol = match (port.is_udp, port.protocol) {
            (true, _) => Protocol::Udp,
            (false, Some(protocol)) => protocol,
            (false, None) => Protocol::Tcp,
        };
        let endpoint = Endpoint {
            target_port: (port.target != published).then_some(port.target),
            expose: match port.from {
                ReachedFrom::Everywhere => Expose::Public,
                ReachedFrom::ThisHost => Expose::Internal,
            },
            ..Endpoint::new(name(protocol, published), protocol, published)
        };
        endpoints.push((endpoint, port.place));
    }
    for (port, is_udp, place) in inner {
        if taken.insert((port, is_udp)) {
            endpoints.push((internal(port, is_udp), place));
        }
    }
    endpoints
}

/// `80/udp` as its number and whether it is UDP; nothing for another protocol.
fn protocol_of(text: &str) -> (&str, Option<bool>) {
    match text.split_once('/') {
        None => (text, Some(false)),
        Some((range, "tcp")) => (range, Some(false)),
        Some((range, "udp")) => (range, Some(true)),
        Some((range, _)) => (range, None),
    }
}

fn numbers(range: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

fn short(reader: &mut Reader<'_, '_>, item: &Item) -> Option<Vec<Port>> {
    let text = reader.text(item, "ports")?;
    let (rest, is_udp) = protocol_of(&text);
    let Some(is_udp) = is_udp else {
        return reader.refuse(
            item.place,
            "ports",
            format!("`{text}` is neither tcp nor udp"),
            "write `/tcp` or `/udp`",
        );
    };
    let (before, target) = rest
        .rsplit_once(':')
        .map_or(("", rest), |(before, target)| (before, target));
    let (address, published) = match before.rsplit_once(':') {
        Some((address, published)) => (address, published),
        None if before.contains('.') || before.starts_with('[') => (before, ""),
        None => ("", before),
    };
    ports_of(reader, item.place, (address, published, target), is_udp, None)
}

fn long(reader: &mut Reader<'_, '_>, item: &Item) -> Option<Vec<Port>> {
    reader.known(
        item,
        "ports",
        &[
            "name",
            "target",
            "published",
            "host_ip",
            "protocol",
            "app_protocol",
            "mode",
        ],
    );
    let part = |name: &str| item.get(name).and_then(Item::text).unwrap_or_default();
    let is_udp = match part("protocol") {
        "" | "tcp" => false,
        "udp" => true,
        other => {
            return reader.refuse(
                item.place,
                "ports",
                format!("`{other}` is neither tcp nor udp"),
                "",
            );
        }
    };
    let protocol = match part("app_protocol").to_ascii_lowercase().as_str() {
        "http" | "http2" => Some(Protocol::Http),
        "ws" | "websocket" => Some(Protocol::Websocket),
        _ => None,
    };
    if part("mode") == "host" {
        reader.note(
            item.place,
            "`mode: host`: the port is served on every node that takes requests from outside",
        );
    }
    ports_of(
        reader,
        item.place,
        (part("host_ip"), part("published"), part("target")),
        is_udp,
        protocol,
    )
}

fn ports_of(
    reader: &mut Reader<'_, '_>,
    place: Location,
    (address, published, target): (&str, &str, &str),
    is_udp: bool,
    protocol: Option<Protocol>,
) -> Option<Vec<Port>> {
    const HOW: &str = "write `\"8080:80\"`: the port outside, then the one inside";
    let Some(targets) = numbers(target) else {
        return reader.refuse(place, "ports", format!("`{target}` is no port"), HOW);
    };
    let from = host_address(reader, place, address)?;
    if published.is_empty() || published == "0" {
        reader.note(
            place,
            format!("the port {target} is reached by neighbours alone: Docker would publish it somewhere; name the port outside, as in `8080:{target}`"),
        );
        let unpublished = targets.map(|target| Port {
            place,
            published: None,
            target,
            is_udp,
            from,
            protocol,
        });
        return Some(unpublished.collect());
    }
    let Some(outside) = numbers(published) else {
        return reader.refuse(place, "ports", format!("`{published}` is no port"), HOW);
    };
    let is_one_of_range = targets.len() == 1 && outside.len() > 1;
    if outside.len() != targets.len() && !is_one_of_range {
        let message = format!("`{published}` and `{target}` are ranges of different length");
        return reader.refuse(place, "ports", message, "make both equally long");
    }
    if is_one_of_range {
        reader.note(place, format!("of {published} the first one is taken"));
    }
    let pairs = outside.zip(targets);
    let ports = pairs.map(|(published, target)| Port {
        place,
        published: Some(published),
        target,
        is_udp,
        from,
        protocol,
    });
    Some(ports.collect())
}

/// Who a port of this address is for. One address of the host among several is never widened.
fn host_address(reader: &mut Reader<'_, '_>, place: Location, address: &str) -> Option<ReachedFrom> {
    let plain = address.trim_matches(['[', ']']);
    match plain {
        "" | "0.0.0.0" | "::" => Some(ReachedFrom::Everywhere),
        "localhost" | "::1" => this_host(reader, place, plain),
        text if text.starts_with("127.") => this_host(reader, place, text),
        other => {
            let message = format!(
                "a port cannot be served at {other} alone: it would be served at every address of every node"
            );
            let hint = "leave the address out, or write `127.0.0.1:` for this host; `allow_from` of an endpoint in a deployment file says from where it is called";
            reader.refuse(place, "ports", message, hint)
        }
    }
}

fn this_host(reader: &mut Reader<'_, '_>, place: Location, address: &str) -> Option<ReachedFrom> {
    match reader.around.nodes {
        Nodes::Here => {
            reader.note(
                place,
                format!(
                    "{address}: on this host root and the daemon's user call it at 127.0.0.1, nobody else"
                ),
            );
            Some(ReachedFrom::ThisHost)
        }
        Nodes::Elsewhere => {
            let message = format!("{address} is each node by itself, where there are several");
            let hint = "write `expose` for neighbours alone, or leave the address out to serve everybody";
            reader.refuse(place, "ports", message, hint)
        }
    }
}
