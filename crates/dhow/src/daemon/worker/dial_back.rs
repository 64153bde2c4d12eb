//! Connections that this worker dials to its server because the server asked for them: the server calls the worker's door on
//! them, as if it had dialled the worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::{DialBack, Endpoint};
use dhow_server::api::Tunneled;
use dhow_server::net::keys::{ALPN_TUNNEL, WorkerIdentity};
use dhow_server::net::peer_http::dial_server;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// Connections that are being dialled at a time: as many as a server may have of one worker.
const DIALS_MAX: usize = 32;
/// A server that asks waits no longer than this.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Dials back, and hands what it has dialled to the worker's API.
pub struct Dialling {
    identity: Arc<WorkerIdentity>,
    served: mpsc::Sender<Tunneled>,
    room: Arc<Semaphore>,
}

impl Dialling {
    pub fn new(identity: Arc<WorkerIdentity>) -> (Self, mpsc::Receiver<Tunneled>) {
        let (served, tunnels) = mpsc::channel(DIALS_MAX);
        let room = Arc::new(Semaphore::new(DIALS_MAX));
        let dialling = Self {
            identity,
            served,
            room,
        };
        (dialling, tunnels)
    }
}

impl DialBack for Dialling {
    fn dial(&self, server: &Endpoint, number: Vec<u8>) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::warn!("the server asks for more connections than this worker dials at a time");
            return;
        };
        let (identity, served) = (Arc::clone(&self.identity), self.served.clone());
        let address = server.address.clone();
        tokio::spawn(async move {
            let _place = place;
            match timeout(DIAL_TIMEOUT, dial(&identity, &address, &number)).await {
                // The API ends with the daemon.
                Ok(Ok(tunneled)) => drop(served.try_send(tunneled)),
                Ok(Err(error)) => {
                    tracing::info!(address, %error, "the server asks for a connection, and cannot be dialled")
                }
                Err(_) => tracing::info!(
                    address,
                    "the server asks for a connection, and does not answer in time"
                ),
            }
        });
    }
}

/// To the address of the session and to nobody else, with this worker's certificate; the number says what it is for.
async fn dial(identity: &Arc<WorkerIdentity>, address: &str, number: &[u8]) -> std::io::Result<Tunneled> {
    let mut config = identity.client_config().map_err(std::io::Error::other)?;
    config.alpn_protocols = vec![ALPN_TUNNEL.to_vec()];
    let mut stream = dial_server(address, config).await?;
    stream.write_all(number).await?;
    stream.flush().await?;
    // For the log alone: who calls is proved by its certificate.
    let addr = address
        .parse()
        .unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok(Tunneled { stream, addr })
}
