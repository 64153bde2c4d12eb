//! `dhow deploy FILE`: applies a deployment file and waits until it is stable, with live progress.

use dhow_core::spec::TimeSpan;
use dhow_wire::api::Deployed;

use crate::source_files::FileArgs;
use crate::suspend::SuspendArgs;

/// The name of the standard input in findings.
pub const STDIN: &str = "<stdin>";

/// Apply a deployment file and wait until it is stable
///
/// `$E:NAME` is read from the environment of this command. Ctrl-C stops watching; the deployment goes on. Exit
/// code 0 once it is stable, 1 when it is not in time or failed, 2 when the file is wrong.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub from: FileArgs,

    /// How long to wait for it to become stable
    #[arg(long, value_name = "DURATION", default_value = "120s")]
    pub timeout: TimeSpan,

    /// Return once it is durable, without waiting
    #[arg(long, short, conflicts_with = "timeout")]
    pub detach: bool,

    /// Deploy even what was taken back before because its version failed
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub suspend: SuspendArgs,

    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// What was taken.
pub fn said(deployed: &Deployed) -> String {
    let Deployed {
        deployment,
        revision,
        changed,
        ..
    } = deployed;
    if *changed {
        format!("`{deployment}` is revision {revision} now")
    } else {
        format!("`{deployment}` is unchanged, still revision {revision}")
    }
}
