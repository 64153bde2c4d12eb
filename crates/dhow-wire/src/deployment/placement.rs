//! Where replicas go.

use std::collections::BTreeMap;

use dhow_core::spec::{
    Affinity, AffinityMode, LabelRule, LabelTest, Neighbour, NodeMode, NodeSelector, Percent, Platform,
    Reschedule,
};

use dhow_core::ids::ServiceName;

use super::names;
use crate::document::{
    Decoder, Fields, Kind, Node, choice, duration, flag, integer, list, map_of, percent, scalar_text, text,
    text_map,
};

pub(super) fn node_selector(decoder: &mut Decoder, node: &Node) -> Option<NodeSelector> {
    let mut fields = Fields::open(decoder, node, "`node_selector`", "`{ labels: { zone: a } }`")?;
    let selector = NodeSelector {
        labels: fields.or("labels", Default::default(), text_map),
        prefer_labels: fields.or("prefer_labels", Default::default(), text_map),
        rules: fields.or("where", Vec::new(), label_rules),
    };
    fields.elsewhere(&[
        ("prefer", "write `prefer_labels`"),
        ("match", "write `labels`, or `where: [\"cores >= 8\"]`"),
        ("matchExpressions", "write `where: [\"disk in [ssd, nvme]\"]`"),
        ("constraints", "write `where: [\"cores >= 8\"]`"),
        ("expressions", "write `where: [\"cores >= 8\"]`"),
        ("os", "write `platform: { os: linux }` beside it"),
    ]);
    fields.close();
    Some(selector)
}

/// Comparisons of labels, one text each.
fn label_rules(decoder: &mut Decoder, node: &Node) -> Option<Vec<LabelRule>> {
    const HINT: &str = "such as `[\"cores >= 8\", \"disk in [ssd, nvme]\"]`";
    let stand_in = || LabelRule {
        label: "unread".into(),
        test: LabelTest::Exists,
    };
    list(
        decoder,
        node,
        "a list of comparisons",
        HINT,
        stand_in,
        |decoder, node| {
            let written = text(decoder, node)?;
            match written.parse() {
                Ok(rule) => Some(rule),
                Err(error) => {
                    let hint = "operators are ==, !=, <, <=, >, >=, in, not in, exists and absent";
                    decoder.fail(node.span, error.to_string(), hint)
                }
            }
        },
    )
}

/// The name of a label and a number for each.
pub(super) fn max_per(decoder: &mut Decoder, node: &Node) -> Option<BTreeMap<String, u32>> {
    map_of(
        decoder,
        node,
        "a map",
        "such as `{ zone: 3 }`",
        |decoder, _, node| count(decoder, node),
    )
}

/// How many replicas are the most somewhere.
pub(super) fn count(decoder: &mut Decoder, node: &Node) -> Option<u32> {
    integer(decoder, node, 1, u64::from(u32::MAX)).map(|count| count as u32)
}

/// A share for each value of a label.
pub(super) fn shares(decoder: &mut Decoder, node: &Node) -> Option<BTreeMap<String, Percent>> {
    map_of(
        decoder,
        node,
        "a map",
        "such as `{ a: 70%, b: 30% }`",
        |decoder, _, node| percent(decoder, node),
    )
}

/// Services, each by its name or with what counts as one place.
fn neighbours(decoder: &mut Decoder, node: &Node) -> Option<Vec<Neighbour>> {
    const HINT: &str = "such as `[db]` or `[{ service: db, by: zone }]`";
    if matches!(node.kind(), Kind::Text | Kind::Map) {
        return neighbour(decoder, node).map(|one| vec![one]);
    }
    // Any name stands in for one that could not be read: no rule is heard about it.
    let stand_in = || Neighbour::of(ServiceName::new("unread").expect("a valid name"));
    list(decoder, node, "a list of services", HINT, stand_in, neighbour)
}

fn service_name(decoder: &mut Decoder, node: &Node) -> Option<ServiceName> {
    let name = text(decoder, node)?;
    names::checked(decoder, node.span, &name, ServiceName::new)
}

fn neighbour(decoder: &mut Decoder, node: &Node) -> Option<Neighbour> {
    if node.kind() == Kind::Text {
        return service_name(decoder, node).map(Neighbour::of);
    }
    let mut fields = Fields::open(decoder, node, "a service", "`db` or `{ service: db, by: zone }`")?;
    fields.elsewhere(&[
        ("topologyKey", "write `by: zone`"),
        ("spread_by", "write `by`"),
        ("required", "write `prefer: true` where it may be otherwise"),
    ]);
    let service = fields.required("service", "service: db", service_name);
    let by = fields.optional("by", text);
    let prefer = fields.or("prefer", false, flag);
    fields.close();
    Some(Neighbour {
        service: service?,
        by,
        prefer,
    })
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
                ..Affinity::default()
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
        near: fields.or("near", Vec::new(), neighbours),
        away_from: fields.or("away_from", Vec::new(), neighbours),
    };
    fields.elsewhere(&[
        ("away", "write `away_from`"),
        ("podAffinity", "write `near: [db]`"),
        ("podAntiAffinity", "write `away_from: [db]`"),
    ]);
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
