//! TLS on the API's port.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dhow_wire::ByteStream;
use dhow_wire::token::CaFingerprint;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::limits::{HANDSHAKE_TIMEOUT, HEADER_TIMEOUT};
use crate::net::identity::Peer;
use crate::net::keys::{
    IssueError, NodeTls, WorkerCa, WorkerIdentity, identity_of, is_refused_certificate, tls_refusal,
};
use crate::net::lobby::Visit;
use crate::net::tcp;

/// The first byte of every TLS connection: a handshake record. No HTTP request begins with it.
const TLS_FIRST_BYTE: u8 = 0x16;

/// What the API needs to be reached by others. Cheap to clone.
#[derive(Clone)]
pub struct ApiTls {
    acceptor: TlsAcceptor,
    fingerprint: CaFingerprint,
}

impl fmt::Debug for ApiTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiTls({})", self.fingerprint)
    }
}

/// What a connection turned out to be.
pub(super) enum Opened<S, P> {
    Tls(Box<TlsStream<S>>, Peer),
    Plain(P),
}

/// Why a connection is none.
pub(super) enum NotOpened {
    /// Nothing was shown that could be good or bad.
    Silent(String),
    Refused(String),
}

impl ApiTls {
    /// Members are known by their certificates, and the workers of these CAs.
    pub fn new(tls: &NodeTls, workers: &[WorkerCa]) -> Result<Self, rustls::Error> {
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(tls.server_config_api(workers)?)),
            fingerprint: tls.fingerprint(),
        })
    }

    /// Of a worker, which is called by servers of its cluster alone.
    pub fn of_worker(identity: &Arc<WorkerIdentity>) -> Result<Self, IssueError> {
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(identity.door_config()?)),
            fingerprint: identity.fingerprint(),
        })
    }

    pub(super) fn fingerprint(&self) -> CaFingerprint {
        self.fingerprint
    }

    /// Looks at the first byte. What is no TLS passes only where plain HTTP is served too.
    pub(super) async fn open(
        &self,
        stream: TcpStream,
        addr: SocketAddr,
        is_plain_served: bool,
        visit: &Visit,
    ) -> Result<Opened<TcpStream, TcpStream>, NotOpened> {
        let mut first = [0];
        // A browser or a pool may connect before it has something to say, which costs no more than a slow header.
        within(HEADER_TIMEOUT, stream.peek(&mut first)).await?;
        if first[0] != TLS_FIRST_BYTE {
            return match is_plain_served {
                true => Ok(Opened::Plain(stream)),
                false => Err(NotOpened::Silent(
                    "plain HTTP is not served on this address; use https://".into(),
                )),
            };
        }
        let stream = within(HANDSHAKE_TIMEOUT, visit.compute(self.acceptor.accept(stream))).await?;
        tcp::acknowledge(stream.get_ref().0);
        let peer = peer_of(&stream, addr)?;
        Ok(Opened::Tls(Box::new(stream), peer))
    }

    /// The same for a connection that this process has dialled: nothing but TLS is spoken on it.
    pub(super) async fn open_tunnel(
        &self,
        stream: Box<dyn ByteStream>,
        addr: SocketAddr,
        visit: &Visit,
    ) -> Result<(Box<TlsStream<Box<dyn ByteStream>>>, Peer), NotOpened> {
        let stream = within(HANDSHAKE_TIMEOUT, visit.compute(self.acceptor.accept(stream))).await?;
        let peer = peer_of(&stream, addr)?;
        Ok((Box::new(stream), peer))
    }
}

/// Who is at the other end, by the certificate that it has shown.
fn peer_of<S>(stream: &TlsStream<S>, addr: SocketAddr) -> Result<Peer, NotOpened> {
    let shown = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first());
    let identity = match shown {
        Some(leaf) => Some(
            identity_of(leaf)
                .ok_or_else(|| NotOpened::Refused("its certificate says nothing about who it is".into()))?,
        ),
        None => None,
    };
    Ok(Peer::Tls { addr, identity })
}

async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, NotOpened> {
    match tokio::time::timeout(timeout, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) if is_refused_certificate(&error) => Err(NotOpened::Refused(tls_refusal(&error))),
        Ok(Err(error)) => Err(NotOpened::Silent(tls_refusal(&error))),
        Err(_) => Err(NotOpened::Silent("it took too long".into())),
    }
}
