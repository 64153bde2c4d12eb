//! Configs and secrets: at the top, and as services see them.

use dhow_core::spec::check::secret_name_problem;
use dhow_core::spec::{ConfigSpec, FileMode, FileMount, ServiceSpec};

use crate::item::Item;
use crate::load::Variables;
use crate::project::ProjectParts;
use crate::report::Report;
use crate::service::Reader;
use crate::{Around, SecretValue};

/// A config or a secret of the top level.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Config,
    Secret,
}

impl Kind {
    fn section(self) -> &'static str {
        match self {
            Self::Config => "configs",
            Self::Secret => "secrets",
        }
    }
}

/// Whoever uses it first has it read.
fn content(
    kind: Kind,
    name: &str,
    item: &Item,
    variables: &Variables,
    around: &Around<'_>,
    report: &mut Report,
) -> Option<Vec<u8>> {
    let at = format!("{}.{name}", kind.section());
    if let Some(file) = item.get("file").and_then(Item::text) {
        let path = report.base(item.place).join(file);
        return match (around.file)(&path) {
            Ok(bytes) => Some(bytes),
            Err(problem) => {
                report.refuse(item.place, &at, problem.message, problem.hint);
                None
            }
        };
    }
    if let Some(variable) = item.get("environment").and_then(Item::text) {
        let value = variables.get(around, variable);
        if value.is_none() {
            report.refuse(
                item.place,
                &at,
                format!("`{variable}` is not set"),
                "set it in the environment",
            );
        }
        return value.map(String::into_bytes);
    }
    if let Some(content) = item.get("content").and_then(Item::text) {
        return Some(content.as_bytes().to_vec());
    }
    report.refuse(
        item.place,
        &at,
        format!("`{name}` has no content"),
        "write `file`, `environment` or `content`",
    );
    None
}

pub(crate) fn read(
    reader: &mut Reader<'_, '_>,
    service: &Item,
    spec: &mut ServiceSpec,
    shared: &mut ProjectParts<'_>,
) {
    for kind in [Kind::Config, Kind::Secret] {
        let section = kind.section();
        for item in service.get(section).and_then(Item::items).unwrap_or_default() {
            let Some(mount) = mount(reader, item, kind, shared) else {
                continue;
            };
            let list = match kind {
                Kind::Config => &mut spec.configs,
                Kind::Secret => &mut spec.secrets,
            };
            reader.at(&[section, &list.len().to_string()], item.place);
            list.push(mount);
        }
    }
}

fn mount(
    reader: &mut Reader<'_, '_>,
    item: &Item,
    kind: Kind,
    shared: &mut ProjectParts<'_>,
) -> Option<FileMount> {
    let section = kind.section();
    reader.known(item, section, &["source", "target", "uid", "gid", "mode"]);
    let name = match item.fields() {
        Some(_) => item.get("source").and_then(Item::text),
        None => item.text(),
    };
    let Some(name) = name.map(str::to_owned) else {
        return reader.refuse(
            item.place,
            section,
            "this names no source",
            "write `- NAME` or `source: NAME`",
        );
    };
    let Some(top) = shared.top(section, &name) else {
        let hint = format!("add it at the top: `{section}: {{ {name}: {{ file: ./{name} }} }}`");
        return reader.refuse(
            item.place,
            section,
            format!("there is no `{name}` in `{section}`"),
            hint,
        );
    };
    let source = define(reader, kind, &name, top, shared)?;
    let number =
        |reader: &mut Reader<'_, '_>, key: &str| item.get(key).and_then(|item| reader.number(item, section));
    let mode = item.get("mode").and_then(|item| {
        let mode = item.text().and_then(FileMode::parse);
        mode.or_else(|| {
            reader.refuse(
                item.place,
                section,
                format!("{} is no mode", item.shown()),
                "such as `0440`",
            )
        })
    });
    let target = item.get("target").and_then(Item::text).map(str::to_owned);
    let default = (kind == Kind::Secret).then_some(name);
    Some(FileMount {
        source,
        target: target.or(default),
        mode,
        uid: number(reader, "uid"),
        gid: number(reader, "gid"),
        ..FileMount::default()
    })
}

/// Makes a config or a secret known, and says its name here.
fn define(
    reader: &mut Reader<'_, '_>,
    kind: Kind,
    name: &str,
    top: &Item,
    shared: &mut ProjectParts<'_>,
) -> Option<String> {
    let at = format!("{}.{name}", kind.section());
    let is_external = top
        .get("external")
        .is_some_and(|item| item.text() != Some("false"));
    let given = top.get("name").and_then(Item::text);
    if let Some(driver) = top.get("driver").or_else(|| top.get("template_driver")) {
        reader.report.refuse(
            driver.place,
            &at,
            "there are no drivers of secrets",
            "write `file` or `environment`",
        );
        return None;
    }
    match kind {
        Kind::Config if is_external => {
            let hint = "write `file` or `content`: a config goes with its deployment";
            reader.report.refuse(
                top.place,
                &at,
                format!("the config `{name}` is not this file's own"),
                hint,
            );
            None
        }
        Kind::Config => {
            if !shared.configs.contains_key(name) {
                let bytes = content(kind, name, top, reader.variables, reader.around, reader.report)?;
                shared
                    .configs
                    .insert(name.to_owned(), ConfigSpec::of_bytes(bytes));
            }
            Some(name.to_owned())
        }
        Kind::Secret if is_external => Some(given.unwrap_or(name).to_owned()),
        Kind::Secret => {
            let whole = format!("{}.{name}", reader.project);
            if let Some((message, _)) = secret_name_problem(&whole) {
                let hint = "rename it: its deployment's name stands before its own";
                reader.report.refuse(top.place, &at, message, hint);
                return None;
            }
            if !shared.secrets.iter().any(|secret| secret.name == whole) {
                let value = content(kind, name, top, reader.variables, reader.around, reader.report)?;
                shared.secrets.push(SecretValue {
                    name: whole.clone(),
                    value,
                });
            }
            Some(whole)
        }
    }
}
