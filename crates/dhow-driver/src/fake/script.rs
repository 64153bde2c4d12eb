//! What a fake replica does, read from its environment.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::driver::{Cause, Exit};

/// How a fake replica starts, runs and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub prepare_error: Option<String>,
    pub prepare_delay: Duration,
    pub start_error: Option<String>,
    pub start_delay: Duration,
    /// It starts, and nobody hears of it.
    pub start_silent: bool,
    /// How it ends by itself, and how long after its start.
    pub exit: Option<(Duration, Exit)>,
    pub stop_code: Option<i32>,
    pub stop_delay: Duration,
    pub ignore_stop: bool,
    pub remove_delay: Duration,
    pub healthy_after: Duration,
    pub unhealthy_after: Option<Duration>,
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

impl Script {
    pub fn read(env: &BTreeMap<String, String>) -> Result<Self, Cause> {
        let text = |key: &str| env.get(key).cloned();
        let lines = |key: &str| {
            text(key)
                .iter()
                .flat_map(|text| text.lines())
                .map(str::to_owned)
                .collect()
        };
        let span = |key| Ok(number(env, key)?.map(Duration::from_millis));
        let exit_after = span("FAKE_EXIT_AFTER_MS")?;
        let mut exit = match (signed(env, "FAKE_EXIT_CODE")?, signed(env, "FAKE_EXIT_SIGNAL")?) {
            (_, Some(signal)) => Some(Exit::signal(signal)),
            (Some(code), None) => Some(Exit::code(code)),
            (None, None) => exit_after.map(|_| Exit::code(0)),
        };
        if let Some(exit) = exit.as_mut() {
            exit.oom = env.contains_key("FAKE_OOM");
        }
        Ok(Self {
            prepare_error: text("FAKE_PREPARE_ERROR"),
            prepare_delay: span("FAKE_PREPARE_DELAY_MS")?.unwrap_or_default(),
            start_error: text("FAKE_START_ERROR"),
            start_delay: span("FAKE_START_DELAY_MS")?.unwrap_or_default(),
            start_silent: env.contains_key("FAKE_START_SILENT"),
            exit: exit.map(|exit| (exit_after.unwrap_or_default(), exit)),
            stop_code: signed(env, "FAKE_STOP_CODE")?,
            stop_delay: span("FAKE_STOP_DELAY_MS")?.unwrap_or_default(),
            remove_delay: span("FAKE_REMOVE_DELAY_MS")?.unwrap_or_default(),
            ignore_stop: env.contains_key("FAKE_IGNORE_STOP"),
            healthy_after: span("FAKE_HEALTHY_AFTER_MS")?.unwrap_or_default(),
            unhealthy_after: span("FAKE_UNHEALTHY_AFTER_MS")?,
            stdout: lines("FAKE_STDOUT"),
            stderr: lines("FAKE_STDERR"),
        })
    }
}

fn number(env: &BTreeMap<String, String>, key: &str) -> Result<Option<u64>, Cause> {
    let Some(text) = env.get(key) else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| Cause::Scripted(format!("{key} is `{text}` and not a number")))
}

fn signed(env: &BTreeMap<String, String>, key: &str) -> Result<Option<i32>, Cause> {
    let Some(text) = env.get(key) else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| Cause::Scripted(format!("{key} is `{text}` and not a number")))
}
