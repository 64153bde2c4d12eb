//! The endpoints of a service.

use dhow_core::acme;
use dhow_core::ids::{DeploymentName, RoleName, ServiceName};
use dhow_core::spec::{
    Allowed, Endpoint, EndpointOptions, Expose, ImagePorts, IpRange, IpRangeError, Protocol, ProxyProtocol,
    Sticky, Tls,
};

use super::names;
use crate::document::{Decoder, Fields, Kind, Node, choice, duration, flag, list, loose_text, port, text};

const EXAMPLE: &str = "`{ name: http, protocol: http, port: 8080 }`";

pub(super) fn endpoints(decoder: &mut Decoder, node: &Node) -> Option<Vec<Endpoint>> {
    list(
        decoder,
        node,
        "a list",
        "write `- ` and the fields of each endpoint",
        unread,
        endpoint,
    )
}

/// Stands in for an endpoint that could not be read.
fn unread() -> Endpoint {
    Endpoint::new("", Protocol::Tcp, 0)
}

fn endpoint(decoder: &mut Decoder, node: &Node) -> Option<Endpoint> {
    if node.kind() == Kind::Text || node.kind() == Kind::Integer {
        let hint = format!("write {EXAMPLE}");
        return decoder.wrong_type(node, "a map", hint);
    }
    let mut fields = Fields::open(decoder, node, "an endpoint", EXAMPLE)?;
    fields.elsewhere(&[
        ("published", "write `port`"),
        ("containerPort", "write `target_port`"),
        ("targetPort", "write `target_port`"),
        ("target", "write `target_port`"),
        ("certificate", "write `tls: { secret: NAME }`"),
        ("cert", "write `tls: { secret: NAME }`"),
        ("ssl", "write `tls: { secret: NAME }`"),
        ("whitelist", "write `allow_from`"),
        ("timeout", "write `request_timeout` or `idle_timeout`"),
        ("read_timeout", "write `request_timeout`"),
        ("send_proxy", "write `proxy_protocol: v2`"),
    ]);
    let name = fields.required("name", "name: http", text);
    let protocol = fields.required("protocol", "protocol: http", protocol);
    let number = fields.required("port", "port: 8080", port);
    let host = fields.optional("host", text);
    let tls = fields.optional("tls", |decoder, node| tls(decoder, node, host.as_deref()));
    let endpoint = Endpoint {
        name: name.unwrap_or_default(),
        protocol: protocol.unwrap_or(Protocol::Tcp),
        // No rule about clashing ports looks at 0.
        port: number.unwrap_or(0),
        target_port: fields.optional("target_port", port),
        expose: fields.or("expose", Expose::default(), expose),
        path: fields.optional("path", text),
        host,
        target_role: fields.optional("target_role", role),
        allow: fields.optional("allow", allow),
        tls,
        options: EndpointOptions {
            strip_prefix: fields.or("strip_prefix", false, flag),
            allow_from: fields.optional("allow_from", ranges).unwrap_or_default(),
            sticky: fields.optional("sticky", sticky),
            request_timeout: fields.optional("request_timeout", duration),
            idle_timeout: fields.optional("idle_timeout", duration),
            proxy_protocol: fields.optional("proxy_protocol", proxy_protocol),
            access_log: fields.or("access_log", false, flag),
        },
    };
    fields.close();
    Some(endpoint)
}

/// The ranges that may call. Where one of them cannot be read, the list is not judged further.
pub(crate) fn ranges(decoder: &mut Decoder, node: &Node) -> Option<Vec<IpRange>> {
    const HOW: &str = "write `[10.0.0.0/8, 192.0.2.7]`";
    let read = list(
        decoder,
        node,
        "a list of addresses",
        HOW,
        || None,
        |decoder, node| range(decoder, node).map(Some),
    )?;
    if read.is_empty() {
        return decoder.fail(node.span, "the list is empty: nobody would be in it", HOW);
    }
    read.into_iter().collect()
}

fn range(decoder: &mut Decoder, node: &Node) -> Option<IpRange> {
    let text = loose_text(decoder, node)?;
    match text.parse() {
        Ok(range) => Some(range),
        Err(error @ IpRangeError::Form(_)) => {
            let hint = "write an address, or a range such as `10.0.0.0/8`";
            decoder.fail(node.span, error.to_string(), hint)
        }
        Err(IpRangeError::NotFirst { text, first }) => {
            let message = format!("`{text}` does not begin with the first address of its range");
            decoder.fail(node.span, message, format!("did you mean `{first}`?"))
        }
    }
}

fn sticky(decoder: &mut Decoder, node: &Node) -> Option<Sticky> {
    let allowed = [("cookie", Sticky::Cookie), ("ip", Sticky::Ip)];
    let near = [
        ("source", "ip"),
        ("ip_hash", "ip"),
        ("true", "cookie"),
        ("session", "cookie"),
    ];
    choice(decoder, node, &allowed, &near)
}

fn proxy_protocol(decoder: &mut Decoder, node: &Node) -> Option<ProxyProtocol> {
    let allowed = [("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];
    let near = [("1", "v1"), ("2", "v2"), ("true", "v2"), ("out", "v2")];
    choice(decoder, node, &allowed, &near)
}

/// The certificate. Where it cannot be read which, nothing else of it counts.
fn tls(decoder: &mut Decoder, node: &Node, host: Option<&str>) -> Option<Tls> {
    let mut fields = Fields::open(
        decoder,
        node,
        "`tls`",
        "`{ secret: shop-tls }` or `{ acme: true }`",
    )?;
    fields.elsewhere(&[
        ("secretName", "write `secret`"),
        (
            "cert",
            "put certificates and key as PEM into one secret, and name it with `secret`",
        ),
        (
            "key",
            "put certificates and key as PEM into one secret, and name it with `secret`",
        ),
        ("letsencrypt", "write `acme: true`"),
        ("certresolver", "write `acme: true`"),
        ("auto", "write `acme: true`"),
    ]);
    // Nothing where it is not there, and nothing in it where it cannot be read.
    let by_acme = fields.optional("acme", |decoder, node| Some(is_ordered(decoder, node)));
    let redirect = fields.optional("redirect", flag);
    let secret = match by_acme {
        None | Some(Some(false)) => fields.required("secret", "secret: shop-tls` or `acme: true", text),
        Some(Some(true) | None) => fields.optional("secret", text),
    };
    fields.close();
    match (by_acme.unwrap_or(Some(false))?, secret) {
        (false, secret) => Some(Tls {
            secret: secret?,
            redirect,
        }),
        (true, None) => Some(Tls::by_acme(host.unwrap_or_default(), redirect)),
        (true, Some(_)) => decoder.fail(
            node.span,
            "a certificate is ordered, or comes from a secret: not both",
            "remove `acme` or `secret`",
        ),
    }
}

/// Says of certificates that the cluster orders what a file says of them.
pub(super) fn name_orders(service: &mut serde_json::Value) {
    let endpoints = service.get_mut("endpoints").and_then(|all| all.as_array_mut());
    for endpoint in endpoints.into_iter().flatten() {
        let Some(tls) = endpoint.get_mut("tls").and_then(|tls| tls.as_object_mut()) else {
            continue;
        };
        let secret = tls.get("secret").and_then(|secret| secret.as_str());
        if secret.is_some_and(|secret| acme::host_of(secret).is_some()) {
            tls.remove("secret");
            tls.insert("acme".into(), true.into());
        }
    }
}

/// Whether a certificate is ordered. Who asks for a way of proof is told which there is.
fn is_ordered(decoder: &mut Decoder, node: &Node) -> Option<bool> {
    let said = match node.kind() {
        Kind::Text => loose_text(decoder, node)?.to_ascii_lowercase(),
        Kind::Boolean | Kind::Integer | Kind::Float | Kind::Nothing | Kind::List | Kind::Map => {
            return flag(decoder, node);
        }
    };
    match said.as_str() {
        "dns-01" | "dns01" | "dns" => decoder.fail(
            node.span,
            "Dhow does not prove hosts by DNS-01, only by HTTP-01 at port 80",
            "write `acme: true`, or `secret` with a certificate that something else orders",
        ),
        "http-01" | "http01" | "http" => {
            let hint = "write `acme: true`: there is no other way than HTTP-01";
            decoder.wrong_type(node, "`true` or `false`", hint)
        }
        _ => flag(decoder, node),
    }
}

/// The ports of the image, and who may call them.
pub(super) fn image_ports(decoder: &mut Decoder, node: &Node) -> Option<ImagePorts> {
    const HOW: &str = "`image_ports: {}` or `image_ports: { allow: [web] }`";
    let mut fields = Fields::open(decoder, node, "`image_ports`", HOW)?;
    let allow = fields.optional("allow", allow);
    fields.close();
    Some(ImagePorts { allow })
}

/// The services that may call. Where one of them cannot be read, the list is not judged further.
fn allow(decoder: &mut Decoder, node: &Node) -> Option<Vec<Allowed>> {
    const HOW: &str =
        "write `allow: [web]`, or `allow: [web, other/web]` for a service of another deployment";
    let read = list(
        decoder,
        node,
        "a list of services",
        HOW,
        || None,
        |decoder, node| allowed(decoder, node).map(Some),
    );
    read?.into_iter().collect()
}

fn allowed(decoder: &mut Decoder, node: &Node) -> Option<Allowed> {
    let text = text(decoder, node)?;
    let (deployment, service) = match text.split_once('/') {
        Some((name, service)) => {
            let name = names::checked(decoder, node.span, name, DeploymentName::new)?;
            (Some(name), service)
        }
        None => (None, text.as_str()),
    };
    let service = names::checked(decoder, node.span, service, ServiceName::new)?;
    Some(Allowed { deployment, service })
}

pub(super) fn role(decoder: &mut Decoder, node: &Node) -> Option<RoleName> {
    let name = text(decoder, node)?;
    names::checked(decoder, node.span, &name, RoleName::new)
}

fn protocol(decoder: &mut Decoder, node: &Node) -> Option<Protocol> {
    let allowed = [
        ("http", Protocol::Http),
        ("https", Protocol::Https),
        ("tcp", Protocol::Tcp),
        ("udp", Protocol::Udp),
        ("websocket", Protocol::Websocket),
    ];
    choice(
        decoder,
        node,
        &allowed,
        &[("ws", "websocket"), ("http2", "http"), ("grpc", "tcp")],
    )
}

fn expose(decoder: &mut Decoder, node: &Node) -> Option<Expose> {
    let allowed = [
        ("internal", Expose::Internal),
        ("cluster", Expose::Cluster),
        ("public", Expose::Public),
    ];
    choice(
        decoder,
        node,
        &allowed,
        &[
            ("external", "public"),
            ("private", "internal"),
            ("true", "public"),
            ("false", "internal"),
        ],
    )
}
