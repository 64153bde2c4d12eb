//! docs/deployment-file.md, the schema that `dhow schema` prints and the readers of the language know the same fields; so do
//! docs/configuration.md and the readers of the configuration. What pages show of deployment files has no other fields either.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A field of a block: its name, its default as the page shows it, and what it is.
type Field = (String, Option<String>, String);

/// Each block with its fields.
fn blocks() -> Vec<(String, Vec<Field>)> {
    let schema = dhow_wire::deployment::schema();
    let fields = |block: &Value| {
        let properties = block["properties"].as_object().unwrap();
        let required: Vec<&str> = block["required"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let field = |(name, field): (&String, &Value)| {
            let default = match field.get("default") {
                _ if required.contains(&name.as_str()) => Some("**required**".to_owned()),
                Some(Value::String(text)) => Some(format!("`{text}`")),
                Some(other) => Some(format!("`{other}`")),
                None => None,
            };
            (
                name.clone(),
                default,
                field["description"].as_str().unwrap().to_owned(),
            )
        };
        properties.iter().map(field).collect()
    };
    let mut blocks = vec![("file".to_owned(), fields(&schema))];
    let rest = schema["$defs"].as_object().unwrap();
    blocks.extend(rest.iter().map(|(name, block)| (name.clone(), fields(block))));
    blocks
}

#[test]
fn the_page_has_every_field_and_no_other() {
    let page = fs::read_to_string(root().join("docs/deployment-file.md")).unwrap();
    let (_, tables) = page.split_once("## Fields").unwrap();
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in tables.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            sections.push((name, Vec::new()));
        } else if line.starts_with("| `") {
            sections.last_mut().unwrap().1.push(line);
        }
    }
    let blocks = blocks();
    assert_eq!(sections.len(), blocks.len());
    for (name, fields) in blocks {
        let (_, rows) = sections
            .iter()
            .find(|(section, _)| *section == name)
            .unwrap_or_else(|| panic!("no section {name}"));
        assert_eq!(rows.len(), fields.len(), "rows of {name}");
        for (field, default, text) in fields {
            let row = rows.iter().find(|row| row.starts_with(&format!("| `{field}` |")));
            let row = row.unwrap_or_else(|| panic!("{name} has no row for {field}"));
            assert!(row.ends_with(&format!("| {text} |")), "{name}.{field}: {row}");
            if let Some(default) = default {
                assert!(
                    row.contains(&format!("| {default} |")),
                    "{name}.{field} is {default}: {row}"
                );
            }
        }
    }
}

/// Names that the readers of a language ask for, whose code is in this module of `dhow-wire`.
fn asked_for(module: &str) -> BTreeSet<String> {
    let folder = root().join("crates/dhow-wire/src").join(module);
    let mut files = vec![folder.with_extension("rs")];
    files.extend(
        fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file()),
    );
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for call in ["optional(", "required(", ".or(", "optional_or_say("] {
            for (position, _) in code.match_indices(call) {
                let rest = code[position + call.len()..].trim_start();
                if let Some((name, _)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                    names.insert(name.to_owned());
                }
            }
        }
    }
    names
}

#[test]
fn the_readers_know_every_field_and_no_other() {
    let named: BTreeSet<String> = blocks()
        .into_iter()
        .flat_map(|(_, fields)| fields)
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(asked_for("deployment"), named);
}

/// What stands between backticks, in a line or in a block, as words.
fn words_of_code(page: &str) -> BTreeSet<&str> {
    page.split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|code| code.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_'))
        .collect()
}

#[test]
fn the_page_of_the_configuration_has_every_key_and_no_other() {
    let page = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    // The fences of blocks are three backticks: as one they stay a pair.
    let page = page.replace("```", "`");
    let asked_for = asked_for("config");
    let told = words_of_code(&page);
    let untold: Vec<&String> = asked_for
        .iter()
        .filter(|name| !told.contains(name.as_str()))
        .collect();
    assert!(
        untold.is_empty(),
        "docs/configuration.md does not have {untold:?}"
    );
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    for (key, _) in rows {
        if key
            .chars()
            .all(|c| c.is_ascii_lowercase() || "_.0123456789".contains(c))
        {
            let name = key.rsplit('.').next().unwrap_or(key);
            assert!(
                asked_for.contains(name),
                "no reader knows `{key}` of docs/configuration.md"
            );
        }
    }
}

/// What pages show of deployment files, each as a whole file: of some there are only the services, one of them, or some of
/// its fields.
fn shown_files() -> Vec<(PathBuf, String)> {
    const BEGIN: &str = "version: v1\ndeployment: docs\n";
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.push(root().join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    let mut shown = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let whole = if block.starts_with("version:") {
                block.to_owned()
            } else if block.starts_with("services:") || block.starts_with("configs:") {
                format!("{BEGIN}{block}")
            } else if block.starts_with("    ") {
                format!("{BEGIN}services:\n  shown:\n{block}")
            } else if block.starts_with("  ") {
                format!("{BEGIN}services:\n{block}")
            } else {
                continue;
            };
            shown.push((page.clone(), whole));
        }
    }
    shown
}

#[test]
fn deployment_files_on_pages_have_only_fields_that_there_are() {
    let shown = shown_files();
    assert!(shown.len() > 8, "the pages show only {}", shown.len());
    for (page, text) in shown {
        let Err(findings) = dhow_wire::deployment::parse_deployment(&text, "shown", &|_| None) else {
            continue;
        };
        // What is left out on a page, or stands in a file beside it, is missing here.
        let told = findings.to_string();
        let is_wrong = |line: &&str| {
            line.starts_with("error")
                && [" is not a field of ", " cannot be "]
                    .iter()
                    .any(|said| line.contains(said))
        };
        let wrong: Vec<&str> = told.lines().filter(is_wrong).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}\n{text}", page.display());
    }
}
