//! Variables of a service: `environment` over `env_file`.

use std::collections::BTreeMap;

use crate::PathKind;
use crate::dotenv;
use crate::interpolate;
use crate::item::Item;
use crate::service::Reader;

/// A value that is text, whatever it looks like: what begins as the name of a secret has one `$` more.
fn as_text(value: String) -> String {
    match value.starts_with("$S:") || value.starts_with("$$S:") {
        true => format!("${value}"),
        false => value,
    }
}

pub(crate) fn read(reader: &mut Reader<'_, '_>, service: &Item) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    if let Some(item) = service.get("env_file") {
        let own = [item.clone()];
        for entry in item.items().unwrap_or(&own) {
            env.extend(env_file(reader, entry).unwrap_or_default());
        }
    }
    if let Some(item) = service.get("environment") {
        reader.at(&["env"], item.place);
        for (name, value, place) in reader.pairs(item, "environment") {
            reader.at(&["env", &name], place);
            let (variables, around) = (reader.variables, reader.around);
            match value.or_else(|| variables.get(around, &name)) {
                Some(value) => env.insert(name, as_text(value)),
                None => env.remove(&name),
            };
        }
    }
    env
}

fn env_file(reader: &mut Reader<'_, '_>, entry: &Item) -> Option<BTreeMap<String, String>> {
    reader.known(entry, "env_file", &["path", "required", "format"]);
    let path = match entry.fields() {
        Some(_) => match entry.get("path") {
            Some(path) => reader.text(path, "env_file")?,
            None => reader.refuse(
                entry.place,
                "env_file",
                "this names no `path`",
                "write `path: app.env`",
            )?,
        },
        None => reader.text(entry, "env_file")?,
    };
    let required = match entry.get("required") {
        Some(item) => reader.flag(item, "env_file")?,
        None => true,
    };
    let form = match entry.get("format").and_then(Item::text) {
        Some("raw") => dotenv::Form::Raw,
        Some(_) | None => dotenv::Form::Usual,
    };
    let whole = reader.report.base(entry.place).join(&path);
    if !required && (reader.around.kind)(&whole) == PathKind::Nothing {
        return None;
    }
    let bytes = match (reader.around.file)(&whole) {
        Ok(bytes) => bytes,
        Err(problem) => reader.refuse(entry.place, "env_file", problem.message, problem.hint)?,
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => reader.refuse(
            entry.place,
            "env_file",
            format!("{path} is not text in UTF-8"),
            "save it as UTF-8",
        )?,
    };
    let (variables, around) = (reader.variables, reader.around);
    match dotenv::parse(&text, form, &|name| variables.get(around, name)) {
        Ok(found) => {
            for (name, line) in found.unset {
                let message = format!("line {line} of {path}: {}", interpolate::not_set(&name));
                reader.note(entry.place, message);
            }
            let values = found.values.into_iter();
            Some(values.map(|(name, value)| (name, as_text(value))).collect())
        }
        Err(problem) => {
            let message = format!("line {} of {path}: {}", problem.line, problem.message);
            reader.refuse(entry.place, "env_file", message, "")
        }
    }
}
