//! `$NAME` and `${NAME}` in values: put in before anything is made of them, and not read again.

use std::collections::BTreeSet;

use dhow_wire::document::{Scalar, ScalarStyle};

use crate::item::{Item, Tree};
use crate::report::Report;

/// How deep a word of `${A:-${B}}` may be nested.
const NESTED_MAX: usize = 8;

/// Puts the variables into a tree. What is not set is told once for each name.
pub(crate) fn fill(
    item: &mut Item,
    env: &dyn Fn(&str) -> Option<String>,
    unset: &mut BTreeSet<String>,
    report: &mut Report,
) {
    let place = item.place;
    match &mut item.value {
        Tree::Scalar(scalar) if scalar.text.contains('$') => match text(&scalar.text, env) {
            Ok(filled) => {
                for name in filled.unset {
                    if unset.insert(name.clone()) {
                        report.note(place, not_set(&name));
                    }
                }
                *scalar = Scalar {
                    text: filled.text.into(),
                    style: match filled.has_variables {
                        true => ScalarStyle::Filled,
                        false => scalar.style,
                    },
                };
            }
            Err((message, hint)) => report.refuse(place, "", message, hint),
        },
        Tree::Scalar(_) => {}
        Tree::List(items) => items.iter_mut().for_each(|item| fill(item, env, unset, report)),
        Tree::Map(fields) => {
            for field in fields {
                fill(&mut field.value, env, unset, report);
            }
        }
    }
}

/// What is said of a variable that is not set.
pub(crate) fn not_set(name: &str) -> String {
    format!("`{name}` is not set: it is empty here; write `$$` for a `$` that is meant as it stands")
}

/// A text with its variables put in.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Filled {
    pub text: String,
    pub unset: Vec<String>,
    has_variables: bool,
}

type Problem = (String, String);

pub(crate) fn text(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Filled, Problem> {
    let mut filled = Filled::default();
    put(text, env, &mut filled, 0)?;
    Ok(filled)
}

fn put(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    filled: &mut Filled,
    depth: usize,
) -> Result<(), Problem> {
    if depth > NESTED_MAX {
        return Err((
            format!("variables are nested deeper than {NESTED_MAX} levels"),
            "write the value".into(),
        ));
    }
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        filled.text.push_str(&rest[..position]);
        let after = &rest[position + 1..];
        if let Some(after) = after.strip_prefix('$') {
            filled.text.push('$');
            rest = after;
        } else if let Some(inner) = after.strip_prefix('{') {
            let Some(end) = closing(inner) else {
                let shown: String = inner.chars().take(24).collect();
                let hint = "add the `}`, or write `$$` for a `$`";
                return Err((format!("`${{{shown}` is never closed"), hint.into()));
            };
            braced(&inner[..end], env, filled, depth)?;
            rest = &inner[end + 1..];
        } else {
            let length = name_length(after);
            // A hash of a password may stand as the word for what is not set.
            if length == 0 && depth > 0 {
                filled.text.push('$');
                rest = after;
                continue;
            }
            if length == 0 {
                let hint = "write `$$` for a `$` that is meant as it stands";
                return Err(("no name follows this `$`".into(), hint.into()));
            }
            let (name, after) = after.split_at(length);
            plain(name, env, filled);
            rest = after;
        }
    }
    filled.text.push_str(rest);
    Ok(())
}

fn plain(name: &str, env: &dyn Fn(&str) -> Option<String>, filled: &mut Filled) {
    filled.has_variables = true;
    match env(name) {
        Some(value) => filled.text.push_str(&value),
        None => filled.unset.push(name.to_owned()),
    }
}

fn braced(
    inner: &str,
    env: &dyn Fn(&str) -> Option<String>,
    filled: &mut Filled,
    depth: usize,
) -> Result<(), Problem> {
    let (name, rule) = inner.split_at(name_length(inner));
    let known = ["", ":-", "-", ":?", "?", ":+", "+"];
    let mark = known
        .iter()
        .rev()
        .find(|mark| !mark.is_empty() && rule.starts_with(**mark));
    if name.is_empty() || (mark.is_none() && !rule.is_empty()) {
        let shown: String = inner.chars().take(40).collect();
        let hint = "write `${NAME}`, `${NAME:-word}`, `${NAME:?message}` or `${NAME:+word}`; `$$` is a `$`";
        return Err((format!("`${{{shown}}}` is no variable"), hint.into()));
    }
    filled.has_variables = true;
    let value = env(name);
    let mark = mark.copied().unwrap_or_default();
    let word = &rule[mark.len()..];
    let counts = match mark.starts_with(':') {
        true => value.clone().filter(|value| !value.is_empty()),
        false => value.clone(),
    };
    match (mark.trim_start_matches(':'), counts) {
        ("-", None) | ("+", Some(_)) => put(word, env, filled, depth + 1),
        ("+", None) => Ok(()),
        ("?", None) => {
            let mut message = Filled::default();
            put(word, env, &mut message, depth + 1)?;
            let said = match message.text.as_str() {
                "" => format!("`{name}` is required and not set"),
                text => format!("`{name}` is required and not set: {text}"),
            };
            Err((
                said,
                format!("set it in the environment or in `.env`: `{name}=…`"),
            ))
        }
        ("" | "-" | "?", Some(value)) => {
            filled.text.push_str(&value);
            Ok(())
        }
        (_, _) => {
            plain(name, env, filled);
            Ok(())
        }
    }
}

fn name_length(text: &str) -> usize {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match starts {
        true => text.find(|c: char| !fits(c)).unwrap_or(text.len()),
        false => 0,
    }
}

/// Where the brace that was opened before this text closes.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0usize;
    let mut before = ' ';
    for (position, c) in text.char_indices() {
        match c {
            '{' if before == '$' => open += 1,
            '}' if open == 0 => return Some(position),
            '}' => open -= 1,
            _ => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::text;

    fn filled(written: &str) -> Result<String, String> {
        let env = |name: &str| match name {
            "TAG" => Some("1.27".to_owned()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("${TAG} $$".to_owned()),
            _ => None,
        };
        text(written, &env)
            .map(|filled| filled.text)
            .map_err(|(message, _)| message)
    }

    #[test]
    fn all_forms() {
        for (written, expected) in [
            ("nginx:$TAG", "nginx:1.27"),
            ("${TAG}x", "1.27x"),
            ("$TAGx", ""),
            ("a$$b", "a$b"),
            ("$${TAG}", "${TAG}"),
            ("${GONE}", ""),
            ("${GONE:-word}", "word"),
            ("${EMPTY:-word}", "word"),
            ("${EMPTY-word}", ""),
            ("${GONE-${TAG}}", "1.27"),
            ("${GONE:-${GONE:-deep}}}", "deep}"),
            ("${TAG:+set}", "set"),
            ("${EMPTY:+set}", ""),
            ("${EMPTY+set}", "set"),
            ("${GONE+set}", ""),
            ("${TAG:?no}", "1.27"),
            ("${EMPTY?no}", ""),
            // What comes out is not read again.
            ("${ODD}", "${TAG} $$"),
            ("${GONE:-a:b?c}", "a:b?c"),
            ("${GONE:-$2a$14$1l}", "$2a$14$1l"),
        ] {
            assert_eq!(filled(written).as_deref(), Ok(expected), "{written}");
        }
    }

    #[test]
    fn what_is_wrong() {
        for (written, message) in [
            ("${GONE:?say so}", "`GONE` is required and not set: say so"),
            ("${EMPTY:?}", "`EMPTY` is required and not set"),
            ("${TAG", "`${TAG` is never closed"),
            ("${TAG/a/b}", "`${TAG/a/b}` is no variable"),
            ("a $ b", "no name follows this `$`"),
            ("${}", "`${}` is no variable"),
        ] {
            assert_eq!(filled(written), Err(message.to_owned()), "{written}");
        }
    }
}
