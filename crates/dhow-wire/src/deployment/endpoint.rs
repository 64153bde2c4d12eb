//! The endpoints of a service.

use dhow_core::ids::RoleName;
use dhow_core::spec::{Endpoint, Expose, Protocol};

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
    };
    fields.close();
    Some(endpoint)
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
    let allowed = [("internal", Expose::Internal), ("public", Expose::Public)];
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
