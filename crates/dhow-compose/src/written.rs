//! A deployment as the file that a person would have written: without what every reader fills in by itself.

use std::fmt::Write;

use dhow_core::spec::{DeploymentSpec, HealthSpec, ServiceSpec};
use serde_json::{Map, Value};

/// Fields of a service that people look for first.
const FIRST: [&str; 12] = [
    "rtype",
    "image",
    "command",
    "env",
    "endpoints",
    "image_ports",
    "scale",
    "depends",
    "health",
    "restart",
    "storage",
    "configs",
];

/// The file's text. It reads back to the same deployment.
pub fn write_file(spec: &DeploymentSpec) -> Result<String, serde_json::Error> {
    let mut text = format!("version: v1\ndeployment: {}\n", spec.deployment);
    if !spec.configs.is_empty() {
        text.push_str("configs:\n");
        for (name, config) in &spec.configs {
            field(&mut text, 2, name, &serde_json::to_value(config)?);
        }
    }
    text.push_str("services:\n");
    for (name, service) in &spec.services {
        let mut value = without_defaults(service)?;
        escape(&mut value, &mut Vec::new());
        field(&mut text, 2, name.as_str(), &value);
    }
    Ok(text)
}

fn without_defaults(service: &ServiceSpec) -> Result<Value, serde_json::Error> {
    let plain = serde_json::to_value(ServiceSpec::default())?;
    let mut value = serde_json::to_value(service)?;
    prune(&mut value, &plain);
    let Value::Object(fields) = &mut value else {
        return Ok(value);
    };
    if service.no_new_privileges == Some(!service.privileged) {
        fields.remove("no_new_privileges");
    }
    if let Some(health) = &service.health {
        let plain = serde_json::to_value(HealthSpec::of(health.check.clone()))?;
        if let Some(Value::Object(own)) = fields.get_mut("health") {
            own.retain(|key, value| key == "check" || plain.get(key) != Some(value));
        }
    }
    for endpoint in fields
        .get_mut("endpoints")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Value::Object(fields) = endpoint
            && fields.get("expose") == Some(&Value::from("internal"))
        {
            fields.remove("expose");
        }
    }
    Ok(value)
}

/// Takes away what says the same as the default.
fn prune(value: &mut Value, plain: &Value) {
    let (Value::Object(fields), Value::Object(plain)) = (value, plain) else {
        return;
    };
    fields.retain(|key, value| match plain.get(key) {
        Some(plain) if plain == value => false,
        Some(plain @ Value::Object(_)) => {
            prune(value, plain);
            true
        }
        Some(_) | None => true,
    });
}

/// `$` is written `$$` where a reader would look for variables.
fn escape(value: &mut Value, at: &mut Vec<String>) {
    let path: Vec<&str> = at.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["command"] | ["health", "check", "command"] => return,
        ["env"] => {
            for value in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
                if let Value::String(text) = value {
                    // The mark of text that looks like a secret is kept as it is.
                    let kept = if text.starts_with("$$S:") { 4 } else { 0 };
                    *text = format!("{}{}", &text[..kept], text[kept..].replace('$', "$$"));
                }
            }
            return;
        }
        _ => {}
    }
    match value {
        Value::String(text) => *text = text.replace('$', "$$"),
        Value::Array(items) => items.iter_mut().for_each(|item| {
            at.push("-".into());
            escape(item, at);
            at.pop();
        }),
        Value::Object(fields) => {
            for (key, value) in fields {
                at.push(key.clone());
                escape(value, at);
                at.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn field(text: &mut String, indent: usize, key: &str, value: &Value) {
    // Writing to a text cannot fail.
    let _ = write!(text, "{:indent$}{}:", "", word(key));
    match value {
        Value::Object(fields) if !fields.is_empty() && !is_short(value) => {
            text.push('\n');
            let rank = |key: &str| {
                FIRST
                    .iter()
                    .position(|first| *first == key)
                    .unwrap_or(FIRST.len())
            };
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            if indent == 2 {
                sorted.sort_by_key(|(key, _)| rank(key));
            }
            for (key, value) in sorted {
                field(text, indent + 2, key, value);
            }
        }
        Value::Array(items) if !items.is_empty() && !is_short(value) => {
            text.push('\n');
            for item in items {
                let _ = writeln!(text, "{:indent$}  - {}", "", flow(item));
            }
        }
        Value::String(lines) if is_block(lines) => {
            text.push_str(" |\n");
            for line in lines.lines() {
                match line.is_empty() {
                    true => text.push('\n'),
                    false => {
                        let _ = writeln!(text, "{:indent$}  {line}", "");
                    }
                }
            }
        }
        other => {
            let _ = writeln!(text, " {}", flow(other));
        }
    }
}

/// Whether it fits on the line of its key. Variables stand below each other whatever they are.
fn is_short(value: &Value) -> bool {
    const LINE_CHARS_MAX: usize = 72;
    let is_flat = |value: &Value| !value.is_object() && !value.is_array();
    let shown = flow(value);
    let is_plain = match value {
        Value::Object(fields) => fields.len() <= 3 && fields.values().all(is_flat),
        Value::Array(items) => items.iter().all(is_flat),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    is_plain && shown.chars().count() <= LINE_CHARS_MAX
}

/// Whether a text can stand as a block of lines.
fn is_block(text: &str) -> bool {
    let is_plain = |line: &str| !line.chars().any(char::is_control) && !line.ends_with([' ', '\t']);
    text.len() > 1
        && text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n', '\t'])
        && text.matches('\n').count() > 1
        && text.split('\n').all(is_plain)
        && !text.contains(['\u{feff}', '\u{85}', '\u{2028}', '\u{2029}'])
}

fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => word(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".into(),
        Value::Object(fields) => {
            let pairs: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", word(key), flow(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

/// A text as it stands where it can be nothing else, otherwise in quotes.
fn word(text: &str) -> String {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '-' | '@' | '+');
    let is_word =
        !["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_ascii_lowercase().as_str());
    // `a:1` is a text, `a: 1` and `a:` are not.
    let has_colon = text.ends_with(':');
    if starts && is_word && !has_colon && text.chars().all(|c| fits(c) || c == ':') {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            // What a reader of YAML, or a terminal, takes for something else.
            c if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{feff}' | '\u{85}') => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
