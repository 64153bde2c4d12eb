//! When a node that does not answer pings counts as silent. The HTTP/2 library would end the connection before it reads what
//! has come meanwhile: a server that has too much to do would take its own lateness for the silence of its nodes.

use std::time::Duration;

use dhow_wire::grpc::KeepAlive;
use hyper::rt::Timer;

use super::coarse_timer::CoarseTimer;
use super::heard::LastHeard;
use crate::clock::Clock;

/// How long the HTTP/2 library waits for the answer to a ping: longer than anybody is silent.
pub(super) const PONG_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Between two looks the connection's task reads whatever has come.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Waits until nothing was heard for so long that a ping was sent and not answered, at two looks one after the other.
pub(super) async fn until_silent(heard: &LastHeard, keep_alive: KeepAlive, clock: &dyn Clock) {
    let patience_ms = whole_ms(keep_alive.every + keep_alive.timeout);
    loop {
        let last_ms = heard.ms();
        let silent_ms = clock.monotonic_ms().saturating_sub(last_ms);
        if silent_ms < patience_ms {
            CoarseTimer
                .sleep(Duration::from_millis(patience_ms - silent_ms))
                .await;
            continue;
        }
        CoarseTimer.sleep(SECOND_LOOK).await;
        if heard.ms() == last_ms {
            return;
        }
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::clock::SystemClock;
    use crate::gateway::heard::HeardStream;

    #[tokio::test]
    async fn what_came_while_the_server_was_late_is_heard_before_it_judges() {
        let clock = Arc::new(SystemClock::new());
        let keep_alive = KeepAlive {
            every: Duration::from_millis(50),
            timeout: Duration::from_millis(50),
        };
        let stream = HeardStream::new(tokio::io::empty(), clock.clone());
        let heard = stream.last_heard();
        // The server does nothing for longer than it would wait.
        std::thread::sleep(Duration::from_millis(300));
        let mut silent = std::pin::pin!(until_silent(&heard, keep_alive, clock.as_ref()));
        tokio::select! {
            biased;
            () = silent.as_mut() => panic!("it has not looked twice"),
            () = std::future::ready(()) => {}
        }
        heard.renewed_at(clock.monotonic_ms() + 1);
        let (began, ends_at_least) = (Instant::now(), Duration::from_secs(1));
        silent.await;
        assert!(
            began.elapsed() > ends_at_least,
            "silent since the last sign, at two looks"
        );
    }
}
