//! What the daemon says about itself, on stderr.

use std::io::IsTerminal;
use std::sync::OnceLock;

use dhow_wire::{LogConfig, LogFormat, LogLevel};
use tracing_subscriber::EnvFilter;

/// Puts another filter in the place of the one that counts.
type Replace = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Set with the subscriber, which is there once for a process.
static REPLACE: OnceLock<Replace> = OnceLock::new();

/// Once per process; a second call changes nothing.
pub fn start(config: LogConfig) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(config.level))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A subscriber that is there already stays.
    match config.format {
        LogFormat::Text => {
            let builder = builder.with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            if builder.try_init().is_ok() {
                keep(Box::new(move |filter| drop(handle.reload(filter))));
            }
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            if builder.try_init().is_ok() {
                keep(Box::new(move |filter| drop(handle.reload(filter))));
            }
        }
    }
}

fn keep(replace: Replace) {
    // Whoever has set the subscriber is the only one who comes here.
    let _ = REPLACE.set(replace);
}

/// From now on this much is said.
pub fn set_level(level: LogLevel) {
    if let Some(replace) = REPLACE.get() {
        replace(filter(level));
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    let text = level.as_str();
    match level {
        LogLevel::Trace | LogLevel::Debug => EnvFilter::new(text),
        // The consensus library repeats a server that is away ten times a second; what matters of it is said by ours.
        LogLevel::Info | LogLevel::Warn | LogLevel::Error => EnvFilter::new(format!("{text},openraft=off")),
    }
}
