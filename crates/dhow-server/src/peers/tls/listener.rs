//! Listens to other servers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::PeerListenError;
use super::frame;
use super::hello::{self, Hello, Refusal, Reply};
use super::limits::{
    CONNECTIONS_MAX, DRAIN_DEADLINE, HANDSHAKE_TIMEOUT, HELLO_BYTES_MAX, STRANGERS_PER_ADDRESS_MAX,
};
use super::security::{Doorman, Io};
use super::serving::serve;
use super::transport::TlsTransport;
use crate::peers::PeerHandler;
use crate::tcp;

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
    let bound = TcpListener::bind(addr).await;
    let listener = bound.map_err(|cause| PeerListenError::Bind { addr, cause })?;
    let addr = listener
        .local_addr()
        .map_err(|cause| PeerListenError::Bind { addr, cause })?;
    let door = Arc::new(Door {
        transport: transport.clone(),
        doorman,
        handler,
        cancel,
        strangers: Mutex::default(),
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
    /// Connections by address that have not said who they are.
    strangers: Mutex<BTreeMap<IpAddr, usize>>,
    tasks: TaskTracker,
}

async fn accept(listener: TcpListener, door: Arc<Door>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            door.refuse(addr, "too many connections are open");
            continue;
        };
        let Some(stranger) = Stranger::enter(&door, addr.ip()) else {
            door.refuse(addr, "too many of its connections have not said who they are");
            continue;
        };
        let serving = Arc::clone(&door);
        door.tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                () = serving.receive(stream, addr, stranger) => {}
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

/// Counts one connection whose caller is not known yet.
struct Stranger {
    door: Arc<Door>,
    ip: IpAddr,
}

impl Stranger {
    fn enter(door: &Arc<Door>, ip: IpAddr) -> Option<Self> {
        let mut strangers = door.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = strangers.entry(ip).or_default();
        if *count >= STRANGERS_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        let door = Arc::clone(door);
        Some(Self { door, ip })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = self.door.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = strangers.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.ip);
            }
        }
    }
}

impl Door {
    fn refuse(&self, addr: SocketAddr, why: &str) {
        self.transport.0.refusals.tell(addr.ip(), why);
    }

    async fn receive(&self, stream: TcpStream, addr: SocketAddr, stranger: Stranger) {
        tcp::prepare(&stream);
        let known = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.greet(stream)).await;
        drop(stranger);
        let known = known.unwrap_or_else(|_| Err("it did not say in time who it is".into()));
        let (stream, hello) = match known {
            Ok(known) => known,
            Err(why) => return self.refuse(addr, &why),
        };
        self.transport.meet(hello.from, hello.incarnation);
        let contacts = Arc::clone(&self.transport.0.contacts);
        contacts.heard(hello.from);
        let (handler, tasks) = (Arc::clone(&self.handler), &self.tasks);
        if let Err(why) = serve(stream, hello.from, handler, contacts, tasks).await {
            self.refuse(addr, &why);
        }
    }

    /// Hears who calls, and answers.
    async fn greet(&self, stream: TcpStream) -> Result<(Box<dyn Io>, Hello), String> {
        let (mut stream, proved) = self.doorman.accept(stream).await?;
        let failed = |error: std::io::Error| crate::keys::tls_refusal(&error);
        let frame = frame::read(&mut stream, HELLO_BYTES_MAX).await.map_err(failed)?;
        let hello: Hello = hello::decode(&frame).map_err(|unread| unread.to_string())?;
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
        frame::write(&mut stream, &hello::encode(&reply))
            .await
            .map_err(failed)?;
        match refusal {
            Some(refusal) => Err(refusal.to_string()),
            None => Ok((stream, hello)),
        }
    }
}
