//! What a container has of its host: rights, limits, names.

use std::collections::BTreeMap;

use dhow_core::spec::{Capabilities, Ulimit};

use crate::document::{Decoder, Fields, Kind, Node, integer, list_of, map_of, scalar_text};

pub(super) fn capabilities(decoder: &mut Decoder, node: &Node) -> Option<Capabilities> {
    const HOW: &str = "such as `[NET_ADMIN]`";
    let mut fields = Fields::open(
        decoder,
        node,
        "`capabilities`",
        "`{ add: [NET_ADMIN], drop: [ALL] }`",
    )?;
    let capabilities = Capabilities {
        add: fields.or("add", Vec::new(), list_of("a list of names", HOW)),
        drop: fields.or("drop", Vec::new(), list_of("a list of names", HOW)),
    };
    fields.close();
    Some(capabilities)
}

pub(super) fn ulimits(decoder: &mut Decoder, node: &Node) -> Option<BTreeMap<String, Ulimit>> {
    const HOW: &str = "such as `{ nofile: 65536 }`";
    map_of(decoder, node, "a map of limits", HOW, |decoder, _, node| {
        ulimit(decoder, node)
    })
}

/// One number for both, or each by name.
fn ulimit(decoder: &mut Decoder, node: &Node) -> Option<Ulimit> {
    if node.kind() != Kind::Map {
        let both = limit(decoder, node)?;
        return Some(Ulimit {
            soft: both,
            hard: both,
        });
    }
    let mut fields = Fields::open(decoder, node, "a limit", "`{ soft: 1024, hard: 65536 }`")?;
    let soft = fields.required("soft", "soft: 1024", limit);
    let hard = fields.required("hard", "hard: 65536", limit);
    fields.close();
    Some(Ulimit {
        soft: soft.unwrap_or(0),
        hard: hard.unwrap_or(u64::MAX),
    })
}

/// Docker writes no limit as -1; the kernel's own value for it is the largest number.
fn limit(decoder: &mut Decoder, node: &Node) -> Option<u64> {
    match scalar_text(node).map_or("", |scalar| &scalar.text) {
        "-1" | "unlimited" => Some(u64::MAX),
        _ => integer(decoder, node, 0, u64::MAX),
    }
}
