//! Deployment files inside a signed set, read as strictly as everywhere else.

use dhow_core::spec::DeploymentSpec;

use crate::deployment::parse_deployment;

/// Reads one file of a set. No environment is given: what was signed means the same on every server.
pub fn parse_manifest(path: &str, text: &str) -> Result<DeploymentSpec, String> {
    parse_deployment(text, path, &|_| None).map_err(|findings| findings.to_string())
}
