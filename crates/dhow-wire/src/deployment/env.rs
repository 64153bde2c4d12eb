//! Values of variables: `$E:NAME` is taken from the client's environment here, wherever it stands in a value;
//! `$S:name` stays for the node.

use std::collections::BTreeMap;

use dhow_core::spec::check::quoted;

use super::Reading;
use crate::document::{Decoder, Kind, Node, Span, loose_text, map_of};

/// Before the name of a variable of the client's environment.
const MARK: &str = "$E:";

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

/// Writes the values of a service, or of a group of its replicas, as a file has them: what looks like a variable of the
/// client's is text by now and must stay it.
pub(super) fn escape(holder: &mut serde_json::Value) {
    let Some(values) = holder.get_mut("env").and_then(serde_json::Value::as_object_mut) else {
        return;
    };
    for value in values.values_mut() {
        if let serde_json::Value::String(text) = value {
            *text = text.replace(MARK, "$$E:");
        }
    }
}

fn short(name: &str) -> String {
    name.chars().take(40).collect()
}

/// Puts in what the client's environment says: `$E:NAME` alone or inside a longer text. `$$E:` is written for a `$E:`
/// that is meant as it stands.
fn resolve(decoder: &mut Decoder, span: Span, value: String, reading: &Reading<'_>) -> Option<String> {
    check_secret(decoder, span, &value)?;
    let mut resolved = String::new();
    let mut missing: Vec<&str> = Vec::new();
    let mut rest = value.as_str();
    while let Some(position) = rest.find(MARK) {
        let (before, after) = (&rest[..position], &rest[position + MARK.len()..]);
        if let Some(before) = before.strip_suffix('$') {
            resolved.extend([before, MARK]);
            rest = after;
            continue;
        }
        let name = name_at_start(after);
        rest = &after[name.len()..];
        resolved.push_str(before);
        if !name.is_empty() {
            // All that is missing is told at once, and each name once.
            if !missing.contains(&name) {
                match variable(decoder, span, name, reading) {
                    Some(text) => resolved.push_str(&text),
                    None => missing.push(name),
                }
            }
        } else if position == 0 && value.starts_with(MARK) {
            return nameless(decoder, span, after);
        } else {
            resolved.push_str(MARK);
        }
    }
    resolved.push_str(rest);
    missing.is_empty().then_some(resolved)
}

/// The name of a variable that a text starts with; it ends where no letter, digit or `_` stands.
fn name_at_start(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = &text[..end.unwrap_or(text.len())];
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => "",
        false => name,
    }
}

fn variable(decoder: &mut Decoder, span: Span, name: &str, reading: &Reading<'_>) -> Option<String> {
    if let Some(value) = (reading.env)(name) {
        return Some(value);
    }
    let name = short(name);
    let message = format!("the environment variable `{name}` is not set");
    let hint = format!("set it where you run dhow: `export {name}=…`");
    decoder.fail(span, message, hint)
}

fn nameless(decoder: &mut Decoder, span: Span, after: &str) -> Option<String> {
    let message = match after {
        "" => "`$E:` needs the name of a variable".to_owned(),
        after => format!("{} is not the name of a variable", quoted(after)),
    };
    decoder.fail(
        span,
        message,
        "`$E:NAME` has letters, digits and `_`, and no digit first",
    )
}

/// A secret inside a longer text would silently stay as it is written.
fn check_secret(decoder: &mut Decoder, span: Span, value: &str) -> Option<()> {
    const MARK: &str = "$S:";
    let Some(position) = value.find(MARK).filter(|position| *position > 0) else {
        return Some(());
    };
    let after = value[position + MARK.len()..].chars().next();
    if after.is_some_and(|c| c.is_ascii_alphabetic() || c == '_') {
        let message = format!("`{MARK}` stands inside a longer text, where it is not replaced");
        let hint = "a secret is the whole value: keep the whole text as the secret";
        return decoder.fail(span, message, hint);
    }
    Some(())
}
