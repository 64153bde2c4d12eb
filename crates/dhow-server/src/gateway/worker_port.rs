//! The workers' own port: TLS ends here. Who joins has no certificate yet; everybody else is known by the one that it
//! shows, and one that has expired is good for its own renewal alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use dhow_wire::grpc::KeepAlive;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::limits::{ASKED_OFTEN_MAX, DRAIN_DEADLINE_MS, GUESTS_MAX, HANDSHAKE_TIMEOUT, PER_WORKER_MAX};
use super::node_gateway::{NodeGateway, routes};
use super::serve::{Connected, Door, serve_stream};
use super::tunnels;
use super::workers::ExpiredIdentity;
use crate::clock::Clock;
use crate::net::identity::{Identity, Peer};
use crate::net::keys::{
    ALPN_TUNNEL, NodeTls, Validity, WorkerCas, identity_of, is_refused_certificate, tls_refusal,
    worker_cluster_of,
};
use crate::net::lobby::{FILES_LEFT_BY_WORKERS, Lobby, LobbyLimits, Visit};
use crate::net::refused_log::RefusedLog;
use crate::net::tcp;
use crate::net::tunnels::Tunnels;
use crate::plane::runtime::RuntimeView;

/// How long nothing is accepted after the host refused to: it is out of files, and asking at once again helps nobody.
const REST: Duration = Duration::from_millis(100);

/// Why workers cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum WorkerPortError {
    #[error(
        "workers cannot be listened to at {addr}; is another daemon there? `worker_grpc_addr` says where"
    )]
    Bind {
        addr: SocketAddr,
        #[source]
        cause: std::io::Error,
    },
    #[error("TLS for the workers cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// What the port stands on.
pub struct WorkerPort {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    clock: Arc<dyn Clock>,
    view: RuntimeView,
    refused: RefusedLog,
}

/// A caller as its certificate shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shown {
    identity: Option<Identity>,
    expired: Option<ExpiredIdentity>,
}

impl WorkerPort {
    /// Opens the port: whoever connects waits until it is served.
    pub async fn bind(
        addr: SocketAddr,
        tls: &NodeTls,
        workers: Arc<WorkerCas>,
        clock: Arc<dyn Clock>,
        view: RuntimeView,
        refused: RefusedLog,
    ) -> Result<Self, WorkerPortError> {
        let config = tls.server_config_workers(workers);
        let config = config.map_err(WorkerPortError::Tls)?;
        let listener = tcp::listen(addr);
        let listener = listener.map_err(|cause| WorkerPortError::Bind { addr, cause })?;
        Ok(Self {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            clock,
            view,
            refused,
        })
    }

    /// With the port that the host has given.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `end`: then nothing new is taken, sessions are told, and connections have a moment to end.
    pub async fn serve(self, gateway: NodeGateway, end: CancellationToken) {
        let tunnels = gateway.inner.options.tunnels.clone();
        let (router, connections) = (routes(gateway), TaskTracker::new());
        let lobby = Lobby::new(LobbyLimits::of_host(
            GUESTS_MAX,
            PER_WORKER_MAX,
            FILES_LEFT_BY_WORKERS,
        ));
        let abort = CancellationToken::new();
        let port = Arc::new(self);
        loop {
            let (visit, stream, addr) = tokio::select! {
                () = end.cancelled() => break,
                next = port.next(&lobby) => match next {
                    Some(next) => next,
                    None => continue,
                },
            };
            let (port, served) = (Arc::clone(&port), (router.clone(), tunnels.clone()));
            let (end, abort) = (end.clone(), abort.clone());
            let keep_alive = match lobby.known() <= ASKED_OFTEN_MAX {
                true => KeepAlive::OFTEN,
                false => KeepAlive::SELDOM,
            };
            connections.spawn(async move {
                tokio::select! {
                    // Nothing is computed for one that has to go.
                    biased;
                    () = visit.over() => {}
                    () = port.receive((stream, addr), &visit, keep_alive, served, end) => {}
                    () = abort.cancelled() => {}
                }
            });
        }
        connections.close();
        let until_ms = port.clock.monotonic_ms().saturating_add(DRAIN_DEADLINE_MS);
        tokio::select! {
            () = connections.wait() => return,
            () = port.clock.sleep_until_monotonic(until_ms) => abort.cancel(),
        }
        connections.wait().await;
    }

    /// The next connection that finds room; one that finds none is closed, and tries again.
    async fn next(&self, lobby: &Lobby) -> Option<(Visit, TcpStream, SocketAddr)> {
        match self.listener.accept().await {
            Ok((stream, addr)) => Some((lobby.enter(addr).await?, stream, addr)),
            Err(error) => {
                tracing::warn!(%error, "a connection of a worker cannot be accepted");
                tokio::time::sleep(REST).await;
                None
            }
        }
    }

    async fn receive(
        &self,
        (stream, addr): (TcpStream, SocketAddr),
        visit: &Visit,
        keep_alive: KeepAlive,
        (router, tunnels): (Router, Tunnels),
        end: CancellationToken,
    ) {
        tcp::prepare(&stream);
        // On the heap for as long as it lasts: a session has no room for its handshake.
        let handshake = Box::pin(async {
            // Waiting for its turn is no fault of the caller's, and costs it nothing of its time.
            visit.turn().await;
            let accepted =
                tokio::time::timeout(HANDSHAKE_TIMEOUT, visit.compute(self.acceptor.accept(stream))).await;
            let accepted =
                accepted.map_err(|_| std::io::Error::other("it took too long to say who it is"))?;
            accepted.map(Box::new)
        });
        let stream = tokio::select! {
            stream = handshake => stream,
            () = end.cancelled() => return,
        };
        let stream = match stream {
            Ok(stream) => stream,
            // Anybody can cause this as often as they like, so that it stays out of the log.
            Err(error) => {
                let why = tls_refusal(&error);
                tracing::debug!(%addr, why, "a caller on the workers' port is refused");
                if is_refused_certificate(&error) {
                    self.refused.tell(addr.ip(), &why);
                }
                return;
            }
        };
        tcp::acknowledge(stream.get_ref().0);
        let Some(own) = self.view.state().cluster_id.clone() else {
            tracing::debug!(%addr, "this server does not know its cluster yet: a worker has to try again");
            return;
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let leaf = certificates.and_then(|chain| chain.first());
        let shown = leaf.map_or_else(Shown::default, |leaf| self.shown(leaf, &own));
        let peer = Peer::Tls {
            addr,
            identity: shown.identity,
        };
        if stream.get_ref().1.alpn_protocol() == Some(ALPN_TUNNEL) {
            if let Some(Identity::Worker(node)) = shown.identity {
                tunnels::serve(&tunnels, node, Box::new(stream), (visit, &self.view), &end).await;
            }
            return;
        }
        // A worker stays for as long as it likes; anybody else joins, or renews, and goes.
        if let Some(name) = peer.proved() {
            visit.prove(Some(&name));
        }
        let connected = Connected {
            stream,
            peer,
            expired: shown.expired,
            keep_alive,
            door: Some(Door {
                addr,
                visit: visit.clone(),
                refused: self.refused.clone(),
            }),
        };
        serve_stream(router, connected, Arc::clone(&self.clock), end).await;
    }

    /// Nobody, where the certificate is no worker's of this very cluster: another one may have had the same key.
    fn shown(&self, leaf: &CertificateDer<'_>, own: &str) -> Shown {
        if worker_cluster_of(leaf).as_deref() != Some(own) {
            return Shown::default();
        }
        let (Some(Identity::Worker(node)), Some(validity)) = (identity_of(leaf), Validity::of_leaf(leaf))
        else {
            return Shown::default();
        };
        let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
        match now_unix_secs > validity.not_after_unix_secs {
            false => Shown {
                identity: Some(Identity::Worker(node)),
                expired: None,
            },
            true => Shown {
                identity: None,
                expired: Some(ExpiredIdentity {
                    node,
                    expired_unix_secs: validity.not_after_unix_secs,
                }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::command::{ClusterCommand, Command};
    use dhow_core::ids::NodeId;
    use dhow_core::state::State;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::net::keys::{ClusterKey, WORKER_CERT_LIFETIME, WorkerKey};
    use crate::plane::leases::tests::support::{OWN, TestServer};

    async fn open(server: &TestServer, tls: &NodeTls, cas: &Arc<WorkerCas>) -> WorkerPort {
        let bootstrap = ClusterCommand::Bootstrap {
            cluster_id: "harbour".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        };
        server.write(Command::Cluster(bootstrap)).await;
        let port = WorkerPort::bind(
            ([127, 0, 0, 1], 0).into(),
            tls,
            Arc::clone(cas),
            Arc::new(server.clock.clone()),
            server.handle.view(),
            RefusedLog::new(None, Arc::new(server.clock.clone())),
        );
        port.await.unwrap()
    }

    fn tls_of(now_unix_secs: i64) -> (NodeTls, Arc<WorkerCas>) {
        let key = ClusterKey::generate().unwrap();
        let tls = NodeTls::new(&key, OWN, now_unix_secs).unwrap();
        let cas = WorkerCas::new(&key, Arc::clone(tls.ca()), 1, &[]).unwrap();
        (tls, Arc::new(cas))
    }

    #[tokio::test]
    async fn a_certificate_counts_for_its_cluster_and_its_time() {
        let server = TestServer::start(&[OWN.0]).await;
        let now_unix_secs = server.clock.wall_unix_ms() / 1_000;
        let (tls, cas) = tls_of(now_unix_secs);
        let port = open(&server, &tls, &cas).await;
        let csr_pem = WorkerKey::generate().unwrap().csr_pem().unwrap();
        let shown = |cluster: &str, made: i64| {
            let chain = cas.issue(&csr_pem, NodeId(40), cluster, made).unwrap();
            port.shown(
                &CertificateDer::from_pem_slice(chain.as_bytes()).unwrap(),
                "harbour",
            )
        };
        let known = Shown {
            identity: Some(Identity::Worker(NodeId(40))),
            expired: None,
        };
        assert_eq!(shown("harbour", now_unix_secs), known);
        assert_eq!(shown("another", now_unix_secs), Shown::default());
        let life_secs = i64::try_from(WORKER_CERT_LIFETIME.as_secs()).unwrap();
        let expired = Shown {
            identity: None,
            expired: Some(ExpiredIdentity {
                node: NodeId(40),
                expired_unix_secs: now_unix_secs - 1,
            }),
        };
        assert_eq!(shown("harbour", now_unix_secs - life_secs - 1), expired);
        assert_eq!(
            shown("harbour", now_unix_secs - life_secs),
            known,
            "its last second"
        );
    }
}
