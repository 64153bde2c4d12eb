//! Files become deployments.

use std::sync::Arc;

use dhow_cli::deploy;
use dhow_core::command::{Command, DeploymentCommand, ManifestSpec};
use dhow_core::ids::DeploymentName;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::ManifestVersion;

use super::Runner;
use super::verbs::{Answer, lines};
use crate::scenario::action::ManifestAction;
use crate::scenario::file::changed;

impl Runner {
    pub(super) fn deploy(&mut self, text: String, force: bool, suspend_secs: Option<u64>) -> Answer {
        let spec = match read(&text) {
            Ok(spec) => spec,
            Err(findings) => return Ok(findings),
        };
        let deployment = spec.deployment.clone();
        self.files.insert(deployment.clone(), text);
        let command = DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "user".into(),
            wall_unix_secs: self.wall_unix_secs(),
            force,
        };
        let command = self.suspending(suspend_secs, command);
        let deployed = self.deployed(&deployment, command)?;
        Ok(lines(&deploy::said(&deployed)))
    }

    pub(super) fn redeploy(
        &mut self,
        (name, force): (&DeploymentName, bool),
        change: &[String],
    ) -> Result<Answer, String> {
        let file = self
            .files
            .get(name)
            .ok_or_else(|| format!("`{name}` was not deployed before"))?;
        let text = changed(file, change)?;
        Ok(self.deploy(text, force, None))
    }

    /// The command, with the suspension that was asked for beside it.
    pub(super) fn suspending(&self, secs: Option<u64>, command: DeploymentCommand) -> DeploymentCommand {
        match secs {
            None => command,
            Some(secs) => DeploymentCommand::Suspending {
                for_ms: secs * 1_000,
                until_unix_secs: self.wall_unix_secs().saturating_add_unsigned(secs),
                author: "user".into(),
                command: Box::new(command),
            },
        }
    }

    /// A set of files, divided by `---`.
    pub(super) fn manifests(&mut self, set: &ManifestAction, input: &[String]) -> Vec<String> {
        let mut specs = Vec::new();
        for file in input.split(|line| line == "---").filter(|file| !file.is_empty()) {
            match read(&joined(file)) {
                Ok(spec) => specs.push(ManifestSpec(Arc::new(spec))),
                Err(findings) => return findings,
            }
        }
        let command = DeploymentCommand::ApplyManifests {
            version: ManifestVersion {
                version: set.version,
                created_unix_secs: 0,
                index_hash: [0; 32],
            },
            specs,
            wall_unix_secs: self.wall_unix_secs(),
            source: set.source.as_deref().map(Into::into),
            commit: set.commit.as_deref().map(Into::into),
            why: set.why,
        };
        // A refusal is told with the rest.
        let _ = self.lab.apply(Command::Deployment(command));
        self.told()
    }
}

pub(super) fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The deployment, or what the user is told about the file, which comes from the standard input.
pub(super) fn read(text: &str) -> Result<DeploymentSpec, Vec<String>> {
    let read = dhow_wire::parse_deployment(text, deploy::STDIN, &|_| None);
    read.map_err(|findings| lines(&findings.to_string()))
}
