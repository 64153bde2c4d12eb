//! When a server was last heard: any byte counts. A server pings its nodes at least every 21 seconds, so that one which
//! hangs is known by its silence, and costs no message to find.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dhow_wire::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use crate::limits::{SERVER_SILENT_MAX, UNANSWERED_MAX};

/// When the last byte of a server came over one connection; clones are of the same connection. The link gives a session
/// up when that was too long ago.
#[derive(Clone, Debug)]
pub(super) struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn at(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// The connection, which notes from now on when it is heard.
    pub fn listen(
        &self,
        stream: Box<dyn ByteStream>,
    ) -> impl AsyncRead + AsyncWrite + Send + Unpin + 'static {
        let heard = self.clone();
        InspectReader::new(stream, move |_: &[u8]| heard.now())
    }

    /// Waits until nothing was heard for too long.
    pub async fn silent(&self) {
        loop {
            let until = self.at() + SERVER_SILENT_MAX;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// How many calls of one session may go unanswered. A server that is not silent and leaves a call unanswered has too much to
/// do: whoever left it would only cost it another handshake, and be missed meanwhile.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Calls since the last one that was answered.
    unanswered: AtomicU32,
}

impl Patience {
    pub fn answered(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// A call was not answered; whether that is enough.
    pub fn is_over(&self) -> bool {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_last_byte() {
        let (mut server, client) = duplex(64);
        let heard = Heard::new();
        let mut connection = heard.listen(Box::new(client));
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(20)).await;
        server.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        connection.write_all(b"own words are no sign").await.unwrap();
        heard.silent().await;
        let silent_at = Duration::from_secs(20) + SERVER_SILENT_MAX;
        assert_eq!(began.elapsed().as_secs(), silent_at.as_secs());
    }

    #[test]
    fn a_server_may_leave_some_calls_unanswered() {
        let patience = Patience::default();
        for _ in 0..2 {
            for _ in 1..UNANSWERED_MAX {
                assert!(!patience.is_over(), "it has too much to do");
            }
            patience.answered();
        }
        for _ in 1..UNANSWERED_MAX {
            assert!(!patience.is_over());
        }
        assert!(patience.is_over(), "it never answers");
    }
}
