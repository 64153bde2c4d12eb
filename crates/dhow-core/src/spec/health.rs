//! How a replica's health is known, when it is started again, and how it is stopped.

use serde::{Deserialize, Serialize};

use super::text_or_map::text_or_map;
use super::units::TimeSpan;

/// How the agent asks a replica whether it is healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Check {
    Tcp {
        port: u16,
    },
    Http {
        url: String,
        #[serde(default = "status_ok")]
        expect_status: u16,
    },
    Command {
        command: Vec<String>,
    },
}

fn status_ok() -> u16 {
    200
}

/// A check and its rhythm. Unhealthy after `retries` failures in a row, then restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthSpec {
    pub check: Check,
    #[serde(default = "HealthSpec::default_start_grace")]
    pub start_grace: TimeSpan,
    #[serde(default = "HealthSpec::default_interval")]
    pub interval: TimeSpan,
    #[serde(default = "HealthSpec::default_timeout")]
    pub timeout: TimeSpan,
    #[serde(default = "HealthSpec::default_retries")]
    pub retries: u32,
}

impl HealthSpec {
    pub fn of(check: Check) -> Self {
        Self {
            check,
            start_grace: Self::default_start_grace(),
            interval: Self::default_interval(),
            timeout: Self::default_timeout(),
            retries: Self::default_retries(),
        }
    }

    fn default_start_grace() -> TimeSpan {
        TimeSpan::from_secs(5)
    }
    fn default_interval() -> TimeSpan {
        TimeSpan::from_secs(10)
    }
    fn default_timeout() -> TimeSpan {
        TimeSpan::from_secs(5)
    }
    fn default_retries() -> u32 {
        3
    }
}

/// When the agent starts a replica again that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Always),
            "on_failure" => Some(Self::OnFailure),
            "never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// Waits between starts: doubles from `initial` to `max`, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    #[serde(default = "Backoff::default_initial")]
    pub initial: TimeSpan,
    #[serde(default = "Backoff::default_max")]
    pub max: TimeSpan,
}

impl Backoff {
    fn default_initial() -> TimeSpan {
        TimeSpan::from_secs(1)
    }
    fn default_max() -> TimeSpan {
        TimeSpan::from_secs(60)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Self::default_initial(),
            max: Self::default_max(),
        }
    }
}

/// When an ended replica is started again on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestartSpec {
    pub policy: RestartPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The time within which they are counted, from the first failure on; without it they are counted until it has run
    /// steadily.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,
    pub backoff: Backoff,
}

#[derive(Deserialize)]
struct RestartMap {
    #[serde(default)]
    policy: RestartPolicy,
    #[serde(default)]
    max_attempts: Option<u32>,
    #[serde(default)]
    interval: Option<TimeSpan>,
    #[serde(default)]
    backoff: Backoff,
}

impl From<RestartMap> for RestartSpec {
    fn from(map: RestartMap) -> Self {
        Self {
            policy: map.policy,
            max_attempts: map.max_attempts,
            interval: map.interval,
            backoff: map.backoff,
        }
    }
}

text_or_map!(
    RestartSpec,
    RestartMap,
    "`always`, `on_failure`, `never` or `{ policy, max_attempts, interval, backoff }`",
    |text| {
        RestartPolicy::from_text(text).map(|policy| RestartSpec {
            policy,
            ..RestartSpec::default()
        })
    }
);

/// How a replica is asked to end, and for how long before it is made to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopSpec {
    #[serde(default = "StopSpec::default_signal")]
    pub signal: String,
    #[serde(default = "StopSpec::default_grace")]
    pub grace: TimeSpan,
}

impl StopSpec {
    fn default_signal() -> String {
        "SIGTERM".into()
    }
    fn default_grace() -> TimeSpan {
        TimeSpan::from_secs(10)
    }
}

impl Default for StopSpec {
    fn default() -> Self {
        Self {
            signal: Self::default_signal(),
            grace: Self::default_grace(),
        }
    }
}
