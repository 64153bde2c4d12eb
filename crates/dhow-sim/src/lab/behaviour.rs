//! How a scripted workload behaves.

use dhow_core::spec::TimeSpan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// From being started to running.
    pub start: TimeSpan,
    /// It cannot be started at all.
    pub cannot_start: bool,
    /// From running to healthy; none is never.
    pub healthy_after: Option<TimeSpan>,
    /// From healthy to unhealthy: then it is ended and started again.
    pub unhealthy_after: Option<TimeSpan>,
    /// From running to its own end.
    pub exit_after: Option<TimeSpan>,
    pub exit_code: i32,
    /// From being asked to end to having ended.
    pub stop: TimeSpan,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            start: TimeSpan::from_millis(500),
            cannot_start: false,
            healthy_after: Some(TimeSpan::from_secs(1)),
            unhealthy_after: None,
            exit_after: None,
            exit_code: 0,
            stop: TimeSpan::from_millis(200),
        }
    }
}
