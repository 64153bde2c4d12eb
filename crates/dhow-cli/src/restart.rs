//! `dhow restart DEPLOYMENT[/SERVICE]`: new replicas of the same version, by the rules of a rollout.

use crate::target::{self, Target};
use crate::wait::WaitArgs;

/// Restart a deployment or one service, replica by replica as a rollout does
///
/// Of a whole deployment the jobs and schedules are left alone, done or not: a job runs again where it is named. Returns
/// once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT[/SERVICE]", value_parser = target::target)]
    pub target: Target,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// What was begun.
pub fn said(target: &Target) -> String {
    let Target { deployment, name } = target;
    match name {
        Some(service) => format!("{deployment}/{service} restarts"),
        None => format!("{deployment} restarts"),
    }
}
