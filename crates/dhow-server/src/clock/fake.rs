//! A clock that stands still until it is told otherwise; wall and monotonic time move apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::watch;

use super::{Clock, Sleep};

/// For tests and simulation; clones are the same clock.
#[derive(Debug, Clone)]
pub struct FakeClock {
    wall_unix_ms: Arc<AtomicI64>,
    monotonic_ms: watch::Sender<u64>,
    sleeps: watch::Sender<Sleeps>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sleeps {
    /// Those who are asleep now.
    now: usize,
    /// How often a task fell asleep.
    begun: u64,
}

impl FakeClock {
    /// A clock that shows this wall time; its monotonic time begins at zero.
    pub fn new(wall_unix_ms: i64) -> Self {
        Self {
            wall_unix_ms: Arc::new(AtomicI64::new(wall_unix_ms)),
            monotonic_ms: watch::Sender::new(0),
            sleeps: watch::Sender::default(),
        }
    }

    /// Lets time pass, as it does for everybody.
    pub fn advance(&self, span_ms: u64) {
        self.step_wall(i64::try_from(span_ms).unwrap_or(i64::MAX));
        self.step_monotonic(span_ms);
    }

    /// Moves the wall time alone, forwards or back, as an operator or a time server does.
    pub fn step_wall(&self, by_ms: i64) {
        // Only this method writes, and a test moves its clock from one place.
        let now = self.wall_unix_ms.load(Ordering::SeqCst);
        self.wall_unix_ms
            .store(now.saturating_add(by_ms), Ordering::SeqCst);
    }

    /// Moves the monotonic time alone, and wakes whoever waited for it.
    pub fn step_monotonic(&self, span_ms: u64) {
        self.monotonic_ms
            .send_modify(|now| *now = now.saturating_add(span_ms));
    }

    /// Waits until at least this many are asleep: then moving the clock reaches them.
    pub async fn wait_for_sleepers(&self, count: usize) {
        // The sender is in `self`, so the channel cannot close.
        let _ = self
            .sleeps
            .subscribe()
            .wait_for(|sleeps| sleeps.now >= count)
            .await;
    }

    /// How often a task has fallen asleep so far.
    pub fn sleeps_begun(&self) -> u64 {
        self.sleeps.borrow().begun
    }

    /// Waits until tasks have fallen asleep this often: a task that was woken has done its round.
    pub async fn wait_for_sleeps_begun(&self, count: u64) {
        let _ = self
            .sleeps
            .subscribe()
            .wait_for(|sleeps| sleeps.begun >= count)
            .await;
    }
}

impl Clock for FakeClock {
    fn wall_unix_ms(&self) -> i64 {
        self.wall_unix_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        *self.monotonic_ms.borrow()
    }

    fn sleep_until_monotonic(&self, at_ms: u64) -> Sleep {
        let clock = self.clone();
        Box::pin(async move {
            let mut time = clock.monotonic_ms.subscribe();
            if *time.borrow() >= at_ms {
                return;
            }
            let _asleep = Asleep::new(&clock.sleeps);
            // `clock` keeps the sender, so the channel cannot close.
            let _ = time.wait_for(|now| *now >= at_ms).await;
        })
    }
}

/// Counts one sleeper for as long as it lives.
struct Asleep<'a>(&'a watch::Sender<Sleeps>);

impl<'a> Asleep<'a> {
    fn new(sleeps: &'a watch::Sender<Sleeps>) -> Self {
        sleeps.send_modify(|sleeps| {
            sleeps.now += 1;
            sleeps.begun += 1;
        });
        Self(sleeps)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0
            .send_modify(|sleeps| sleeps.now = sleeps.now.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wall_and_monotonic_time_move_apart() {
        let clock = FakeClock::new(1_000);
        clock.step_wall(-5_000);
        assert_eq!((clock.wall_unix_ms(), clock.monotonic_ms()), (-4_000, 0));
        clock.step_monotonic(70);
        assert_eq!((clock.wall_unix_ms(), clock.monotonic_ms()), (-4_000, 70));
        clock.advance(30);
        assert_eq!((clock.wall_unix_ms(), clock.monotonic_ms()), (-3_970, 100));
    }

    #[tokio::test]
    async fn sleepers_wake_at_their_moment_and_not_before() {
        let clock = FakeClock::new(0);
        let sleeper = tokio::spawn(clock.sleep_until_monotonic(100));
        clock.wait_for_sleepers(1).await;
        clock.step_wall(1_000_000);
        clock.step_monotonic(99);
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.step_monotonic(1);
        sleeper.await.unwrap();
        clock.sleep_until_monotonic(100).await;
    }
}
