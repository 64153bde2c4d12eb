//! The endpoints of a service.

use dhow_core::ids::{DeploymentName, RoleName, ServiceName};
use dhow_core::spec::{Allowed, Endpoint, Expose, Protocol};

use super::names;
use crate::document::{Decoder, Fields, Kind, Node, choice, list, port, text};

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
    Endpoint {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 0,
        target_port: None,
        expose: Expose::default(),
        path: None,
        host: None,
        target_role: None,
        allow: None,
    }
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
    ]);
    let name = fields.required("name", "name: http", text);
    let protocol = fields.required("protocol", "protocol: http", protocol);
    let number = fields.required("port", "port: 8080", port);
    let endpoint = Endpoint {
        name: name.unwrap_or_default(),
        protocol: protocol.unwrap_or(Protocol::Tcp),
        // No rule about clashing ports looks at 0.
        port: number.unwrap_or(0),
        target_port: fields.optional("target_port", port),
        expose: fields.or("expose", Expose::default(), expose),
        path: fields.optional("path", text),
        host: fields.optional("host", text),
        target_role: fields.optional("target_role", role),
        allow: fields.optional("allow", allow),
    };
    fields.close();
    Some(endpoint)
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
