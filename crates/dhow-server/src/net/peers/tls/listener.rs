//! Listens to other servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dhow_wire::ByteStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::PeerListenError;
use super::frame;
use super::hello::{self, Hello, Refusal, Reply};
use super::limits::{DRAIN_DEADLINE, GUESTS_MAX, HANDSHAKE_TIMEOUT, HELLO_BYTES_MAX, PER_MEMBER_MAX};
use super::security::{Doorman, Unproved};
use super::serving::serve;
use super::transport::TlsTransport;
use crate::net::lobby::{FILES_LEFT, Lobby, LobbyLimits, Visit};
use crate::net::peers::PeerHandler;
use crate::net::tcp;

/// How long nothing is accepted after the host refused to: it is out of files, and asking at once again helps nobody.
const REST: Duration = Duration::from_millis(100);

/// A listener at work.
#[derive(Debug)]
pub struct Listening {
    /// With the port that the host has given.
    pub addr: SocketAddr,
    /// Ends after the cancellation.
    pub task: JoinHandle<()>,
}

/// Answers members until `cancel` is cancelled.
pub async fn listen(
    transport: &TlsTransport,
    addr: SocketAddr,
    handler: Arc<dyn PeerHandler>,
    cancel: CancellationToken,
) -> Result<Listening, PeerListenError> {
    let doorman = Doorman::new(&transport.0.options.tls).map_err(PeerListenError::Tls)?;
    let bound = tcp::listen(addr);
    let listener = bound.map_err(|cause| PeerListenError::Bind { addr, cause })?;
    let addr = listener
        .local_addr()
        .map_err(|cause| PeerListenError::Bind { addr, cause })?;
    let door = Arc::new(Door {
        transport: transport.clone(),
        doorman,
        handler,
        cancel,
        tasks: TaskTracker::new(),
    });
    let task = tokio::spawn(accept(listener, door));
    Ok(Listening { addr, task })
}

/// What every connection needs.
struct Door {
    transport: TlsTransport,
    doorman: Doorman,
    handler: Arc<dyn PeerHandler>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

async fn accept(listener: TcpListener, door: Arc<Door>) {
    let lobby = Lobby::new(LobbyLimits::of_host(GUESTS_MAX, PER_MEMBER_MAX, FILES_LEFT));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.cancel.cancelled() => break,
        };
        let (stream, addr) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection of another server cannot be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        // Whoever comes when all places are taken is sent away rather than kept waiting: it tries again.
        let Some(visit) = lobby.enter(addr).await else {
            door.refuse(addr, "too many connections have not said who they are");
            continue;
        };
        let serving = Arc::clone(&door);
        door.tasks.spawn(async move {
            tokio::select! {
                // Nothing is computed for one that has to go.
                biased;
                () = visit.over() => serving.refuse(addr, "others needed the place of its connection"),
                () = serving.receive(stream, addr, &visit) => {}
                () = serving.cancel.cancelled() => {}
            }
        });
    }
    drop(listener);
    door.tasks.close();
    if tokio::time::timeout(DRAIN_DEADLINE, door.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            open = door.tasks.len(),
            "answers to other servers are left unfinished"
        );
    }
}

impl Door {
    fn refuse(&self, addr: SocketAddr, why: &str) {
        self.transport.0.refusals.tell(addr.ip(), why);
    }

    async fn receive(&self, stream: TcpStream, addr: SocketAddr, visit: &Visit) {
        tcp::prepare(&stream);
        visit.turn().await;
        let known = tokio::time::timeout(HANDSHAKE_TIMEOUT, visit.compute(self.greet(stream))).await;
        let known = known.unwrap_or_else(|_| {
            Err(Unproved {
                why: "it did not say in time who it is".into(),
                is_refused: false,
            })
        });
        let (stream, hello) = match known {
            Ok(known) => known,
            Err(Unproved { why, is_refused }) => {
                if is_refused {
                    self.transport.0.options.refused.tell(addr.ip(), &why);
                }
                return self.refuse(addr, &why);
            }
        };
        visit.prove(Some(&format!("node {}", hello.from).into()));
        self.transport.meet(hello.from, hello.incarnation);
        let contacts = Arc::clone(&self.transport.0.contacts);
        contacts.heard(hello.from);
        let (handler, tasks) = (Arc::clone(&self.handler), &self.tasks);
        if let Err(why) = serve(stream, hello.from, handler, contacts, tasks).await {
            self.refuse(addr, &why);
        }
    }

    /// Hears who calls, and answers.
    async fn greet(&self, stream: TcpStream) -> Result<(Box<dyn ByteStream>, Hello), Unproved> {
        let (mut stream, proved) = self.doorman.accept(stream).await?;
        let frame = frame::read(&mut stream, HELLO_BYTES_MAX).await?;
        let hello: Hello = hello::decode(&frame).map_err(|unread| Unproved::refused(unread.to_string()))?;
        let own = &self.transport.0;
        let refusal = if proved != hello.from {
            Some(Refusal::Identity)
        } else if !hello::is_same_cluster(own.cluster_id(), hello.cluster_id.as_deref()) {
            Some(Refusal::Cluster)
        } else if hello.to != own.options.node.0 {
            Some(Refusal::Node)
        } else {
            None
        };
        let reply = match refusal {
            Some(refusal) => Reply::Refused(refusal),
            None => Reply::Welcome {
                cluster_id: own.cluster_id().map(str::to_owned),
                incarnation: own.incarnation,
            },
        };
        frame::write(&mut stream, &hello::encode(&reply)).await?;
        match refusal {
            Some(refusal) => Err(Unproved::refused(refusal.to_string())),
            None => Ok((stream, hello)),
        }
    }
}
