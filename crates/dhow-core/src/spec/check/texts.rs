//! Rules about plain text wherever it stands: no NUL bytes, names of variables, what the kernel can pass to a
//! program, secrets and labels.

use std::collections::BTreeMap;

use super::finding::{FieldPath, SpecFinding};
use super::limits::{EXEC_TEXT_MAX_BYTES, EXEC_TOTAL_MAX_BYTES};
use super::names::secret_name_problem;
use super::words::{label_finding, quoted};
use crate::spec::{Check, CommandSpec, ImageSpec, ServiceSpec, Storage};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let mut texts = Texts { findings };
    texts.service(at, spec);
    check_env(&at.key("env"), &spec.env, findings);
    check_exec_total(at, spec, findings);
    for (position, group) in spec.replica_groups.iter().enumerate() {
        check_env(
            &at.key("replica_groups").index(position).key("env"),
            &group.env,
            findings,
        );
    }
    for (position, step) in spec.init_steps.iter().enumerate() {
        let place = at.key("init_steps").index(position).key("env");
        check_env(&place, &step.env, findings);
    }
    let labels = at.key("labels");
    findings.extend(
        spec.labels
            .iter()
            .filter_map(|(key, value)| label_finding(&labels, key, value)),
    );
}

fn check_env(at: &FieldPath, env: &BTreeMap<String, String>, findings: &mut Vec<SpecFinding>) {
    for (name, value) in env {
        let place = || at.key(name.clone());
        if let Some((message, hint)) = variable_name_problem(name) {
            findings.push(SpecFinding::at(place(), message).hint(hint).on_key());
        }
        let length = name.len() + 1 + value.len();
        if length > EXEC_TEXT_MAX_BYTES {
            let message = format!(
                "this variable has {length} bytes with its name, the kernel passes at most {EXEC_TEXT_MAX_BYTES}"
            );
            let hint = "put large values into a file that the service mounts";
            findings.push(SpecFinding::at(place(), message).hint(hint));
        }
        if let Some(secret) = value.strip_prefix("$S:")
            && let Some((message, hint)) = secret_name_problem(secret)
        {
            findings.push(SpecFinding::at(place(), message).hint(hint));
        }
    }
}

fn variable_name_problem(name: &str) -> Option<(String, &'static str)> {
    if name.is_empty() {
        Some(("a variable needs a name".into(), "write it as `NAME: value`"))
    } else if name.contains('=') {
        let message = format!("the name of a variable holds no `=`, found {}", quoted(name));
        Some((message, "write it as `NAME: value`"))
    } else if name.contains('\0') {
        Some(("the name of a variable holds a NUL byte".into(), "remove it"))
    } else {
        None
    }
}

fn check_exec_total(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let pointer_bytes = 8;
    let env_bytes: usize = spec
        .env
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2 + pointer_bytes)
        .sum();
    let command = spec.command.iter().flat_map(CommandSpec::words);
    let command_bytes: usize = command.map(|word| word.len() + 1 + pointer_bytes).sum();
    let total = env_bytes + command_bytes;
    if total > EXEC_TOTAL_MAX_BYTES {
        let field = if env_bytes >= command_bytes {
            "env"
        } else {
            "command"
        };
        findings.push(
            SpecFinding::at(
                at.key(field),
                format!("`env` and `command` have {total} bytes together, the kernel passes at most {EXEC_TOTAL_MAX_BYTES}"),
            )
            .hint("put large values into a file that the service mounts"),
        );
    }
}

/// Looks at every text of a service for what no program, file or peer can take.
struct Texts<'a> {
    findings: &'a mut Vec<SpecFinding>,
}

impl Texts<'_> {
    fn text(&mut self, at: impl FnOnce() -> FieldPath, text: &str) {
        if text.contains('\0') {
            self.findings.push(
                SpecFinding::at(at(), "this text holds a NUL byte")
                    .hint("no program and no file name can take one: remove it"),
            );
        }
    }

    fn option(&mut self, at: impl FnOnce() -> FieldPath, text: Option<&String>) {
        if let Some(text) = text {
            self.text(at, text);
        }
    }

    fn list(&mut self, at: &FieldPath, texts: &[String]) {
        for (position, text) in texts.iter().enumerate() {
            self.text(|| at.index(position), text);
        }
    }

    fn map(&mut self, at: &FieldPath, texts: &BTreeMap<String, String>) {
        for (key, value) in texts {
            self.text(|| at.key(key.clone()), value);
        }
    }

    fn image(&mut self, at: &FieldPath, image: Option<&ImageSpec>) {
        // The registry forms have their own rules; these two hold a path of any characters.
        if let Some(image) = image
            && (image.name.starts_with("oci:") || image.name.starts_with("docker-archive:"))
        {
            self.text(|| at.key("image").key("name"), &image.name);
        }
    }

    fn command(&mut self, at: &FieldPath, command: Option<&CommandSpec>) {
        let Some(command) = command else { return };
        let at = at.key("command");
        for (list, words) in [("entrypoint", &command.entrypoint), ("args", &command.args)] {
            let place = at.key(list);
            let words = words.as_deref().unwrap_or_default();
            self.list(&place, words);
            let long = words
                .iter()
                .enumerate()
                .filter(|(_, word)| word.len() > EXEC_TEXT_MAX_BYTES);
            for (position, word) in long {
                let message = format!(
                    "this argument has {} bytes, the kernel passes at most {EXEC_TEXT_MAX_BYTES}",
                    word.len()
                );
                let hint = "put large values into a file that the service mounts";
                self.findings
                    .push(SpecFinding::at(place.index(position), message).hint(hint));
            }
        }
        self.option(|| at.key("workdir"), command.workdir.as_ref());
    }

    fn storage(&mut self, at: &FieldPath, storage: &[Storage]) {
        for (position, mount) in storage.iter().enumerate() {
            let at = at.index(position);
            self.text(|| at.key("target"), mount.target());
            match mount {
                Storage::Bind { source, .. } => self.text(|| at.key("source"), source),
                Storage::Named { .. } | Storage::Tmpfs { .. } | Storage::Ephemeral { .. } => {}
            }
        }
    }

    fn service(&mut self, at: &FieldPath, spec: &ServiceSpec) {
        self.image(at, spec.image.as_ref());
        self.command(at, spec.command.as_ref());
        self.map(&at.key("env"), &spec.env);
        self.map(&at.key("labels"), &spec.labels);
        self.map(&at.key("sysctls"), &spec.sysctls);
        self.map(&at.key("node_selector").key("labels"), &spec.node_selector.labels);
        self.map(
            &at.key("node_selector").key("prefer_labels"),
            &spec.node_selector.prefer_labels,
        );
        self.storage(&at.key("storage"), &spec.storage);
        if let Some(Check::Command { command }) = spec.health.as_ref().map(|health| &health.check) {
            self.list(&at.key("health").key("check").key("command"), command);
        }
        for (position, group) in spec.replica_groups.iter().enumerate() {
            let at = at.key("replica_groups").index(position);
            self.image(&at, group.image.as_ref());
            self.command(&at, group.command.as_ref());
            self.map(&at.key("env"), &group.env);
        }
        for (position, step) in spec.init_steps.iter().enumerate() {
            let at = at.key("init_steps").index(position);
            self.image(&at, step.image.as_ref());
            self.command(&at, Some(&step.command));
            self.map(&at.key("env"), &step.env);
        }
    }
}
