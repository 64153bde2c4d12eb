//! `dhow start DEPLOYMENT[/SERVICE]`: runs again what was stopped.

use crate::target::{self, Target};
use crate::wait::WaitArgs;

/// Start a deployment or one service that was stopped, with the revision and the counts that it has
///
/// A service starts once those that it depends on are there. Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT[/SERVICE]", value_parser = target::target)]
    pub target: Target,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// What was begun, or that nothing was to be done.
pub fn said(target: &Target, changed: bool) -> String {
    let name = target.shown();
    match changed {
        true => format!("{name} starts"),
        false => format!("nothing of {name} is stopped"),
    }
}
