//! `--suspend`: the option of verbs that change what a source has the last word about.

use dhow_core::spec::TimeSpan;

/// For how long a person's word counts in place of a source's.
#[derive(clap::Args)]
pub struct SuspendArgs {
    /// Suspend the source that the deployment comes from: for so long it is what you say, then what the source says
    #[arg(long, value_name = "DURATION")]
    suspend: Option<TimeSpan>,
}

impl SuspendArgs {
    /// In whole seconds, as the API takes it; a begun second counts.
    pub fn secs(&self) -> Option<u64> {
        self.suspend.map(|span| span.as_millis().div_ceil(1_000))
    }
}
