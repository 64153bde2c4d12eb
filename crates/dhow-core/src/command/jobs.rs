//! What the leader decides about the runs of jobs and schedules.

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, ServiceId};

/// A command about the runs of a job or a schedule. The leader reads the calendar; what it has read stands in here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobCommand {
    /// A moment of a schedule has come: a run begins, unless one has begun for it or the rules leave it out.
    Due {
        service: ServiceId,
        due_unix_secs: i64,
        /// The one before it in the schedule.
        follows_unix_secs: Option<i64>,
        /// No server could start it in time, and the service does not make up for that.
        is_missed: bool,
    },
    /// A job, or a run of a schedule, has not come to its end by its deadline.
    Late {
        service: ServiceId,
        generation: Generation,
        /// Of a schedule.
        run: Option<u32>,
    },
}
