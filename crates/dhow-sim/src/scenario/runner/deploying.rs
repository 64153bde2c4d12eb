//! Files become deployments.

use std::sync::Arc;

use dhow_core::command::{Command, DeploymentCommand, ManifestSpec};
use dhow_core::ids::DeploymentName;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::ManifestVersion;

use super::Runner;
use crate::scenario::file::changed;

impl Runner {
    pub(super) fn deploy(&mut self, text: String) -> Vec<String> {
        match read(&text) {
            Ok(spec) => {
                self.files.insert(spec.deployment.clone(), text);
                // A refusal is in the trace.
                let _ = self.lab.deploy(spec);
                self.answer()
            }
            Err(findings) => findings,
        }
    }

    pub(super) fn redeploy(
        &mut self,
        name: &DeploymentName,
        change: &[String],
    ) -> Result<Vec<String>, String> {
        let file = self
            .files
            .get(name)
            .ok_or_else(|| format!("`{name}` was not deployed before"))?;
        let text = changed(file, change)?;
        Ok(self.deploy(text))
    }

    /// A set of files, divided by `---`.
    pub(super) fn manifests(&mut self, version: u64, source: Option<&str>, input: &[String]) -> Vec<String> {
        let mut specs = Vec::new();
        for file in input.split(|line| line == "---").filter(|file| !file.is_empty()) {
            match read(&joined(file)) {
                Ok(spec) => specs.push(ManifestSpec(Arc::new(spec))),
                Err(findings) => return findings,
            }
        }
        let command = DeploymentCommand::ApplyManifests {
            version: ManifestVersion {
                version,
                created_unix_secs: 0,
                index_hash: [0; 32],
            },
            specs,
            wall_unix_secs: 0,
            source: source.map(Into::into),
        };
        let _ = self.lab.apply(Command::Deployment(command));
        self.answer()
    }
}

pub(super) fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The deployment, or what the user is told about the file.
fn read(text: &str) -> Result<DeploymentSpec, Vec<String>> {
    dhow_wire::parse_deployment(text, "dhow.yaml", &|_| None).map_err(|findings| {
        let text = findings.to_string();
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(str::to_owned).collect()
    })
}
