//! When a server was last heard: any byte counts. A server pings its nodes at least every 21 seconds, so that one which
//! hangs is known by its silence, and costs no message to find.

use std::sync::{Arc, Mutex, PoisonError};

use dhow_wire::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use crate::limits::SERVER_SILENT_MAX;

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
}
