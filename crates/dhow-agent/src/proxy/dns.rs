//! The name server of this node's containers: names of services from the table, all others from the host's own servers.
//!
//! It listens in the proxy's network, over UDP and TCP. Whatever a packet holds, it is answered or dropped; nothing that
//! a container sends makes it wait for anything but its own question.

mod cache;
mod packet;
mod upstream;
mod zone;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bind::Socket;
use super::table::{Names, Transport, WantedService};
use super::wants::Wants;
use packet::{Read, encoded, read};
use upstream::{AskerPlace, Asking, Upstream};
use zone::{Answer, Zone};

const PORT: u16 = 53;
/// The longest datagram that IP can carry; no question has more than 600 bytes.
const DATAGRAM_MAX_BYTES: usize = 64 << 10;
/// TCP connections at once: resolvers use one for the few answers that no datagram holds.
const STREAMS_MAX: usize = 128;
/// The same of one container, so that one that keeps them open leaves room to others.
const STREAMS_OF_ONE_MAX: usize = 16;
/// How long a TCP client may take for its next question, and for taking an answer.
const STREAM_IDLE: Duration = Duration::from_secs(10);
/// Questions on one TCP connection, one after the other.
const STREAM_QUESTIONS_MAX: usize = 1000;
/// How long servers may take to say whether there is a service that nobody here has asked for before: less than the
/// five seconds for which resolvers wait, so that they hear why there is no answer.
const AWAIT_MAX: Duration = Duration::from_secs(2);
/// Questions that wait for servers at once, and those of one container.
const AWAITED_MAX: usize = 512;
const AWAITED_BY_ONE_MAX: usize = 64;
/// For want of descriptors or memory, reading pauses instead of spinning.
const PAUSE: Duration = Duration::from_millis(20);

/// Answers names as the last table says. The balancer gives it tables and sockets.
pub struct NameServer {
    tasks: TaskTracker,
    answering: watch::Sender<Arc<Answering>>,
    running: Mutex<Running>,
    /// Told of names that nobody here has asked for before.
    wants: Arc<Wants>,
    awaited: Arc<Asking>,
}

/// The sockets that are listened on.
#[derive(Default)]
struct Running {
    addr: Option<SocketAddr>,
    sockets: Vec<(Transport, Socket)>,
    stop: CancellationToken,
}

/// What every question is answered from.
struct Answering {
    zone: Zone,
    upstream: Arc<Upstream>,
}

/// Where questions are taken: what they are answered from, and who is told of names that are not known yet.
#[derive(Clone)]
struct Desk {
    answering: watch::Receiver<Arc<Answering>>,
    wants: Arc<Wants>,
    awaited: Arc<Asking>,
}

impl Desk {
    /// What can be said to a question without waiting for anybody. Whoever finds something that is told of on demand keeps
    /// it known here.
    fn at_once(&self, now: &Answering, question: &[u8], asker: IpAddr, way: Way) -> AtOnce {
        let (at_once, found) = now.at_once(question, asker, way);
        if let Some(found) = found {
            self.wants.found(&found, asker, std::time::Instant::now());
        }
        at_once
    }

    /// Whether one more question can wait for servers now.
    fn place(&self, asker: IpAddr) -> Option<AskerPlace> {
        self.awaited.place(asker, AWAITED_MAX, AWAITED_BY_ONE_MAX)
    }

    /// Has the node ask for a service, and answers once servers have said what there is of it.
    async fn awaited(
        mut self,
        request: &packet::Request,
        wanted: &WantedService,
        asker: IpAddr,
        way: Way,
    ) -> Vec<u8> {
        let failed = || encoded(&request.failed(ResponseCode::ServFail), request.room(way));
        if !self.wants.want(wanted, Some(asker), std::time::Instant::now()) {
            return failed();
        }
        let said = timeout(AWAIT_MAX, async {
            loop {
                let now = self.answering.borrow_and_update().clone();
                match now.zone.answer(request, asker) {
                    Answer::Here(answer, _) => return Some(encoded(&answer, request.room(way))),
                    Answer::Elsewhere => return None,
                    Answer::Wanted(_) => {}
                }
                if self.answering.changed().await.is_err() {
                    return None;
                }
            }
        });
        said.await.ok().flatten().unwrap_or_else(failed)
    }
}

/// How a question came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Datagram,
    Stream,
}

impl NameServer {
    pub fn new(tasks: TaskTracker, wants: Arc<Wants>) -> Self {
        let answering = Answering {
            zone: Zone::default(),
            upstream: Arc::new(Upstream::new(Vec::new())),
        };
        Self {
            tasks,
            answering: watch::Sender::new(Arc::new(answering)),
            running: Mutex::default(),
            wants,
            awaited: Arc::default(),
        }
    }

    /// Answers by these names from now on. Gives the sockets that it lacks.
    pub fn learn(&self, names: Option<&Names>) -> Vec<(Transport, SocketAddr)> {
        let dns = names.and_then(|names| names.dns.as_ref());
        let wanted = dns.map(|dns| SocketAddr::from((dns.addr, PORT)));
        let mut running = self.running();
        if running.addr != wanted {
            running.stop.cancel();
            *running = Running {
                addr: wanted,
                ..Running::default()
            };
        }
        let (Some(names), Some(dns), Some(addr)) = (names, dns, wanted) else {
            return Vec::new();
        };
        let before = self.answering.borrow().clone();
        let upstream = match before.upstream.servers() == dns.upstream.as_slice() {
            true => before.upstream.clone(),
            false => Arc::new(Upstream::new(dns.upstream.clone())),
        };
        let zone = Zone::new(names, dns);
        self.answering
            .send_replace(Arc::new(Answering { zone, upstream }));
        let has = |transport| running.sockets.iter().any(|(found, _)| *found == transport);
        let both = [Transport::Datagram, Transport::Stream];
        let missing = both.into_iter().filter(|transport| !has(*transport));
        missing.map(|transport| (transport, addr)).collect()
    }

    /// Answers on a socket of its address.
    pub fn listen(&self, addr: SocketAddr, socket: Socket) {
        let mut running = self.running();
        if running.addr != Some(addr) {
            return;
        }
        let (stop, answering) = (running.stop.clone(), self.answering.subscribe());
        match &socket {
            Socket::Datagram(datagrams) => {
                let serving = datagrams_served(datagrams.clone(), self.desk(answering), self.tasks.clone());
                let serving = until(stop, serving);
                self.tasks.spawn(serving);
                running.sockets.push((Transport::Datagram, socket));
            }
            Socket::Stream(listener) => {
                let serving = streams_served(listener.clone(), self.desk(answering), self.tasks.clone());
                self.tasks.spawn(until(stop, serving));
                running.sockets.push((Transport::Stream, socket));
            }
        }
    }

    fn desk(&self, answering: watch::Receiver<Arc<Answering>>) -> Desk {
        Desk {
            answering,
            wants: Arc::clone(&self.wants),
            awaited: Arc::clone(&self.awaited),
        }
    }

    pub fn sockets(&self) -> Vec<(Transport, SocketAddr, Socket)> {
        let running = self.running();
        let Some(addr) = running.addr else {
            return Vec::new();
        };
        let sockets = running.sockets.iter();
        sockets
            .map(|(transport, socket)| (*transport, addr, socket.clone()))
            .collect()
    }

    /// Reads no question any more.
    pub fn end(&self) {
        let mut running = self.running();
        running.stop.cancel();
        *running = Running::default();
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // Nothing that runs under the lock leaves it half changed.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn until(stop: CancellationToken, serving: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = serving => {}
    }
}

async fn datagrams_served(socket: Arc<UdpSocket>, desk: Desk, tasks: TaskTracker) {
    let mut datagram = Vec::with_capacity(DATAGRAM_MAX_BYTES);
    loop {
        datagram.clear();
        let Ok((_, asker)) = socket.recv_buf_from(&mut datagram).await else {
            // An asker that has gone makes the next read fail: that is no reason to stop.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let now = desk.answering.borrow().clone();
        match desk.at_once(&now, &datagram, asker.ip(), Way::Datagram) {
            AtOnce::Answer(answer) => {
                // One that does not fit into the kernel's queue is asked for again.
                let _ = socket.try_send_to(&answer, asker);
            }
            AtOnce::Ask(request) => {
                let Some(place) = now.upstream.place(asker.ip()) else {
                    let refused = request.failed(ResponseCode::ServFail);
                    let _ = socket.try_send_to(&encoded(&refused, request.room(Way::Datagram)), asker);
                    continue;
                };
                let socket = socket.clone();
                tasks.spawn(async move {
                    let answer = now.upstream.answer(&request, Way::Datagram).await;
                    drop(place);
                    let _ = socket.try_send_to(&answer, asker);
                });
            }
            AtOnce::Await(request, wanted) => {
                let (socket, desk) = (socket.clone(), desk.clone());
                let Some(place) = desk.place(asker.ip()) else {
                    let refused = request.failed(ResponseCode::ServFail);
                    let _ = socket.try_send_to(&encoded(&refused, request.room(Way::Datagram)), asker);
                    continue;
                };
                tasks.spawn(async move {
                    let answer = desk.awaited(&request, &wanted, asker.ip(), Way::Datagram).await;
                    drop(place);
                    let _ = socket.try_send_to(&answer, asker);
                });
            }
            AtOnce::Nothing => {}
        }
    }
}

async fn streams_served(listener: Arc<TcpListener>, desk: Desk, tasks: TaskTracker) {
    let room = Arc::new(Semaphore::new(STREAMS_MAX));
    let crowd = Arc::new(Asking::default());
    while let Ok(permit) = room.clone().acquire_owned().await {
        let Ok((stream, asker)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(place) = crowd.place(asker.ip(), STREAMS_MAX, STREAMS_OF_ONE_MAX) else {
            continue;
        };
        let desk = desk.clone();
        tasks.spawn(async move {
            // How it ended is the asker's affair.
            let _ = converse(stream, asker.ip(), desk).await;
            drop((permit, place));
        });
    }
}

async fn converse(mut stream: TcpStream, asker: IpAddr, desk: Desk) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    for _ in 0..STREAM_QUESTIONS_MAX {
        let question = timeout(STREAM_IDLE, read_framed(&mut stream))
            .await
            .map_err(late)??;
        let now = desk.answering.borrow().clone();
        let answer = match desk.at_once(&now, &question, asker, Way::Stream) {
            AtOnce::Answer(answer) => answer,
            AtOnce::Ask(request) => match now.upstream.place(asker) {
                Some(_place) => now.upstream.answer(&request, Way::Stream).await,
                None => encoded(&request.failed(ResponseCode::ServFail), request.room(Way::Stream)),
            },
            AtOnce::Await(request, wanted) => match desk.place(asker) {
                Some(_place) => desk.clone().awaited(&request, &wanted, asker, Way::Stream).await,
                None => encoded(&request.failed(ResponseCode::ServFail), request.room(Way::Stream)),
            },
            AtOnce::Nothing => return Ok(()),
        };
        timeout(STREAM_IDLE, write_framed(&mut stream, &answer))
            .await
            .map_err(late)??;
    }
    Ok(())
}

/// Two bytes of length stand before every message on a stream.
async fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut framed = Vec::with_capacity(message.len() + 2);
    framed.extend(length.to_be_bytes());
    framed.extend(message);
    stream.write_all(&framed).await
}

/// What can be said of a packet without asking anybody.
enum AtOnce {
    Answer(Vec<u8>),
    Ask(packet::Request),
    /// Servers are asked whether there is such a service.
    Await(packet::Request, WantedService),
    /// It is no question, or not even that can be seen.
    Nothing,
}

impl Answering {
    /// With the service that was found, or found not to be there, where it is told of on demand.
    fn at_once(&self, packet: &[u8], asker: IpAddr, way: Way) -> (AtOnce, Option<WantedService>) {
        let request = match read(packet) {
            Read::Request(request) => request,
            Read::Broken(answer) => return (AtOnce::Answer(answer), None),
            Read::Nothing => return (AtOnce::Nothing, None),
        };
        let (answer, found) = match self.zone.answer(&request, asker) {
            Answer::Here(answer, found) => (answer, found),
            Answer::Wanted(wanted) => return (AtOnce::Await(request, wanted), None),
            Answer::Elsewhere => match self.upstream.cached(&request) {
                Some(answer) => (answer, None),
                None => return (AtOnce::Ask(request), None),
            },
        };
        (AtOnce::Answer(encoded(&answer, request.room(way))), found)
    }
}

#[cfg(test)]
mod tests;
