//! The host's own name servers, asked for every name that is not of the cluster.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::cache::{Cache, ENTRY_MAX_BYTES};
use super::packet::{HEAD_BYTES, Request, encoded};
use super::{Way, read_framed, write_framed};

/// Questions under way: each has a descriptor for as long as its servers may take.
const ASKED_MAX: usize = 512;
/// The same of one asker, so that a container that asks for everything leaves room to others.
const ASKED_BY_ONE_MAX: usize = 64;
/// Two servers and a second look at the first fit into the five seconds for which resolvers wait.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1500);
const ATTEMPTS_MAX: usize = 3;
const DATAGRAM_MAX_BYTES: usize = 64 << 10;

/// The servers, what they have said, and who is asking them.
pub struct Upstream {
    servers: Vec<SocketAddr>,
    /// The one that answered last is asked first.
    preferred: AtomicUsize,
    cache: Cache,
    asking: Arc<Asking>,
}

/// How much each asker has under way.
#[derive(Default)]
pub struct Asking {
    by_asker: Mutex<HashMap<IpAddr, usize>>,
}

/// One asker's right to have one thing under way.
pub struct AskerPlace {
    asking: Arc<Asking>,
    asker: IpAddr,
}

impl Upstream {
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self {
            servers,
            preferred: AtomicUsize::new(0),
            cache: Cache::default(),
            asking: Arc::default(),
        }
    }

    pub fn servers(&self) -> &[SocketAddr] {
        &self.servers
    }

    /// Whether one more question can be passed on now.
    pub fn place(&self, asker: IpAddr) -> Option<AskerPlace> {
        self.asking.place(asker, ASKED_MAX, ASKED_BY_ONE_MAX)
    }

    pub fn cached(&self, request: &Request) -> Option<Message> {
        self.cache.get(request, Instant::now())
    }

    /// Asks one server after the other; what comes of it has the asker's number.
    pub async fn answer(&self, request: &Request, way: Way) -> Vec<u8> {
        let room = request.room(way);
        let Some(mut answer) = self.ask_all(request, way).await else {
            return encoded(&request.failed(ResponseCode::ServFail), room);
        };
        if let (Some(own), Some(theirs)) = (request.bytes.get(..2), answer.get_mut(..2)) {
            theirs.copy_from_slice(own);
        }
        // One that cannot be read here may be read by who asked.
        let read = Message::from_vec(&answer).ok();
        if answer.len() > room {
            let cut = |message: &Message| encoded(&message.truncate(), room);
            let failed = || encoded(&request.failed(ResponseCode::ServFail), room);
            return read.as_ref().map_or_else(failed, cut);
        }
        if let Some(message) = read
            && answer.len() <= ENTRY_MAX_BYTES
        {
            self.cache.put(request, message, Instant::now());
        }
        answer
    }

    async fn ask_all(&self, request: &Request, way: Way) -> Option<Vec<u8>> {
        let count = self.servers.len();
        if count == 0 {
            return None;
        }
        let first = self.preferred.load(Ordering::Relaxed);
        for attempt in 0..ATTEMPTS_MAX {
            let at = (first + attempt) % count;
            let server = *self.servers.get(at)?;
            let question = with_id(&request.bytes, rand::random());
            let asked = async {
                match way {
                    Way::Datagram => ask_by_datagram(server, &question).await,
                    Way::Stream => ask_by_stream(server, &question).await,
                }
            };
            if let Ok(Ok(answer)) = timeout(ATTEMPT_TIMEOUT, asked).await {
                self.preferred.store(at, Ordering::Relaxed);
                return Some(answer);
            }
        }
        None
    }
}

impl Asking {
    /// A place for one more, of so many of all askers and so many of one.
    pub fn place(self: &Arc<Self>, asker: IpAddr, all_max: usize, one_max: usize) -> Option<AskerPlace> {
        let mut by_asker = self.lock();
        let all: usize = by_asker.values().sum();
        let own = by_asker.get(&asker).copied().unwrap_or(0);
        if all >= all_max || own >= one_max {
            return None;
        }
        by_asker.insert(asker, own + 1);
        drop(by_asker);
        Some(AskerPlace {
            asking: Arc::clone(self),
            asker,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.by_asker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AskerPlace {
    fn drop(&mut self) {
        let mut by_asker = self.asking.lock();
        if let Some(own) = by_asker.get_mut(&self.asker) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                by_asker.remove(&self.asker);
            }
        }
    }
}

/// A number that nobody can guess, on a port of the kernel's choice.
fn with_id(question: &[u8], id: u16) -> Vec<u8> {
    let mut question = question.to_owned();
    if let Some(head) = question.get_mut(..2) {
        head.copy_from_slice(&id.to_be_bytes());
    }
    question
}

async fn ask_by_datagram(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    loop {
        let mut answer = Vec::with_capacity(DATAGRAM_MAX_BYTES);
        socket.recv_buf(&mut answer).await?;
        // Others may send too; the right one comes until the time is over.
        if answers(&answer, question) {
            return Ok(answer);
        }
    }
}

async fn ask_by_stream(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write_framed(&mut stream, question).await?;
    let answer = read_framed(&mut stream).await?;
    match answers(&answer, question) {
        true => Ok(answer),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether this is an answer to that: the same number and, where it repeats the question, the same question.
fn answers(answer: &[u8], question: &[u8]) -> bool {
    let is_response = answer.get(2).is_some_and(|byte| byte & 0x80 != 0);
    let same_id = answer.get(..2) == question.get(..2);
    let asked = question_of(question);
    let repeated = question_of(answer);
    // A server that fails may leave the question out.
    let same_question = match (asked, repeated) {
        (Some(asked), Some(repeated)) => asked.eq_ignore_ascii_case(repeated),
        (_, None) => answer.get(4..6) == Some(&[0, 0]),
        (None, Some(_)) => false,
    };
    is_response && same_id && same_question
}

/// The bytes of the one question: labels up to the root, kind and class.
fn question_of(message: &[u8]) -> Option<&[u8]> {
    if message.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEAD_BYTES;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1 + length;
        // The first name has nothing before it that it could point to.
        match length {
            0 => break,
            1..=63 => {}
            _ => return None,
        }
    }
    message.get(HEAD_BYTES..at + 4)
}
