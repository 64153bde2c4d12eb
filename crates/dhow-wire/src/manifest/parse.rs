//! Deployment files inside a signed set, read as strictly as everywhere else.

use dhow_core::spec::DeploymentSpec;

use crate::deployment::{Sender, parse_deployment_under};

/// Reads one file of a set. No environment is given: what was signed means the same on every server.
pub fn parse_manifest(path: &str, text: &str) -> Result<DeploymentSpec, String> {
    parse_deployment_under(text, path, Sender::Source, &|_| Vec::new())
        .map_err(|findings| findings.to_string())
}
