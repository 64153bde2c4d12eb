//! Where replicas go.

use dhow_core::spec::{Affinity, AffinityMode, NodeMode, NodeSelector, Platform, Reschedule};

use crate::document::{Decoder, Fields, Kind, Node, choice, duration, flag, scalar_text, text, text_map};

pub(super) fn node_selector(decoder: &mut Decoder, node: &Node) -> Option<NodeSelector> {
    let mut fields = Fields::open(decoder, node, "`node_selector`", "`{ labels: { zone: a } }`")?;
    let selector = NodeSelector {
        labels: fields.or("labels", Default::default(), text_map),
        prefer_labels: fields.or("prefer_labels", Default::default(), text_map),
    };
    fields.elsewhere(&[
        ("prefer", "write `prefer_labels`"),
        ("match", "write `labels`"),
        ("os", "write `platform: { os: linux }` beside it"),
    ]);
    fields.close();
    Some(selector)
}

fn mode(decoder: &mut Decoder, node: &Node) -> Option<AffinityMode> {
    let allowed = [
        ("spread", AffinityMode::Spread),
        ("pack", AffinityMode::Pack),
        ("pin", AffinityMode::Pin),
    ];
    choice(decoder, node, &allowed, &[("binpack", "pack"), ("pinned", "pin")])
}

/// A mode's name, or the mode with its label.
pub(super) fn affinity(decoder: &mut Decoder, node: &Node) -> Option<Affinity> {
    match node.kind() {
        Kind::Map | Kind::List => {}
        Kind::Nothing | Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text => {
            let mode = mode(decoder, node)?;
            return Some(Affinity {
                mode,
                spread_by: None,
            });
        }
    }
    let mut fields = Fields::open(
        decoder,
        node,
        "`affinity`",
        "`spread` or `{ mode: spread, spread_by: zone }`",
    )?;
    let affinity = Affinity {
        mode: fields.or("mode", AffinityMode::default(), mode),
        spread_by: fields.optional("spread_by", text),
    };
    fields.close();
    Some(affinity)
}

pub(super) fn node_mode(decoder: &mut Decoder, node: &Node) -> Option<NodeMode> {
    let allowed = [
        ("shared", NodeMode::Shared),
        ("dedicated", NodeMode::Dedicated),
        ("exclusive", NodeMode::Exclusive),
    ];
    choice(decoder, node, &allowed, &[])
}

pub(super) fn platform(decoder: &mut Decoder, node: &Node) -> Option<Platform> {
    let mut fields = Fields::open(decoder, node, "`platform`", "`{ os: linux, arch: x86_64 }`")?;
    fields.elsewhere(&[("architecture", "write `arch`")]);
    let platform = Platform {
        os: fields.optional("os", text),
        arch: fields.optional("arch", text),
    };
    fields.close();
    Some(platform)
}

/// `on`, `off`, a boolean, or the waits by name.
pub(super) fn reschedule(decoder: &mut Decoder, node: &Node) -> Option<Reschedule> {
    const EXPECTED: &str = "`on`, `off` or a map";
    let plain = Reschedule::default();
    let text = scalar_text(node).map_or("", |scalar| &scalar.text);
    match (node.kind(), text.to_ascii_lowercase().as_str()) {
        (Kind::Boolean, word) => {
            return Some(Reschedule {
                enabled: word == "true",
                ..plain
            });
        }
        (Kind::Text, "on") => return Some(plain),
        (Kind::Text, "off") => {
            return Some(Reschedule {
                enabled: false,
                ..plain
            });
        }
        (Kind::Text, "yes" | "always") => return decoder.wrong_type(node, EXPECTED, "did you mean `on`?"),
        (Kind::Text, "no" | "never") => return decoder.wrong_type(node, EXPECTED, "did you mean `off`?"),
        (Kind::Map, _) => {}
        (Kind::Nothing | Kind::Integer | Kind::Float | Kind::Text | Kind::List, _) => {
            return decoder.wrong_type(node, EXPECTED, "such as `{ delay: 30s, lost_after: 5m }`");
        }
    }
    let mut fields = Fields::open(decoder, node, "`reschedule`", "`{ delay: 30s, lost_after: 5m }`")?;
    let reschedule = Reschedule {
        enabled: fields.or("enabled", plain.enabled, flag),
        delay: fields.or("delay", plain.delay, duration),
        lost_after: fields.or("lost_after", plain.lost_after, duration),
    };
    fields.close();
    Some(reschedule)
}
