//! When a node that does not answer pings counts as silent. The HTTP/2 library would end the connection before it reads what
//! has come meanwhile: a server that has too much to do would take its own lateness for the silence of its nodes.

use std::time::Duration;

use dhow_wire::grpc::KeepAlive;
use hyper::rt::Timer;

use super::coarse_timer::{CoarseTimer, now_ms};
use super::heard::LastHeard;

/// How long the HTTP/2 library waits for the answer to a ping: longer than anybody is silent.
pub(super) const PONG_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Between two looks the connection's task reads whatever has come. The timer goes off at whole seconds, and the first look is
/// at one: this is the next.
const SECOND_LOOK: Duration = Duration::from_millis(500);

/// Waits until nothing was heard for so long that a ping was sent and not answered, at two looks one after the other.
pub(super) async fn until_silent(heard: &LastHeard, keep_alive: KeepAlive) {
    let patience = keep_alive.every + keep_alive.timeout;
    loop {
        let read_ms = heard.read_ms();
        let silent = Duration::from_millis(now_ms().saturating_sub(read_ms));
        if let Some(rest) = patience.checked_sub(silent).filter(|rest| !rest.is_zero()) {
            CoarseTimer.sleep(rest).await;
            continue;
        }
        CoarseTimer.sleep(SECOND_LOOK).await;
        if heard.read_ms() == read_ms {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;
    use crate::clock::SystemClock;
    use crate::gateway::heard::HeardStream;

    #[tokio::test]
    async fn what_came_while_the_server_was_late_is_heard_before_it_judges() {
        let keep_alive = KeepAlive {
            every: Duration::from_millis(50),
            timeout: Duration::from_millis(50),
        };
        let (mut node, stream) = tokio::io::duplex(64);
        let mut stream = HeardStream::new(stream, Arc::new(SystemClock::new()));
        let heard = stream.last_heard();
        node.write_all(b"x").await.unwrap();
        // The server does nothing for longer than it would wait.
        std::thread::sleep(Duration::from_millis(300));
        let mut silent = std::pin::pin!(until_silent(&heard, keep_alive));
        tokio::select! {
            biased;
            () = silent.as_mut() => panic!("it has not looked twice"),
            () = std::future::ready(()) => {}
        }
        stream.read_u8().await.unwrap();
        let began = Instant::now();
        silent.await;
        assert!(
            began.elapsed() > SECOND_LOOK,
            "silent since the last sign, at two looks"
        );
    }
}
