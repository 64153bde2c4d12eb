//! The deployment file's language as a table: every block, its fields, their kinds, defaults and meanings. JSON Schema is
//! made from it; docs/deployment-file.md has the same rows, and tests compare it with the page and with the readers.

mod blocks;

use serde_json::{Map, Value, json};

use blocks::{BLOCKS, Block, Field};

/// What a field takes.
enum Kind {
    Text,
    Flag,
    Integer(u64, u64),
    Number,
    Duration,
    Size,
    Words(&'static [&'static str]),
    List(&'static Kind),
    Map(&'static Kind),
    Block(&'static str),
    Any(&'static [Kind]),
}

/// The JSON Schema of a deployment file, by which editors complete and check.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    for block in BLOCKS {
        definitions.insert(block.name.to_owned(), of_block(block));
    }
    let mut schema = definitions.remove("file").unwrap_or_default();
    if let Value::Object(fields) = &mut schema {
        fields.insert(
            "$schema".into(),
            "https://json-schema.org/draft/2020-12/schema".into(),
        );
        fields.insert("title".into(), "Dhow deployment file".into());
        fields.insert("$defs".into(), Value::Object(definitions));
    }
    schema
}

fn of_block(block: &Block) -> Value {
    let mut properties = Map::new();
    for field in block.fields {
        properties.insert(field.name.to_owned(), of_field(field));
    }
    let required: Vec<&str> = block
        .fields
        .iter()
        .filter(|field| field.default == "required")
        .map(|field| field.name)
        .collect();
    json!({
        "type": "object",
        "description": block.text,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn of_field(field: &Field) -> Value {
    let mut schema = of_kind(&field.kind);
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".into(), field.text.into());
        let written = serde_json::from_str::<Value>(field.default).unwrap_or_else(|_| field.default.into());
        match field.default {
            "required" | "" => {}
            // A default that depends on others is told in words.
            text if text.starts_with('(') => {}
            _ => {
                fields.insert("default".into(), written);
            }
        }
    }
    schema
}

fn of_kind(kind: &Kind) -> Value {
    let variable = json!({ "type": "string", "pattern": r"\$\{" });
    match kind {
        Kind::Text => json!({ "type": ["string", "number", "boolean"] }),
        Kind::Flag => json!({ "anyOf": [{ "type": "boolean" }, variable] }),
        Kind::Integer(min, max) => {
            json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, variable] })
        }
        Kind::Number => json!({ "anyOf": [{ "type": "number" }, { "type": "string" }] }),
        Kind::Duration => json!({ "type": ["string", "integer"], "examples": ["500ms", "10s", "5m"] }),
        Kind::Size => json!({ "type": ["string", "integer"], "examples": ["64Mi", "2Gi"] }),
        Kind::Words(words) => json!({ "anyOf": [{ "enum": words }, variable] }),
        Kind::List(of) => json!({ "type": "array", "items": of_kind(of) }),
        Kind::Map(of) => json!({ "type": "object", "additionalProperties": of_kind(of) }),
        Kind::Block(name) => json!({ "$ref": format!("#/$defs/{name}") }),
        Kind::Any(kinds) => json!({ "anyOf": kinds.iter().map(of_kind).collect::<Vec<_>>() }),
    }
}
