//! The command line as a whole. Each verb's own arguments stand beside its code.

use clap::{Parser, Subcommand};

use crate::commands::{daemon, plan, validate};

/// A container orchestrator in one binary.
#[derive(Parser)]
#[command(name = "dhow", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Validate(validate::Args),
    Plan(plan::Args),
    Daemon(daemon::Args),
}
