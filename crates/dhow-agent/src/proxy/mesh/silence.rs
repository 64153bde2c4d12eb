//! When a node counts as silent. Pure: moments come in.

use std::time::Duration;

use tokio::time::Instant;

use super::own::Timing;

/// What one end of a control connection knows of the other's life.
pub struct Silence {
    timing: Timing,
    heard: Instant,
}

impl Silence {
    pub fn new(timing: Timing, now: Instant) -> Self {
        Self { timing, heard: now }
    }

    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When it has to be asked whether the silence is too long.
    pub fn deadline(&self) -> Instant {
        self.heard + self.timing.silence
    }

    /// Whether the other side is silent. Who comes to ask much too late was stopped itself meanwhile, and has not looked
    /// yet at what the other side said: it gives one more beat.
    pub fn is_too_long(&mut self, now: Instant) -> bool {
        let late = now.saturating_duration_since(self.deadline());
        if late < self.slack() {
            return true;
        }
        let grace = self.timing.silence.saturating_sub(self.timing.beat);
        self.heard = now.checked_sub(grace).unwrap_or(now);
        false
    }

    fn slack(&self) -> Duration {
        self.timing.beat / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_stopped_itself_listens_once_more() {
        let timing = Timing::default();
        let begin = Instant::now();
        let mut silence = Silence::new(timing, begin);
        assert_eq!(silence.deadline(), begin + timing.silence);
        assert!(silence.is_too_long(silence.deadline()));
        let woken = begin + Duration::from_secs(60);
        assert!(!silence.is_too_long(woken));
        assert_eq!(silence.deadline(), woken + timing.beat);
        assert!(silence.is_too_long(silence.deadline()));
        silence.heard(woken);
        assert_eq!(silence.deadline(), woken + timing.silence);
    }
}
