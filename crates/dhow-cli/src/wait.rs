//! The options of verbs that return without waiting.

use std::time::Duration;

use dhow_core::spec::TimeSpan;

/// Waiting, where a verb returns without it.
#[derive(clap::Args)]
pub struct WaitArgs {
    /// Wait until the deployment is stable
    #[arg(long)]
    pub wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "120s", requires = "wait")]
    timeout: TimeSpan,
}

impl WaitArgs {
    pub fn timeout(&self) -> Duration {
        self.timeout.to_std()
    }
}
