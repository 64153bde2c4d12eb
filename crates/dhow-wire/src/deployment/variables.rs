//! `${NAME}` wherever a file has text, but in commands and in the content of configs: taken from the client's environment.
//! What comes out is not read again, so that a value may hold anything.

use dhow_core::spec::check::{PathPart, quoted};

use super::surroundings::{Sender, Surroundings};
use crate::document::{Decoder, Node, Scalar, ScalarStyle, Span, Value};

/// What is wrong with a text, and what to do.
pub(super) type Problem = (String, String);

/// A place in the document whose text is not looked at, as the keys that lead there; `*` is any.
const AS_WRITTEN: [&[&str]; 11] = [
    &["configs", "*", "content"],
    &["configs", "*", "content_base64"],
    &["services", "*", "command"],
    &["services", "*", "health", "check", "command"],
    &["services", "*", "replica_groups", "*", "command"],
    &["services", "*", "init", "*", "command"],
    &["services", "*", "init_steps", "*", "command"],
    // Variables have rules of their own.
    &["services", "*", "env"],
    &["services", "*", "replica_groups", "*", "env"],
    &["services", "*", "init", "*", "env"],
    &["services", "*", "init_steps", "*", "env"],
];

/// Whether what stands there is taken as it is written.
fn is_as_written(at: &[String]) -> bool {
    let is_key = |(key, at): (&&str, &String)| *key == "*" || key == at;
    let is_place = |place: &&[&str]| place.len() == at.len() && place.iter().zip(at).all(is_key);
    AS_WRITTEN.iter().any(is_place)
}

/// Puts the variables into a whole document.
pub(super) fn fill(decoder: &mut Decoder, root: &mut Node, around: &Surroundings<'_>) {
    fill_node(decoder, root, around, &mut Vec::new());
}

fn fill_node(decoder: &mut Decoder, node: &mut Node, around: &Surroundings<'_>, at: &mut Vec<String>) {
    if is_as_written(at) {
        return;
    }
    let span = node.span;
    match &mut node.value {
        Value::Scalar(scalar) => fill_scalar(decoder, span, scalar, around),
        Value::Sequence(items) => {
            for (position, item) in items.iter_mut().enumerate() {
                at.push(position.to_string());
                decoder.within(PathPart::Index(position), |decoder| {
                    fill_node(decoder, item, around, at)
                });
                at.pop();
            }
        }
        Value::Mapping(mapping) => {
            for entry in &mut mapping.entries {
                at.push(entry.key.to_string());
                let part = PathPart::Key(entry.key.to_string().into());
                decoder.within(part, |decoder| fill_node(decoder, &mut entry.value, around, at));
                at.pop();
            }
        }
    }
}

fn fill_scalar(decoder: &mut Decoder, span: Span, scalar: &mut Scalar, around: &Surroundings<'_>) {
    if !scalar.text.contains('$') {
        return;
    }
    match resolve(&scalar.text, around) {
        Ok(filled) => {
            let style = match filled.has_variables {
                true => ScalarStyle::Filled,
                false => scalar.style,
            };
            *scalar = Scalar {
                text: filled.text.into(),
                style,
            };
        }
        Err(problems) => fail(decoder, span, problems),
    }
}

pub(super) fn fail(decoder: &mut Decoder, span: Span, problems: Vec<Problem>) {
    for (message, hint) in problems {
        let _: Option<()> = decoder.fail(span, message, hint);
    }
}

/// A text with its variables put in.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Filled {
    pub text: String,
    pub has_variables: bool,
}

/// Puts the variables into one text, or says all that is missing, each name once.
pub(super) fn resolve(text: &str, around: &Surroundings<'_>) -> Result<Filled, Vec<Problem>> {
    let (mut filled, mut problems) = (Filled::default(), Vec::new());
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        let after = &rest[position + 1..];
        filled.text.push_str(&rest[..position]);
        rest = match around {
            Surroundings::Sent(Sender::Caller) => as_sent(after, &mut filled, &mut problems),
            Surroundings::Client(_) | Surroundings::Sent(Sender::Source) => {
                as_written(after, around, &mut filled, &mut problems)
            }
        };
    }
    filled.text.push_str(rest);
    match problems.is_empty() {
        true => Ok(filled),
        false => {
            problems.dedup();
            Err(problems)
        }
    }
}

/// What follows a `$` in a text that a caller of the API has sent: `$${` is how the command line writes a `${` that is
/// meant as it stands.
fn as_sent<'t>(after: &'t str, filled: &mut Filled, problems: &mut Vec<Problem>) -> &'t str {
    filled.text.push('$');
    if let Some(rest) = after.strip_prefix("${") {
        filled.text.push('{');
        return rest;
    }
    if after.starts_with('{') {
        problems.push(unresolved(after));
    }
    after
}

fn unresolved(after: &str) -> Problem {
    let shown: String = after.chars().take(24).take_while(|c| *c != '}').collect();
    (
        format!(
            "{} was left for somebody's environment, and here is none",
            quoted(&format!("${shown}}}"))
        ),
        "the command line puts variables in before it sends a file: use `dhow deploy`, or write the value"
            .into(),
    )
}

/// What follows a `$` in a text that somebody wrote.
fn as_written<'t>(
    after: &'t str,
    around: &Surroundings<'_>,
    filled: &mut Filled,
    problems: &mut Vec<Problem>,
) -> &'t str {
    if let Some(rest) = after.strip_prefix('$') {
        filled.text.push('$');
        return rest;
    }
    let Some(inside) = after.strip_prefix('{') else {
        filled.text.push('$');
        return after;
    };
    let Surroundings::Client(client) = around else {
        problems.push(unresolved(after));
        filled.text.push('$');
        return after;
    };
    filled.has_variables = true;
    let Some((expression, rest)) = until_brace(inside) else {
        problems.push((
            format!("{} has no closing brace", quoted(&format!("${after}"))),
            "write `${NAME}`, and `$$` for a `$` that is meant as it stands".into(),
        ));
        return "";
    };
    match evaluate(expression, client.env) {
        Ok(value) => filled.text.push_str(&value),
        Err(problem) if problems.contains(&problem) => {}
        Err(problem) => problems.push(problem),
    }
    rest
}

/// Up to the brace that closes it; a default may hold braces of its own in pairs.
fn until_brace(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (position, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((&text[..position], &text[position + 1..])),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The `${…}` that a text starts with, where it is whole.
pub(super) fn expression(text: &str) -> Option<&str> {
    let (inside, _) = until_brace(text.strip_prefix("${")?)?;
    text.get(..inside.len() + 3)
}

/// What stands between the braces.
fn evaluate(expression: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Problem> {
    let end = expression.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let (name, rest) = expression.split_at(end.unwrap_or(expression.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err((
            format!("{} names no variable", quoted(&format!("${{{expression}}}"))),
            "a name has letters, digits and `_`, and no digit first; `$$` is a `$` that is meant as it stands".into(),
        ));
    }
    let value = env(name);
    let or_empty = value.clone().filter(|value| !value.is_empty());
    let missing = |why: &str, said: &str| match said.is_empty() {
        true => (
            format!("the environment variable `{}` {why}", short(name)),
            format!(
                "set it where you run dhow (`export {0}=…`), or write `${{{0}:-DEFAULT}}`",
                short(name)
            ),
        ),
        false => (
            format!(
                "the environment variable `{}` {why}: {}",
                short(name),
                short(said)
            ),
            format!("set it where you run dhow: `export {}=…`", short(name)),
        ),
    };
    let (operator, word) = match rest.strip_prefix(':') {
        Some(after) => (
            after.chars().next().map(|c| (true, c)),
            after.get(1..).unwrap_or_default(),
        ),
        None => (
            rest.chars().next().map(|c| (false, c)),
            rest.get(1..).unwrap_or_default(),
        ),
    };
    match operator {
        None if rest.is_empty() => value.ok_or_else(|| missing("is not set", "")),
        Some((true, '-')) => Ok(or_empty.unwrap_or_else(|| word.to_owned())),
        Some((false, '-')) => Ok(value.unwrap_or_else(|| word.to_owned())),
        Some((true, '?')) => or_empty.ok_or_else(|| missing("is not set or empty", word)),
        Some((false, '?')) => value.ok_or_else(|| missing("is not set", word)),
        Some((true, '+')) => Ok(or_empty.map(|_| word.to_owned()).unwrap_or_default()),
        Some((false, '+')) => Ok(value.map(|_| word.to_owned()).unwrap_or_default()),
        None | Some(_) => Err((
            format!(
                "{} is not how a variable is written",
                quoted(&format!("${{{expression}}}"))
            ),
            "write `${NAME}`, `${NAME:-default}`, `${NAME:?message}` or `${NAME:+instead}`".into(),
        )),
    }
}

fn short(text: &str) -> String {
    text.chars().take(80).filter(|c| !c.is_control()).collect()
}

/// Writes every text of a document so that whoever reads it as sent gets it as it is.
pub(super) fn escape(value: &mut serde_json::Value) {
    escape_at(value, &mut Vec::new());
}

fn escape_at(value: &mut serde_json::Value, at: &mut Vec<String>) {
    // The values of variables are written by the rules of their own.
    if is_as_written(at) {
        return;
    }
    match value {
        serde_json::Value::String(text) => *text = escaped(text),
        serde_json::Value::Array(items) => {
            for (position, item) in items.iter_mut().enumerate() {
                at.push(position.to_string());
                escape_at(item, at);
                at.pop();
            }
        }
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                at.push(key.clone());
                escape_at(value, at);
                at.pop();
            }
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use super::super::surroundings::{Client, FileProblem};
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "TAG" => Some("1.27".into()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("${TAG} $$ $S:x".into()),
            _ => None,
        }
    }

    fn no_file(_: &str) -> Result<Vec<u8>, FileProblem> {
        Err(FileProblem {
            message: String::new(),
            hint: String::new(),
        })
    }

    fn written(text: &str) -> Result<String, Vec<Problem>> {
        let client = Client {
            env: &env,
            file: &no_file,
        };
        resolve(text, &Surroundings::Client(&client)).map(|filled| filled.text)
    }

    #[test]
    fn variables_are_put_in_and_not_read_again() {
        for (text, expected) in [
            ("nginx:${TAG}", "nginx:1.27"),
            ("${NONE:-a}${NONE-b}${TAG:-c}", "ab1.27"),
            ("${EMPTY:-full}|${EMPTY-full}|${EMPTY}", "full||"),
            ("${TAG:+set}${NONE:+set}${EMPTY:+set}${EMPTY+set}", "setset"),
            ("${TAG:?never}", "1.27"),
            ("$$ $${TAG} $TAG 5$ $", "$ ${TAG} $TAG 5$ $"),
            ("${ODD}", "${TAG} $$ $S:x"),
            ("${NONE:-{a}}", "{a}"),
        ] {
            assert_eq!(written(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_told_all_at_once() {
        let problems = written("${NONE}${NONE}${OTHER:?say which}${EMPTY:?full}").unwrap_err();
        let messages: Vec<&str> = problems.iter().map(|(message, _)| message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "the environment variable `NONE` is not set",
                "the environment variable `OTHER` is not set or empty: say which",
                "the environment variable `EMPTY` is not set or empty: full",
            ]
        );
        for bad in ["${", "${}", "${1A}", "${A B}", "${A:x}", "${A:"] {
            assert_eq!(written(bad).unwrap_err().len(), 1, "{bad}");
        }
    }

    #[test]
    fn what_is_sent_is_taken_as_it_is() {
        for text in ["$", "$$", "a$$b", "$HOME", "${TAG}", "$${x}", "$$${", "}${"] {
            let sent = escaped(text);
            let read = resolve(&sent, &Surroundings::Sent(Sender::Caller)).unwrap();
            assert_eq!((read.text.as_str(), read.has_variables), (text, false));
        }
        for sender in [Sender::Caller, Sender::Source] {
            let refused = resolve("a${TAG:-1}", &Surroundings::Sent(sender)).unwrap_err();
            assert!(refused[0].0.contains("`${TAG:-1}`"), "{refused:?}");
        }
        let source = resolve("5$$", &Surroundings::Sent(Sender::Source)).unwrap();
        assert_eq!(source.text, "5$");
    }
}
