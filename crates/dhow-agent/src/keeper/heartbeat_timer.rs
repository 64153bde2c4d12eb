//! When the next heartbeat is due: at the node's own place in the window that the control plane gives, or every few
//! seconds before it has given one.

use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_core::lease::report_delay_ms;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::limits::HEARTBEAT_EVERY;
use crate::session::Pace;

/// The keeper's timer for heartbeats: it knows the pace that the control plane gives and when the next heartbeat is
/// due.
pub struct HeartbeatTimer {
    node: NodeId,
    pace: watch::Receiver<Pace>,
    known: Pace,
    next: Instant,
    /// Heartbeats since the session was opened.
    sent: u64,
}

impl HeartbeatTimer {
    pub fn new(node: NodeId, pace: watch::Receiver<Pace>) -> Self {
        let mut beat = Self {
            node,
            pace,
            known: Pace::default(),
            next: Instant::now() + HEARTBEAT_EVERY,
            sent: 0,
        };
        beat.follow();
        beat
    }

    /// Waits until a heartbeat is due. May be dropped and called again.
    pub async fn due(&mut self) {
        loop {
            tokio::select! {
                () = sleep_until(self.next) => {
                    self.sent = self.sent.saturating_add(1);
                    self.next = Instant::now() + self.delay();
                    return;
                }
                () = changed(&mut self.pace) => self.follow(),
            }
        }
    }

    /// Takes what the control plane has said. A shorter time counts from now on; a longer one once it is its turn.
    fn follow(&mut self) {
        let pace = *self.pace.borrow_and_update();
        let is_new_session = pace.session != self.known.session;
        if pace == self.known {
            return;
        }
        self.known = pace;
        if is_new_session {
            self.sent = 0;
            self.next = Instant::now() + self.delay();
        } else {
            self.next = self.next.min(Instant::now() + self.delay());
        }
    }

    fn delay(&self) -> Duration {
        match self.known.ttl_secs {
            0 => HEARTBEAT_EVERY,
            ttl_secs => Duration::from_millis(report_delay_ms(self.node.0, ttl_secs, self.sent)),
        }
    }
}

async fn changed(pace: &mut watch::Receiver<Pace>) {
    if pace.changed().await.is_err() {
        // Nobody will ever say anything else.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(ttl_secs: u32, session: u64) -> Pace {
        Pace { ttl_secs, session }
    }

    async fn waited(beat: &mut HeartbeatTimer) -> Duration {
        let began = Instant::now();
        beat.due().await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn before_a_pace_is_given_it_is_regular() {
        let (_sender, receiver) = watch::channel(Pace::default());
        let mut beat = HeartbeatTimer::new(NodeId(7), receiver);
        assert_eq!(waited(&mut beat).await, HEARTBEAT_EVERY);
        assert_eq!(waited(&mut beat).await, HEARTBEAT_EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn it_keeps_its_place_in_every_window() {
        let (_sender, receiver) = watch::channel(pace(200, 1));
        let mut beat = HeartbeatTimer::new(NodeId(7), receiver);
        let first = waited(&mut beat).await.as_millis() as u64;
        assert_eq!(first, report_delay_ms(7, 200, 0));
        for seq in 1..4 {
            let next = waited(&mut beat).await.as_millis() as u64;
            assert_eq!(next, report_delay_ms(7, 200, seq));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_time_counts_at_once_and_a_longer_one_later() {
        let (sender, receiver) = watch::channel(pace(600, 1));
        let mut beat = HeartbeatTimer::new(NodeId(7), receiver);
        beat.due().await;
        sender.send_replace(pace(10, 1));
        assert!(waited(&mut beat).await < Duration::from_secs(10));
        sender.send_replace(pace(300, 1));
        assert!(waited(&mut beat).await < Duration::from_secs(10));
        assert!(waited(&mut beat).await > Duration::from_secs(299));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_session_takes_its_place_anew() {
        let (sender, receiver) = watch::channel(pace(100, 1));
        let mut beat = HeartbeatTimer::new(NodeId(7), receiver);
        beat.due().await;
        sender.send_replace(pace(100, 2));
        let next = waited(&mut beat).await.as_millis() as u64;
        assert_eq!(next, report_delay_ms(7, 100, 0));
    }
}
