//! Values of variables. `$E:NAME` and `${NAME}` are taken from the client's environment here, wherever they stand in a
//! value; `$S:name` stays for the node. What comes out of a variable or of an `env_file` is text, whatever it looks like:
//! text that begins as a secret does is kept with one `$` more, which the node takes away again.

use std::collections::BTreeMap;

use dhow_core::spec::check::quoted;

use super::surroundings::{Sender, Surroundings};
use super::variables::{self, Problem};
use super::{Reading, env_file, files};
use crate::document::{Decoder, Kind, Node, Value, loose_text, map_of};

/// Before the name of a variable of the client's environment.
const CLIENT: &str = "$E:";
/// Before the name of a secret.
const SECRET: &str = "$S:";
const BRACE: &str = "${";

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
            match resolve(&value, reading.around) {
                Ok(value) => Some(value),
                Err(problems) => {
                    variables::fail(decoder, node.span, problems);
                    None
                }
            }
        },
    )
}

/// `env_file`: one path, or several, of which a later one has the last word.
pub(super) fn read_files(
    decoder: &mut Decoder,
    node: &Node,
    reading: &Reading<'_>,
) -> Option<BTreeMap<String, String>> {
    let one;
    let nodes = match &node.value {
        Value::Sequence(nodes) => nodes,
        Value::Scalar(_) | Value::Mapping(_) => {
            one = vec![node.clone()];
            &one
        }
    };
    let mut values = BTreeMap::new();
    for node in nodes {
        let bytes = files::beside(decoder, node, reading)?;
        match env_file::parse(&bytes, &|name| reading.around.variable(name)) {
            Ok(found) => values.extend(found.into_iter().map(|(name, value)| (name, as_text(value)))),
            Err(problem) => {
                let path = crate::document::scalar_text(node).map_or("", |scalar| &scalar.text);
                let message = format!("line {} of {}: {}", problem.line, quoted(path), problem.message);
                return decoder.fail(node.span, message, problem.hint);
            }
        }
    }
    Some(values)
}

/// A value that is text, whatever it looks like.
fn as_text(value: String) -> String {
    match value.starts_with(SECRET) || value.starts_with("$$S:") {
        true => format!("${value}"),
        false => value,
    }
}

/// Writes the values of a service, or of a group of its replicas, as a caller of the API sends them: what looks like a
/// variable is text by now and must stay it.
pub(super) fn escape(holder: &mut serde_json::Value) {
    let Some(values) = holder.get_mut("env").and_then(serde_json::Value::as_object_mut) else {
        return;
    };
    for value in values.values_mut() {
        if let serde_json::Value::String(text) = value {
            *text = escaped(text);
        }
    }
}

fn escaped(value: &str) -> String {
    // The mark of a secret, and of text that looks like one.
    let kept = ["$$S:", SECRET]
        .into_iter()
        .find(|mark| value.starts_with(mark))
        .unwrap_or_default();
    let rest = &value[kept.len()..];
    let rest = [CLIENT, SECRET, BRACE]
        .into_iter()
        .fold(rest.to_owned(), |text, mark| {
            text.replace(mark, &format!("${mark}"))
        });
    format!("{kept}{rest}")
}

fn short(name: &str) -> String {
    name.chars().take(40).collect()
}

/// Puts in what the client's environment says. All that is missing is told at once, and each name once.
fn resolve(value: &str, around: &Surroundings<'_>) -> Result<String, Vec<Problem>> {
    let is_secret = value.starts_with(SECRET);
    let (mut resolved, mut problems) = (String::new(), Vec::new());
    let mut rest = value;
    if is_secret {
        rest = &value[SECRET.len()..];
    }
    while let Some(position) = rest.find('$') {
        resolved.push_str(&rest[..position]);
        rest = dollar(&rest[position..], around, &mut resolved, &mut problems);
    }
    resolved.push_str(rest);
    if !problems.is_empty() {
        let mut told: Vec<Problem> = Vec::new();
        for problem in problems {
            if !told.contains(&problem) {
                told.push(problem);
            }
        }
        return Err(told);
    }
    Ok(match is_secret {
        true => format!("{SECRET}{resolved}"),
        false => as_text(resolved),
    })
}

/// Reads one `$` at the start of a text, and answers what follows.
fn dollar<'t>(
    text: &'t str,
    around: &Surroundings<'_>,
    resolved: &mut String,
    problems: &mut Vec<Problem>,
) -> &'t str {
    let after = &text[1..];
    let is_sent = matches!(around, Surroundings::Sent(Sender::Caller));
    let marks = [CLIENT, SECRET, BRACE];
    if let Some(mark) = marks.into_iter().find(|mark| after.starts_with(mark)) {
        resolved.push_str(mark);
        return &after[mark.len()..];
    }
    if after.starts_with('$') && !is_sent {
        resolved.push('$');
        return &after[1..];
    }
    if let Some(named) = text.strip_prefix(CLIENT) {
        return of_client(named, around, resolved, problems);
    }
    if text.starts_with(BRACE) {
        let end = text[1..].find('$').map_or(text.len(), |next| next + 1);
        // A default may hold a `$` of its own: the whole is read where it is one variable.
        let whole = variables::expression(text).unwrap_or(&text[..end]);
        match variables::resolve(whole, around) {
            Ok(filled) => resolved.push_str(&filled.text),
            Err(found) => problems.extend(found),
        }
        return &text[whole.len()..];
    }
    if let Some(name) = text.strip_prefix(SECRET)
        && !is_sent
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    {
        problems.push((
            format!("`{SECRET}` stands inside a longer text, where it is not replaced"),
            "a secret is the whole value: keep the whole text as the secret".into(),
        ));
    }
    resolved.push('$');
    after
}

/// `$E:NAME`, of which the mark has been read.
fn of_client<'t>(
    after: &'t str,
    around: &Surroundings<'_>,
    resolved: &mut String,
    problems: &mut Vec<Problem>,
) -> &'t str {
    let name = name_at_start(after);
    if name.is_empty() {
        if !resolved.is_empty() {
            resolved.push_str(CLIENT);
            return after;
        }
        let message = match after {
            "" => format!("`{CLIENT}` needs the name of a variable"),
            after => format!("{} is not the name of a variable", quoted(after)),
        };
        problems.push((
            message,
            "`$E:NAME` has letters, digits and `_`, and no digit first".into(),
        ));
        return "";
    }
    match around.variable(name) {
        Some(value) => resolved.push_str(&value),
        None => problems.push((
            format!("the environment variable `{}` is not set", short(name)),
            format!("set it where you run dhow: `export {}=…`", short(name)),
        )),
    }
    &after[name.len()..]
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

#[cfg(test)]
mod tests {
    use super::super::surroundings::{Client, FileProblem};
    use super::*;

    fn no_file(_: &str) -> Result<Vec<u8>, FileProblem> {
        Err(FileProblem {
            message: String::new(),
            hint: String::new(),
        })
    }

    fn written(value: &str) -> Result<String, Vec<Problem>> {
        let env = |name: &str| match name {
            "A" => Some("a".to_owned()),
            "SECRET" => Some("$S:db".to_owned()),
            _ => None,
        };
        let client = Client {
            env: &env,
            file: &no_file,
        };
        resolve(value, &Surroundings::Client(&client))
    }

    #[test]
    fn what_a_variable_holds_is_text() {
        for (value, expected) in [
            ("$E:A-${A}", "a-a"),
            ("$S:db", "$S:db"),
            ("$S:${A}", "$S:a"),
            ("${SECRET}", "$$S:db"),
            ("$E:SECRET", "$$S:db"),
            ("x${SECRET}", "x$S:db"),
            ("$$S:db", "$$S:db"),
            ("$$E:A $${A} $$", "$E:A ${A} $"),
            ("${NONE:-$5}", "$5"),
            ("5$ each", "5$ each"),
        ] {
            assert_eq!(written(value).as_deref(), Ok(expected), "{value}");
        }
        assert_eq!(written("$E:NONE${NONE}$E:NONE").unwrap_err().len(), 2);
        assert_eq!(written("x$S:db").unwrap_err().len(), 1);
    }

    #[test]
    fn what_is_sent_arrives_as_it_was() {
        let values = [
            "$S:db", "$$S:db", "$E:A", "${A}", "$$", "a$$b$", "x$S:db", "$$E:A", "$$${", "$$$S:x", "x$$S:y",
        ];
        for value in values {
            let sent = escaped(value);
            assert_eq!(
                resolve(&sent, &Surroundings::Sent(Sender::Caller)).as_deref(),
                Ok(value),
                "{sent}"
            );
        }
    }
}
