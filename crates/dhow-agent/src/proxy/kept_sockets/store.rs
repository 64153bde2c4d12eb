//! A connection to the socket store, of a proxy or of the daemon that watches over it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use dhow_driver::shim::socket_store::protocol::{
    MESSAGE_MAX_BYTES, NAMES_MAX, SOCKETS_MAX, StoreReply, StoreRequest,
};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::proxy::socket;

const SOCKET_FILE: &str = "sockets.sock";
/// The store answers at once, or it hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const SPACE_BYTES: usize = rustix::cmsg_space!(ScmRights(NAMES_MAX));
/// The daemon and the proxies: a handful.
const BACKLOG: i32 = 16;

/// A connection to the store of a proxy's folder.
pub struct StoreConnection {
    /// A stream by its type alone: what is sent and received are messages.
    socket: UnixStream,
}

/// The socket that the store of a folder listens on. One that somebody has left is replaced.
pub fn listen(dir: &Path) -> io::Result<OwnedFd> {
    socket::remove(dir, SOCKET_FILE)?;
    let folder = socket::open(dir)?;
    let listener = new_socket()?;
    net::bind(&listener, &address(&folder)?)?;
    net::listen(&listener, BACKLOG)?;
    socket::close_to_others(dir, SOCKET_FILE)?;
    Ok(listener)
}

/// Removes the socket of a store that has ended.
pub fn remove(dir: &Path) -> io::Result<()> {
    socket::remove(dir, SOCKET_FILE)
}

/// Messages, each of them whole.
fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

fn address(folder: &OwnedFd) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{SOCKET_FILE}", folder.as_raw_fd());
    Ok(SocketAddrUnix::new(path)?)
}

/// Connects to the store of a folder.
pub fn connect(dir: &Path) -> io::Result<OwnedFd> {
    let folder = socket::open(dir)?;
    let socket = new_socket()?;
    net::connect(&socket, &address(&folder)?)?;
    Ok(socket)
}

impl StoreConnection {
    /// One that was made by [`connect`], here or in another process.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from_std(socket.into())?;
        Ok(Self { socket })
    }

    /// Whether the store has not hung up.
    pub fn is_open(&self) -> bool {
        self.peek()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Returns when the store has hung up. Nobody may be asking it something.
    pub async fn closed(&self) {
        // Whatever is there but an answer to nobody is its end.
        let _ = self.socket.async_io(Interest::READABLE, || self.peek()).await;
    }

    fn peek(&self) -> io::Result<()> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        Ok(net::recv(&self.socket, &mut [0u8; 1][..], flags).map(drop)?)
    }

    pub async fn keep(&self, sockets: &[(String, BorrowedFd<'_>)]) -> io::Result<()> {
        for batch in sockets.chunks(NAMES_MAX) {
            let names = batch.iter().map(|(name, _)| name.clone()).collect();
            let descriptors: Vec<_> = batch.iter().map(|(_, socket)| *socket).collect();
            self.ask_done(&StoreRequest::Keep { names }, &descriptors).await?;
        }
        Ok(())
    }

    pub async fn let_go(&self, names: &[String]) -> io::Result<()> {
        for batch in names.chunks(NAMES_MAX) {
            let names = batch.to_vec();
            self.ask_done(&StoreRequest::LetGo { names }, &[]).await?;
        }
        Ok(())
    }

    /// Everything that the store holds.
    pub async fn take(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut taken: Vec<(String, OwnedFd)> = Vec::new();
        loop {
            let after = taken.last().map(|(name, _)| name.clone());
            match self.ask(&StoreRequest::Take { after }, &[]).await? {
                (StoreReply::Taken { names, has_more }, sockets) if names.len() == sockets.len() => {
                    taken.extend(names.into_iter().zip(sockets));
                    if !has_more || taken.len() >= SOCKETS_MAX {
                        return Ok(taken);
                    }
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// Ends the store and waits until it has.
    pub async fn end(&self) -> io::Result<()> {
        let ended = timeout(ANSWER_TIMEOUT, async {
            self.send(&StoreRequest::End, &[]).await?;
            self.closed().await;
            Ok(())
        });
        ended
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
            .flatten()
    }

    async fn ask_done(&self, request: &StoreRequest, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self.ask(request, sockets).await? {
            (StoreReply::Done, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    async fn ask(
        &self,
        request: &StoreRequest,
        sockets: &[BorrowedFd<'_>],
    ) -> io::Result<(StoreReply, Vec<OwnedFd>)> {
        let asked = timeout(ANSWER_TIMEOUT, async {
            self.send(request, sockets).await?;
            self.receive().await
        });
        asked
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
            .flatten()
    }

    async fn send(&self, request: &StoreRequest, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let words = serde_json::to_vec(request)?;
        let sent = self
            .socket
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); SPACE_BYTES];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
                    return Err(io::Error::other("too many sockets for one message"));
                }
                let words = [IoSlice::new(&words)];
                Ok(net::sendmsg(
                    &self.socket,
                    &words,
                    &mut control,
                    SendFlags::NOSIGNAL,
                )?)
            })
            .await?;
        match sent == words.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    async fn receive(&self) -> io::Result<(StoreReply, Vec<OwnedFd>)> {
        let mut words = vec![0u8; MESSAGE_MAX_BYTES];
        let (length, sockets) = self
            .socket
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); SPACE_BYTES];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let mut slices = [IoSliceMut::new(&mut words)];
                let flags = RecvFlags::CMSG_CLOEXEC;
                let message = net::recvmsg(&self.socket, &mut slices, &mut control, flags)?;
                let rights = control.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                    _ => None,
                });
                Ok((message.bytes, rights.flatten().collect::<Vec<OwnedFd>>()))
            })
            .await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reply = serde_json::from_slice(words.get(..length).unwrap_or_default())?;
        Ok((reply, sockets))
    }
}

fn unexpected(reply: &StoreReply) -> io::Error {
    match reply {
        StoreReply::Refused { why } => io::Error::other(why.clone()),
        StoreReply::Done | StoreReply::Taken { .. } => {
            io::Error::other("the socket store gave an answer to another question")
        }
    }
}
