//! The timer of the workers' connections: it goes off at whole seconds alone. Ten thousand keep-alives that each wake a
//! thread from its sleep cost several times what the same ones cost a few hundred at a time.

use std::pin::Pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// The timer that the HTTP/2 server uses for its connections: every deadline waits for the next whole second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoarseTimer;

/// Whole seconds are counted from the first use, for all connections alike.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// The time of this timer.
pub(super) fn now_ms() -> u64 {
    u64::try_from(origin().elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The next whole second, up to one later than asked for.
fn rounded(deadline: Instant) -> Instant {
    let since = deadline.saturating_duration_since(origin());
    let whole = match since.subsec_nanos() {
        0 => since,
        _ => Duration::from_secs(since.as_secs().saturating_add(1)),
    };
    origin().checked_add(whole).unwrap_or(deadline)
}

impl Timer for CoarseTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        let now = Instant::now();
        self.sleep_until(now.checked_add(duration).unwrap_or(now))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        TokioTimer::new().sleep_until(rounded(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        TokioTimer::new().reset(sleep, rounded(deadline));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_whole_seconds_and_never_early() {
        let at = |ms| origin() + Duration::from_millis(ms);
        for (asked_ms, given_ms) in [
            (0, 0),
            (1, 1_000),
            (1_000, 1_000),
            (1_001, 2_000),
            (20_500, 21_000),
        ] {
            assert_eq!(rounded(at(asked_ms)), at(given_ms), "{asked_ms}");
        }
    }
}
