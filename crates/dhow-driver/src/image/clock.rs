//! The wall clock, in one place. Last-used times are shown to people and compared by `prune`; nothing else of
//! the image side depends on the time of day.

use std::time::SystemTime;

pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
