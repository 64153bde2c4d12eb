//! `dhow rollback DEPLOYMENT`: brings an earlier revision back, as a new one.

use dhow_core::ids::DeploymentName;
use dhow_wire::api::Deployed;

use crate::suspend::SuspendArgs;
use crate::target;
use crate::wait::WaitArgs;

/// Bring an earlier revision of a deployment back, as a new one
///
/// Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    pub deployment: DeploymentName,

    /// The revision to bring back; else the last good one before the current
    #[arg(long, value_name = "REVISION")]
    pub to: Option<u64>,

    #[command(flatten)]
    pub suspend: SuspendArgs,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// What was begun.
pub fn said(to: Option<u64>, deployed: &Deployed) -> String {
    let Deployed {
        deployment,
        revision,
        changed,
        brings_back,
        ..
    } = deployed;
    match (to.or(*brings_back), *changed) {
        (_, false) => format!("{deployment} already runs that: it is revision {revision}"),
        (Some(to), true) => format!("{deployment} goes back to revision {to}, as revision {revision}"),
        (None, true) => format!("{deployment} goes back to its last good revision, as revision {revision}"),
    }
}
