//! The daemon's side of the socket store: finds the one of a proxy's folder, starts it where there is none, and ends it
//! with the last proxy.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use dhow_driver::shim::ShimClient;
use tokio::sync::Mutex;

use crate::proxy::error::ProxyError;
use crate::proxy::kept_sockets::{self, StoreConnection};

/// The socket store of a proxy's folder.
pub struct SocketStore {
    dir: PathBuf,
    /// One start at a time.
    starting: Mutex<()>,
}

impl SocketStore {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            starting: Mutex::default(),
        }
    }

    /// A connection to the store that runs; starts one where none does.
    pub async fn find(&self, shim: &ShimClient) -> Result<OwnedFd, ProxyError> {
        let _starting = self.starting.lock().await;
        match kept_sockets::connect(&self.dir) {
            Ok(connected) => return Ok(connected),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(self.failed("reaching the socket store of", error)),
        }
        let listener = kept_sockets::listen(&self.dir)
            .map_err(|error| self.failed("making a socket store for", error))?;
        shim.keep_sockets(listener).await.map_err(ProxyError::Start)?;
        kept_sockets::connect(&self.dir).map_err(|error| self.failed("reaching the socket store of", error))
    }

    /// Returns when there is no store, or none any more.
    pub async fn ended(&self) {
        if let Ok(connection) = self.connection() {
            connection.closed().await;
        }
    }

    /// Ends the store with all that it holds.
    pub async fn end(&self) -> Result<(), ProxyError> {
        if let Ok(connection) = self.connection() {
            let ended = connection.end().await;
            ended.map_err(|error| self.failed("ending the socket store of", error))?;
        }
        kept_sockets::remove(&self.dir).map_err(|error| self.failed("clearing", error))
    }

    fn connection(&self) -> io::Result<StoreConnection> {
        StoreConnection::new(kept_sockets::connect(&self.dir)?)
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> ProxyError {
        let path = self.dir.clone();
        ProxyError::File { doing, path, source }
    }
}

/// Nobody listens: the folder, the socket or the process behind it is missing.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}
