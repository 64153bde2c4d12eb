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

    /// Whether anything came after this moment.
    fn is_heard_since(&self, since: Instant) -> bool {
        self.at() > since
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

/// How much a node takes from the server of one session. A server that is heard while it leaves a call unanswered has too
/// much to do: whoever left it would only cost it another handshake, and be missed meanwhile.
#[derive(Debug)]
pub(super) struct Patience {
    heard: Heard,
    /// Calls since the last one that was answered.
    unanswered: AtomicU32,
}

impl Patience {
    pub fn new(heard: Heard) -> Self {
        Self {
            heard,
            unanswered: AtomicU32::new(0),
        }
    }

    pub fn answered(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// A call that was made at this time was not answered; whether that is enough.
    pub fn is_over(&self, made: Instant) -> bool {
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        unanswered >= UNANSWERED_MAX || !self.heard.is_heard_since(made)
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_heard_may_leave_some_calls_unanswered() {
        let heard = Heard::new();
        let patience = Patience::new(heard.clone());
        let later = async || {
            let made = Instant::now();
            tokio::time::advance(Duration::from_secs(1)).await;
            made
        };
        assert!(patience.is_over(later().await), "it is silent");
        patience.answered();
        for _ in 1..UNANSWERED_MAX {
            let made = later().await;
            heard.now();
            assert!(!patience.is_over(made), "it has too much to do");
        }
        let made = later().await;
        heard.now();
        assert!(patience.is_over(made), "it never answers");
    }
}
