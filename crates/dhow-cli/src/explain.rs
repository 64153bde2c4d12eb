//! `dhow explain DEPLOYMENT/NAME`: why it is where it is, or why it is not running.

use dhow_wire::api::Explanation;

use crate::target::{self, NamedTarget};

/// Say why a service or a replica is where it is, or why it is not running
#[derive(clap::Args)]
pub struct Args {
    /// A service or a replica; an exact service name wins
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    pub target: NamedTarget,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

pub fn text(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.subject);
    for line in &explanation.lines {
        text += &format!("  {line}\n");
    }
    text
}
