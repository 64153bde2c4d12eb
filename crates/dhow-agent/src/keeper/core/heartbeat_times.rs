//! When the next heartbeat is due: at the node's own place in the window that the control plane gives, or every few
//! seconds before it has given one.

use dhow_core::ids::NodeId;
use dhow_core::lease::report_delay_ms;

use crate::limits::HEARTBEAT_EVERY;
use crate::session::Pace;

/// The keeper's times for heartbeats: it knows the pace that the control plane gives and when the next heartbeat is
/// due.
pub(super) struct HeartbeatTimes {
    node: NodeId,
    pace: Pace,
    next_ms: u64,
    /// Heartbeats since the session was opened.
    sent: u64,
}

impl HeartbeatTimes {
    pub fn new(node: NodeId, pace: Pace, now_ms: u64) -> Self {
        let mut times = Self {
            node,
            pace: Pace::default(),
            next_ms: 0,
            sent: 0,
        };
        times.next_ms = now_ms.saturating_add(times.delay_ms());
        times.follow(pace, now_ms);
        times
    }

    pub fn due_ms(&self) -> u64 {
        self.next_ms
    }

    /// Whether a heartbeat is due; then the next one is due later.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.next_ms;
        if is_due {
            self.sent = self.sent.saturating_add(1);
            self.next_ms = now_ms.saturating_add(self.delay_ms());
        }
        is_due
    }

    /// Takes what the control plane has said. A shorter time counts from now on; a longer one once it is its turn.
    pub fn follow(&mut self, pace: Pace, now_ms: u64) {
        let is_new_session = pace.session != self.pace.session;
        let is_urgent = pace.urgent != self.pace.urgent;
        if pace == self.pace {
            return;
        }
        self.pace = pace;
        if is_urgent {
            self.next_ms = now_ms;
            return;
        }
        if is_new_session {
            self.sent = 0;
            self.next_ms = now_ms.saturating_add(self.delay_ms());
        } else {
            self.next_ms = self.next_ms.min(now_ms.saturating_add(self.delay_ms()));
        }
    }

    fn delay_ms(&self) -> u64 {
        match self.pace.ttl_secs {
            // A few seconds.
            0 => u64::try_from(HEARTBEAT_EVERY.as_millis()).unwrap_or(u64::MAX),
            ttl_secs => report_delay_ms(self.node.0, ttl_secs, self.sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(ttl_secs: u32, session: u64) -> Pace {
        Pace {
            ttl_secs,
            session,
            ..Pace::default()
        }
    }

    /// Lets time pass until the next heartbeat, and says how long that was.
    fn waited(times: &mut HeartbeatTimes, now_ms: &mut u64) -> u64 {
        let began_ms = *now_ms;
        *now_ms = times.due_ms();
        assert!(!times.is_due(*now_ms - 1));
        assert!(times.is_due(*now_ms));
        *now_ms - began_ms
    }

    #[test]
    fn before_a_pace_is_given_it_is_regular() {
        let mut times = HeartbeatTimes::new(NodeId(7), Pace::default(), 5);
        let mut now_ms = 5;
        assert_eq!(waited(&mut times, &mut now_ms), 10_000);
        assert_eq!(waited(&mut times, &mut now_ms), 10_000);
    }

    #[test]
    fn it_keeps_its_place_in_every_window() {
        let (mut times, mut now_ms) = (HeartbeatTimes::new(NodeId(7), pace(200, 1), 0), 0);
        for seq in 0..4 {
            assert_eq!(waited(&mut times, &mut now_ms), report_delay_ms(7, 200, seq));
        }
    }

    #[test]
    fn a_shorter_time_counts_at_once_and_a_longer_one_later() {
        let (mut times, mut now_ms) = (HeartbeatTimes::new(NodeId(7), pace(600, 1), 0), 0);
        waited(&mut times, &mut now_ms);
        times.follow(pace(10, 1), now_ms);
        assert!(waited(&mut times, &mut now_ms) < 10_000);
        times.follow(pace(300, 1), now_ms);
        assert!(waited(&mut times, &mut now_ms) < 10_000);
        assert!(waited(&mut times, &mut now_ms) > 299_000);
    }

    #[test]
    fn what_is_urgent_goes_at_once_and_changes_no_later_one() {
        let (mut times, now_ms) = (HeartbeatTimes::new(NodeId(7), pace(200, 1), 0), 1_000);
        let urgent = Pace {
            urgent: 1,
            ..pace(200, 1)
        };
        assert!(!times.is_due(now_ms));
        times.follow(urgent, now_ms);
        assert!(times.is_due(now_ms) && !times.is_due(now_ms));
        times.follow(urgent, now_ms);
        assert!(times.due_ms() > now_ms + 1_000);
    }

    #[test]
    fn a_new_session_takes_its_place_anew() {
        let (mut times, mut now_ms) = (HeartbeatTimes::new(NodeId(7), pace(100, 1), 0), 0);
        waited(&mut times, &mut now_ms);
        times.follow(pace(100, 2), now_ms);
        assert_eq!(waited(&mut times, &mut now_ms), report_delay_ms(7, 100, 0));
    }
}
