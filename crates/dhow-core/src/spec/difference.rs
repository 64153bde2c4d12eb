//! What differs between two specs of a service, in words for people. Values that may be passwords are not among them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FileKind, FileMount, ServiceSpec};

/// Parts of a name behind which a password may be.
const SECRET_WORDS: [&str; 11] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "KEY",
    "CREDENTIAL",
    "PRIVATE",
    "AUTH",
    "DSN",
    "PWD",
];
/// The longest value that is shown.
const SHOWN_CHARS_MAX: usize = 60;
/// Differences that are told; more are counted.
const TOLD_MAX: usize = 20;

/// Whether a variable of this name may hold a password.
fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word)) || name == "PASS" || name.ends_with("_PASS")
}

/// Whether a value has a password in it, whatever its variable is called: `postgres://shop:hunter2@db/shop`.
fn holds_password(value: Option<&Value>) -> bool {
    let Some(text) = value.and_then(Value::as_str) else {
        return false;
    };
    let address = text.split_once("://").map(|(_, rest)| rest);
    let server = address.and_then(|rest| rest.split(['/', '?', '#']).next());
    let is_in_address = server.is_some_and(|server| server.contains('@'));
    let lower = text.to_ascii_lowercase();
    is_in_address
        || ["password=", "passwd=", "pwd="]
            .iter()
            .any(|word| lower.contains(word))
}

/// What changes from `old` to `new`, one line each.
pub fn differences(old: &ServiceSpec, new: &ServiceSpec) -> Vec<String> {
    let fields = |spec: &ServiceSpec| match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        // A spec is always a map.
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (before, after) = (fields(old), fields(new));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut lines = Vec::new();
    for name in names {
        let (before, after) = (before.get(name), after.get(name));
        match name.as_str() {
            _ if before == after => {}
            "env" => variables(before, after, &mut lines),
            "configs" => files(FileKind::Config, &old.configs, &new.configs, &mut lines),
            "secrets" => files(FileKind::Secret, &old.secrets, &new.secrets, &mut lines),
            // How many there are is told by itself.
            "scale" => {}
            _ => lines.push(line(name, before, after)),
        }
    }
    if lines.len() > TOLD_MAX {
        let more = lines.len() - TOLD_MAX;
        lines.truncate(TOLD_MAX);
        lines.push(format!("{more} more"));
    }
    lines
}

fn line(name: &str, before: Option<&Value>, after: Option<&Value>) -> String {
    match (shown(before), shown(after)) {
        (Some(before), Some(after)) => format!("{name}: {before} -> {after}"),
        (None, _) | (_, None) => format!("{name} changes"),
    }
}

/// A short value of one piece.
fn shown(value: Option<&Value>) -> Option<String> {
    let text = match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other @ (Value::Bool(_) | Value::Number(_))) => other.to_string(),
        Some(Value::Array(_) | Value::Object(_)) => return None,
    };
    let is_short = text.chars().count() <= SHOWN_CHARS_MAX && !text.chars().any(char::is_control);
    is_short.then_some(text)
}

fn variables(before: Option<&Value>, after: Option<&Value>, lines: &mut Vec<String>) {
    let of = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, after) = (of(before), of(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (before, after) = (before.get(name), after.get(name));
        if before == after {
            continue;
        }
        lines.push(match (before, after) {
            (Some(_), Some(_)) if looks_secret(name) || holds_password(before) || holds_password(after) => {
                format!("env {name} changes (hidden)")
            }
            (Some(_), Some(_)) => line(&format!("env {name}"), before, after),
            (None, _) => format!("env {name} is new"),
            (_, None) => format!("env {name} goes"),
        });
    }
}

fn files(kind: FileKind, before: &[FileMount], after: &[FileMount], lines: &mut Vec<String>) {
    let word = kind.word();
    for mount in after {
        let name = &mount.source;
        let Some(old) = before
            .iter()
            .find(|old| old.source == *name && old.target == mount.target)
        else {
            lines.push(format!("{word} {name} is new"));
            continue;
        };
        if old == mount {
            continue;
        }
        let content = |mount: &FileMount| match kind {
            FileKind::Config => mount.content.map(|content| content.short()),
            FileKind::Secret => mount.version.map(|version| format!("version {version}")),
        };
        let bare = |mount: &FileMount| FileMount {
            content: None,
            version: None,
            ..mount.clone()
        };
        match (content(old), content(mount)) {
            (Some(old), Some(new)) if old != new => lines.push(format!("{word} {name}: {old} -> {new}")),
            (None, Some(_)) | (Some(_), None) => lines.push(format!("{word} {name} changes")),
            (_, _) => {}
        }
        if bare(old) != bare(mount) {
            lines.push(format!("how {word} {name} is mounted changes"));
        }
    }
    let gone = before
        .iter()
        .filter(|old| !after.iter().any(|mount| mount.source == old.source));
    lines.extend(gone.map(|old| format!("{word} {} goes", old.source)));
}

#[cfg(test)]
mod tests {
    use super::super::{ContentHash, ImageSpec};
    use super::*;

    #[test]
    fn what_may_be_a_password_is_not_shown() {
        for name in [
            "DB_PASSWORD",
            "apiKey",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASS",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["PORT", "LOG_LEVEL", "COMPASS", "PASSENGERS"] {
            assert!(!looks_secret(name), "{name}");
        }
        for value in [
            "postgres://shop:hunter2@db/shop",
            "Server=db;Password=hunter2",
            "amqp://guest@mq",
        ] {
            assert!(holds_password(Some(&value.into())), "{value}");
        }
        for value in [
            "postgres://db/shop?mail=a@b",
            "info",
            "a@b",
            "https://shop.example",
        ] {
            assert!(!holds_password(Some(&value.into())), "{value}");
        }
    }

    #[test]
    fn differences_are_told_one_by_one() {
        let mut old = ServiceSpec {
            image: Some(ImageSpec::named("shop:1")),
            ..ServiceSpec::default()
        };
        let env = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        old.env = env(&[("LEVEL", "info"), ("DB_PASSWORD", "hunter1"), ("OLD", "x")]);
        old.configs = vec![FileMount {
            source: "app".into(),
            content: Some(ContentHash::of(b"1")),
            ..FileMount::default()
        }];
        let mut new = old.clone();
        new.image = Some(ImageSpec::named("shop:2"));
        new.env = env(&[("LEVEL", "debug"), ("DB_PASSWORD", "hunter2"), ("NEW", "y")]);
        new.configs[0].content = Some(ContentHash::of(b"2"));
        new.priority = 60;
        let told = differences(&old, &new);
        let (one, two) = (ContentHash::of(b"1").short(), ContentHash::of(b"2").short());
        let config = format!("config app: {one} -> {two}");
        assert_eq!(
            told,
            [
                config.as_str(),
                "env DB_PASSWORD changes (hidden)",
                "env LEVEL: info -> debug",
                "env NEW is new",
                "env OLD goes",
                "image: shop:1 -> shop:2",
                "priority: 50 -> 60",
            ]
        );
        assert!(!told.join(" ").contains("hunter"));
        assert!(differences(&old, &old).is_empty());
    }
}
