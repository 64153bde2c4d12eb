//! Time, passed in. Wall time is what people read: it may jump. Monotonic time is what waits and leases run on:
//! it never goes back and has no meaning outside this process.
//!
//! Called by whatever decides by time: the runtime, leases, schedules, the gateway's limits, certificates. Nothing else
//! reads wall time. What only waits for others, as the channel between servers, the lobby and the API's deadlines do,
//! runs on tokio's own time.

mod fake;
mod system;

use std::pin::Pin;

pub use fake::FakeClock;
pub use system::SystemClock;

/// A moment of wall time as people read it.
pub(crate) fn shown_utc(unix_secs: i64) -> String {
    match jiff::Timestamp::from_second(unix_secs) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        // Outside of what a calendar holds.
        Err(_) => unix_secs.to_string(),
    }
}

/// Ends when its moment has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where times come from.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970 as this host believes, for display, cron and certificates.
    fn wall_unix_ms(&self) -> i64;

    /// Milliseconds since some moment before this process needed them.
    fn monotonic_ms(&self) -> u64;

    /// Waits until the monotonic time is at least this; at once where it already is.
    fn sleep_until_monotonic(&self, at_ms: u64) -> Sleep;
}
