//! `dhow stop DEPLOYMENT[/SERVICE]`: nothing of it runs until it is started again.

use dhow_core::spec::TimeSpan;

use crate::target::{self, Target};

/// Stop a deployment or one service: its replicas end, and everything else of it stays
///
/// Revision, counts, volumes, ports and names stay. A stop is remembered over restarts of daemons and nodes: `dhow start`
/// runs it again, and so do `dhow restart`, `dhow rollback` and a deploy of its file. Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT[/SERVICE]", value_parser = target::target)]
    pub target: Target,

    /// Wait until its last replica has ended
    #[arg(long)]
    pub wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "120s", requires = "wait")]
    pub timeout: TimeSpan,
}

/// What was begun, or that nothing was to be done.
pub fn said(target: &Target, changed: bool) -> String {
    let name = target.shown();
    match changed {
        true => format!("{name} stops; `dhow start {name}` runs it again"),
        false => format!("{name} is stopped already"),
    }
}
