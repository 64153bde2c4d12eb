//! SIGHUP: the configuration is read again. How much is logged changes at once; what else differs counts from the next
//! start, which moves and restarts nothing, and the log says what that is. A file with something wrong in it changes
//! nothing.

use std::convert::Infallible;

use dhow_wire::{DaemonConfig, Findings};
use serde_json::Value;
use tokio::signal::unix::Signal;

use super::logging;

/// Reads the configuration as it was read at the start; none where that cannot be done twice.
pub type Reread<'a> = Option<&'a (dyn Fn() -> Result<DaemonConfig, Findings> + Sync)>;

/// Follows the signal for as long as the daemon runs.
pub async fn follow(mut hangups: Signal, running: &DaemonConfig, reread: Reread<'_>) -> Infallible {
    let mut running = running.clone();
    loop {
        if hangups.recv().await.is_none() {
            // No signal comes any more.
            return std::future::pending().await;
        }
        let Some(reread) = reread else {
            tracing::warn!("the configuration came from the standard input and cannot be read again");
            continue;
        };
        match tokio::task::block_in_place(reread) {
            Ok(next) => take(&mut running, &next),
            Err(findings) => tracing::error!("the configuration stays as it was: {findings}"),
        }
    }
}

fn take(running: &mut DaemonConfig, next: &DaemonConfig) {
    if next.log.level != running.log.level {
        running.log.level = next.log.level;
        logging::set_level(next.log.level);
    }
    let waiting = differing(running, next);
    match waiting.is_empty() {
        true => tracing::info!(
            log_level = next.log.level.as_str(),
            "the configuration was read again"
        ),
        false => tracing::warn!(
            settings = waiting.join(", "),
            "the configuration was read again; these settings count from the next start of the daemon"
        ),
    }
}

/// The keys of the configuration that are not the same in both.
fn differing(one: &DaemonConfig, other: &DaemonConfig) -> Vec<String> {
    let written = |config: &DaemonConfig| serde_json::to_value(config).unwrap_or_default();
    let (one, other) = (written(one), written(other));
    let keys = |value: &Value| -> Vec<String> {
        let keys = value.as_object().into_iter().flat_map(|map| map.keys());
        keys.cloned().collect()
    };
    let mut all: Vec<String> = keys(&one);
    all.extend(keys(&other));
    all.sort();
    all.dedup();
    all.retain(|key| one.get(key) != other.get(key));
    all
}

#[cfg(test)]
mod tests {
    use dhow_wire::LogLevel;

    use super::*;
    use crate::commands::daemon::config_of_data_dir;

    #[test]
    fn what_cannot_change_now_is_named() {
        let first = config_of_data_dir().unwrap();
        let mut running = first.clone();
        let mut next = first.clone();
        next.log.level = LogLevel::Debug;
        take(&mut running, &next);
        assert_eq!(running.log.level, LogLevel::Debug);
        assert_eq!(differing(&running, &next), [""; 0]);
        next.labels.insert("zone".into(), "a".into());
        next.data_dir = "/elsewhere".into();
        assert_eq!(differing(&running, &next), ["data_dir", "labels"]);
    }
}
