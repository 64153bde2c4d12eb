//! Values of variables: `$E:NAME` is taken from the client's environment here, `$S:name` stays for the node.

use std::collections::BTreeMap;

use dhow_core::spec::check::quoted;

use super::Reading;
use crate::document::{Decoder, Kind, Node, Span, loose_text, map_of};

pub(super) fn read(
    decoder: &mut Decoder,
    node: &Node,
    reading: &Reading<'_>,
) -> Option<BTreeMap<String, String>> {
    const HOW: &str = "write `NAME: value` pairs";
    map_of(
        decoder,
        node,
        "a map of names and values",
        HOW,
        |decoder, name, node| {
            if node.kind() == Kind::Nothing {
                let message = format!("{} has no value", quoted(name));
                let hint = format!(
                    "write `\"\"` for an empty one, or `$E:{}` to take yours",
                    short(name)
                );
                return decoder.fail(node.span, message, hint);
            }
            let value = loose_text(decoder, node)?;
            resolve(decoder, node.span, value, reading)
        },
    )
}

fn short(name: &str) -> String {
    name.chars().take(40).collect()
}

fn resolve(decoder: &mut Decoder, span: Span, value: String, reading: &Reading<'_>) -> Option<String> {
    let Some(name) = value.strip_prefix("$E:") else {
        return embedded(decoder, span, value);
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.chars().all(fits) {
        let message = match name {
            "" => "`$E:` needs the name of a variable".to_owned(),
            name => format!("{} is not the name of a variable", quoted(name)),
        };
        return decoder.fail(
            span,
            message,
            "`$E:NAME` is the whole value: letters, digits and `_`",
        );
    }
    match (reading.env)(name) {
        Some(value) => Some(value),
        None => {
            let name = short(name);
            let message = format!("the environment variable `{name}` is not set");
            let hint = format!("set it where you run dhow: `export {name}=…`");
            decoder.fail(span, message, hint)
        }
    }
}

/// A reference inside a longer text would silently stay as it is written.
fn embedded(decoder: &mut Decoder, span: Span, value: String) -> Option<String> {
    for mark in ["$E:", "$S:"] {
        let Some(position) = value.find(mark).filter(|position| *position > 0) else {
            continue;
        };
        let after = value[position + mark.len()..].chars().next();
        if after.is_some_and(|c| c.is_ascii_alphabetic() || c == '_') {
            let message = format!("`{mark}` stands inside a longer text, where it is not replaced");
            let hint = match mark {
                "$S:" => "a reference is the whole value: keep the whole text as the secret",
                _ => "a reference is the whole value: let the program put the parts together",
            };
            return decoder.fail(span, message, hint);
        }
    }
    Some(value)
}
