//! What the daemon says about itself, on stderr.

use std::io::IsTerminal;

use dhow_wire::{LogConfig, LogFormat, LogLevel};
use tracing_subscriber::EnvFilter;

/// Once per process; a second call changes nothing.
pub fn start(config: LogConfig) {
    let level = config.level.as_str();
    let filter = match config.level {
        LogLevel::Trace | LogLevel::Debug => EnvFilter::new(level),
        // The consensus library repeats a server that is away ten times a second; what matters of it is said by ours.
        LogLevel::Info | LogLevel::Warn | LogLevel::Error => EnvFilter::new(format!("{level},openraft=off")),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A subscriber that is there already stays.
    let _ = match config.format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
