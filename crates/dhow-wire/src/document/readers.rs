//! Readers of single values, lists and maps: each gives the value or records what is wrong.

use std::collections::BTreeMap;

use dhow_core::spec::check::{PathPart, nearest, quoted};

use super::decoder::Decoder;
use super::node::{Kind, Node, Scalar, ScalarStyle, Value};

/// A node as a message names it.
pub fn shown(node: &Node) -> String {
    match &node.value {
        Value::Sequence(_) => "a list".into(),
        Value::Mapping(_) => "a map".into(),
        Value::Scalar(scalar) => match scalar.kind() {
            Kind::Nothing => "nothing".into(),
            Kind::Boolean => format!("the boolean {}", quoted(&scalar.text)),
            Kind::Integer | Kind::Float => format!("the number {}", quoted(&scalar.text)),
            Kind::Text | Kind::List | Kind::Map => format!("the text {}", quoted(&scalar.text)),
        },
    }
}

/// The raw text of a scalar of any kind, except nothing.
pub fn scalar_text(node: &Node) -> Option<&Scalar> {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind() != Kind::Nothing => Some(scalar),
        Value::Scalar(_) | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// Text. A number or a boolean without quotes is refused: what was meant is not sure.
pub fn text(decoder: &mut Decoder, node: &Node) -> Option<String> {
    match (&node.value, node.kind()) {
        (Value::Scalar(scalar), Kind::Text) => Some(scalar.text.to_string()),
        (Value::Scalar(scalar), _) if scalar.style == ScalarStyle::Filled => Some(scalar.text.to_string()),
        (Value::Scalar(scalar), Kind::Boolean | Kind::Integer | Kind::Float) => {
            let hint = format!("put it into quotes: `\"{}\"`", cut(&scalar.text));
            decoder.wrong_type(node, "text", hint)
        }
        _ => decoder.wrong_type(node, "text", AS_TEXT),
    }
}

const AS_TEXT: &str = "write it as one value, in quotes if it holds marks of YAML";
const AS_NUMBER: &str = "write it in digits alone, such as `3`";

fn cut(text: &str) -> String {
    text.chars().take(24).collect()
}

/// Text where people write numbers and booleans as they are, such as the values of variables.
pub fn loose_text(decoder: &mut Decoder, node: &Node) -> Option<String> {
    match scalar_text(node) {
        Some(scalar) => Some(scalar.text.to_string()),
        None => decoder.wrong_type(node, "text", AS_TEXT),
    }
}

pub fn flag(decoder: &mut Decoder, node: &Node) -> Option<bool> {
    let text = scalar_text(node).map_or("", |scalar| &scalar.text);
    match (node.kind(), text.to_ascii_lowercase().as_str()) {
        (Kind::Boolean, "true") => Some(true),
        (Kind::Boolean, _) => Some(false),
        (_, "true" | "false") => {
            decoder.wrong_type(node, "`true` or `false`", format!("remove the quotes: `{text}`"))
        }
        (_, "yes" | "on" | "1") => decoder.wrong_type(node, "`true` or `false`", "did you mean `true`?"),
        (_, "no" | "off" | "0") => decoder.wrong_type(node, "`true` or `false`", "did you mean `false`?"),
        _ => decoder.wrong_type(node, "`true` or `false`", "write one of the two"),
    }
}

/// A whole number between two bounds.
pub fn integer(decoder: &mut Decoder, node: &Node, min: u64, max: u64) -> Option<u64> {
    let scalar = scalar_text(node);
    let text = scalar.map_or("", |scalar| &scalar.text);
    match node.kind() {
        Kind::Integer => {}
        Kind::Text if text.trim().parse::<u64>().is_ok() => {
            return decoder.wrong_type(
                node,
                "a whole number",
                format!("remove the quotes: `{}`", text.trim()),
            );
        }
        Kind::Float => {
            let whole = text
                .split('.')
                .next()
                .filter(|whole| whole.parse::<u64>().is_ok());
            let hint = whole.map_or(AS_NUMBER.to_owned(), |whole| {
                format!("write it without a fraction, such as `{whole}`")
            });
            return decoder.wrong_type(node, "a whole number", hint);
        }
        Kind::Nothing | Kind::Boolean | Kind::Text | Kind::List | Kind::Map => {
            return decoder.wrong_type(node, "a whole number", AS_NUMBER);
        }
    }
    let bounds = match max {
        u64::MAX => format!("it is {min} or more, below 2^64"),
        max => format!("it is {min} to {max}"),
    };
    let subject = decoder.subject();
    let wrong = |what: &str| format!("{subject} is {}, which is {what}", quoted(text));
    match parse_integer(text) {
        Some(number) if number < i128::from(min) => {
            let what = if number < 0 && min == 0 {
                "below 0".into()
            } else {
                format!("below {min}")
            };
            decoder.fail(node.span, wrong(&what), bounds)
        }
        Some(number) if number <= i128::from(max) => u64::try_from(number).ok(),
        Some(_) | None => decoder.fail(node.span, wrong(&format!("above {max}")), bounds),
    }
}

/// The number, or nothing where it is larger than any that is asked for.
fn parse_integer(text: &str) -> Option<i128> {
    if let Some(digits) = text.strip_prefix("0x") {
        return i128::from_str_radix(digits, 16).ok();
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return i128::from_str_radix(digits, 8).ok();
    }
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) if text.starts_with('-') => Some(i128::MIN),
        Err(_) => None,
    }
}

pub fn port(decoder: &mut Decoder, node: &Node) -> Option<u16> {
    integer(decoder, node, 1, u64::from(u16::MAX)).map(|port| port as u16)
}

/// A number with or without a fraction.
pub fn number(decoder: &mut Decoder, node: &Node) -> Option<f64> {
    let text = scalar_text(node).map_or("", |scalar| &scalar.text);
    match node.kind() {
        Kind::Integer | Kind::Float => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Some(number),
            Ok(_) | Err(_) => {
                decoder.wrong_type(node, "a number", "write it in decimal digits, such as `0.5`")
            }
        },
        Kind::Nothing | Kind::Boolean | Kind::Text | Kind::List | Kind::Map => {
            decoder.wrong_type(node, "a number", "such as `0.5`")
        }
    }
}

/// One word of a few. `synonyms` are other tools' words, each with ours.
pub fn choice<T: Copy>(
    decoder: &mut Decoder,
    node: &Node,
    allowed: &[(&'static str, T)],
    synonyms: &[(&str, &str)],
) -> Option<T> {
    let Some(scalar) = scalar_text(node) else {
        return decoder.wrong_type(node, &listed(allowed), "write one of these words");
    };
    let text: &str = &scalar.text;
    if let Some((_, value)) = allowed.iter().find(|(name, _)| *name == text) {
        return Some(*value);
    }
    let names = allowed.iter().map(|(name, _)| *name);
    let synonym = synonyms
        .iter()
        .find(|(other, _)| other.eq_ignore_ascii_case(text));
    let meant = synonym.map(|(_, name)| *name).or_else(|| nearest(text, names));
    let message = format!("{} cannot be {}", decoder.subject(), quoted(text));
    let hint = match meant {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("it is {}", listed(allowed)),
    };
    decoder.fail(node.span, message, hint)
}

/// `` `a`, `b` or `c` ``.
fn listed<T>(allowed: &[(&'static str, T)]) -> String {
    let names: Vec<String> = allowed.iter().map(|(name, _)| format!("`{name}`")).collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// A list of anything. The stand-in takes the place of an item that could not be read, so that positions do not
/// shift; such an item is marked, and no rule is heard about it.
pub fn list<T>(
    decoder: &mut Decoder,
    node: &Node,
    expected: &str,
    hint: &str,
    stand_in: impl Fn() -> T,
    mut read: impl FnMut(&mut Decoder, &Node) -> Option<T>,
) -> Option<Vec<T>> {
    let Value::Sequence(items) = &node.value else {
        return decoder.wrong_type(node, expected, hint);
    };
    let mut values = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let value = decoder.within(PathPart::Index(index), |decoder| {
            let value = if item.kind() == Kind::Nothing {
                let message = format!("{} is empty", decoder.subject());
                decoder.fail(item.span, message, "give it a value, or remove it")
            } else {
                read(decoder, item)
            };
            value.unwrap_or_else(|| {
                let path = decoder.path().clone();
                decoder.mark_failed(path);
                stand_in()
            })
        });
        values.push(value);
    }
    Some(values)
}

/// A list of texts.
pub fn list_of(
    expected: &'static str,
    hint: &'static str,
) -> impl Fn(&mut Decoder, &Node) -> Option<Vec<String>> {
    move |decoder, node| list(decoder, node, expected, hint, || "unread".into(), text)
}

/// A map from the author's own names to values. An entry that could not be read is left out.
pub fn map_of<T>(
    decoder: &mut Decoder,
    node: &Node,
    expected: &str,
    hint: &str,
    mut read: impl FnMut(&mut Decoder, &str, &Node) -> Option<T>,
) -> Option<BTreeMap<String, T>> {
    let Value::Mapping(mapping) = &node.value else {
        return decoder.wrong_type(node, expected, hint);
    };
    let mut values = BTreeMap::new();
    for entry in &mapping.entries {
        let key = entry.key.to_string();
        let part = PathPart::Key(key.clone().into());
        if let Some(value) = decoder.within(part, |decoder| read(decoder, &entry.key, &entry.value)) {
            values.insert(key, value);
        }
    }
    Some(values)
}

/// `name: text` pairs, with numbers and booleans taken as they are written.
pub fn text_map(decoder: &mut Decoder, node: &Node) -> Option<BTreeMap<String, String>> {
    const HOW: &str = "write `name: value` pairs";
    map_of(
        decoder,
        node,
        "a map of names and values",
        HOW,
        |decoder, name, node| {
            if node.kind() == Kind::Nothing {
                let message = format!("{} has no value", quoted(name));
                return decoder.fail(node.span, message, "write `\"\"` for an empty one");
            }
            loose_text(decoder, node)
        },
    )
}
