//! `dhow rm DEPLOYMENT`: ends all of its replicas and forgets it.

use dhow_core::ids::DeploymentName;
use dhow_core::spec::TimeSpan;

use crate::target;

/// Remove a deployment: its replicas end, its endpoints close
///
/// Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    pub deployment: DeploymentName,

    /// Wait until its last replica has ended
    #[arg(long)]
    pub wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "120s", requires = "wait")]
    pub timeout: TimeSpan,
}

/// What was begun.
pub fn said(deployment: &DeploymentName) -> String {
    format!("{deployment} is being removed")
}
