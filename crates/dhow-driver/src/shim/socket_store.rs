//! The socket store: a small process that holds the balancer's listening sockets beside the balancer. Where that is killed,
//! connections and datagrams wait in the kernel's queue, and the next balancer takes the same sockets. It reads nothing
//! from them.
//!
//! A fork of the zygote, like a shim. It has one thread, has given up all capabilities and may make a handful of system
//! calls. It ends when it is told to, or when nobody has been connected for a while.

pub mod protocol;
mod shelf;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, accept4, getsockopt, recvmsg, sendmsg,
};
use nix::unistd::geteuid;

use self::protocol::{MESSAGE_MAX_BYTES, NAMES_MAX, StoreReply, StoreRequest};
use self::shelf::{OwnerId, Shelf};
use super::identity::ProcessId;
use super::protocol::{Failure, Reply, Step};
use super::{transport, unchecked};
use crate::call_filter::{Call, CallFilter};
use crate::unprivileged::keep_only;

/// The daemon's, one of each balancer that serves or finishes, and room for one that is being replaced.
const CONNECTIONS_MAX: usize = 16;
/// How long sockets are held of which no owner is connected: a balancer is back within a second. After that, whoever
/// connects is refused, as where nobody serves. A store that nobody is connected to ends then.
const UNOWNED_MAX: Duration = Duration::from_secs(30);

/// What a store does: it waits, and moves messages with descriptors.
const CALLS: &[libc::c_long] = &[
    libc::SYS_ppoll,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_getsockopt,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_write,
    libc::SYS_clock_gettime,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mprotect,
    libc::SYS_futex,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
/// The same under an older number, where the architecture has it.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[libc::c_long] = &[libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[libc::c_long] = &[];

/// The listening socket that came with the request.
pub fn listener(descriptors: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    let count = descriptors.len();
    match <[OwnedFd; 1]>::try_from(descriptors) {
        Ok([listener]) => Ok(listener),
        Err(_) => Err(io::Error::other(format!(
            "a socket store comes with 1 descriptor, not {count}"
        ))),
    }
}

/// Runs a store to its end. The connection is closed once it serves.
pub fn run(connection: &mut Option<UnixStream>, listener: OwnedFd) -> Result<(), Failure> {
    let resources = |errno: Errno| Failure::new(Step::Resources, errno, "the socket store");
    let process =
        ProcessId::of_self().map_err(|error| Failure::io(Step::Record, &error, "its start time"))?;
    prctl::set_name(c"dhow-sockets").map_err(resources)?;
    // Shims have few: a store has one for each listener.
    crate::files::raise();
    let mut store = Store {
        shelf: Shelf::default(),
        connections: Vec::new(),
        next: 0,
        owner: geteuid().as_raw(),
        unowned: Some(Instant::now()),
    };
    restrict().map_err(|error| Failure::io(Step::User, &error, "the socket store"))?;
    if let Some(mut connection) = connection.take() {
        transport::reply(&mut connection, &Reply::Started { process });
    }
    while store.turn(&listener) {}
    Ok(())
}

fn restrict() -> io::Result<()> {
    keep_only(&[])?;
    let calls: Vec<Call> = [CALLS, OLDER_CALLS].concat().into_iter().map(Call::Any).collect();
    match CallFilter::allowing(&calls, Errno::ENOSYS).apply() {
        // A kernel that was built without filters.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

struct Connection {
    id: OwnerId,
    socket: OwnedFd,
}

/// What the process knows: the sockets, who is connected, and since when nobody owns what it holds.
struct Store {
    shelf: Shelf,
    connections: Vec<Connection>,
    next: u64,
    /// The user who started it: the one whose word counts, and root's.
    owner: u32,
    unowned: Option<Instant>,
}

/// What becomes of a connection after a message.
#[derive(PartialEq, Eq)]
enum Then {
    Stays,
    Closes,
    /// The whole store ends.
    Ends,
}

impl Store {
    /// Waits for something to do and does it; false at its end.
    fn turn(&mut self, listener: &OwnedFd) -> bool {
        let wait = match self.unowned {
            Some(since) => UNOWNED_MAX.saturating_sub(since.elapsed()),
            None => UNOWNED_MAX,
        };
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        let ready = {
            let mut polled: Vec<PollFd<'_>> =
                self.connections.iter().map(|one| readable(&one.socket)).collect();
            if self.connections.len() < CONNECTIONS_MAX {
                polled.push(readable(listener));
            }
            if !matches!(poll(&mut polled, wait), Ok(_) | Err(Errno::EINTR)) {
                return false;
            }
            polled
                .iter()
                .map(|one| one.any().unwrap_or(false))
                .collect::<Vec<bool>>()
        };
        let known = self.connections.len();
        // The oldest first: one that has gone is gone before a younger one asks for what it owned.
        let ids: Vec<OwnerId> = self.connections.iter().map(|one| one.id).collect();
        for (id, _) in ids.into_iter().zip(&ready).filter(|(_, ready)| **ready) {
            match self.attend(id) {
                Then::Stays => {}
                Then::Closes => self.connections.retain(|one| one.id != id),
                Then::Ends => return false,
            }
        }
        if ready.get(known).is_some_and(|ready| *ready) {
            self.accept(listener);
        }
        self.look_at_owners()
    }

    /// Closes what nobody came for; false where nobody needs the store.
    fn look_at_owners(&mut self) -> bool {
        let connections = &self.connections;
        let is_owned = self
            .shelf
            .is_owned(|owner| connections.iter().any(|one| one.id == owner));
        if is_owned {
            self.unowned = None;
            return true;
        }
        let since = *self.unowned.get_or_insert_with(Instant::now);
        if since.elapsed() >= UNOWNED_MAX {
            self.shelf.clear();
            self.unowned = Some(Instant::now());
            return !self.connections.is_empty();
        }
        true
    }

    fn accept(&mut self, listener: &OwnedFd) {
        // One that has gone again, or for which there is no descriptor: whoever asks tries again.
        let Ok(number) = accept4(
            listener.as_raw_fd(),
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        ) else {
            return;
        };
        let socket = unchecked::own_descriptor(number);
        let peer = getsockopt(&socket, PeerCredentials).map(|peer| peer.uid());
        // The folder is closed to others, and this holds where somebody has opened it.
        if !peer.is_ok_and(|peer| peer == 0 || peer == self.owner) {
            return;
        }
        self.next += 1;
        let id = OwnerId(self.next);
        self.connections.push(Connection { id, socket });
    }

    /// Reads one message of a connection and answers it.
    fn attend(&mut self, id: OwnerId) -> Then {
        let Some(connection) = self.connections.iter().find(|one| one.id == id) else {
            return Then::Stays;
        };
        let (message, sockets) = match receive(&connection.socket) {
            Ok(Some(received)) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => return Then::Stays,
            Ok(None) | Err(_) => return Then::Closes,
        };
        let Ok(request) = serde_json::from_slice::<StoreRequest>(&message) else {
            let why = "a message that this socket store does not understand".to_owned();
            return self.answer(id, &StoreReply::Refused { why }, None);
        };
        match request {
            StoreRequest::Keep { names } => {
                let reply = match self.shelf.keep(id, names, sockets) {
                    Ok(()) => StoreReply::Done,
                    Err(why) => StoreReply::Refused { why },
                };
                self.answer(id, &reply, None)
            }
            StoreRequest::LetGo { names } => {
                let connections = &self.connections;
                let lives = |owner| connections.iter().any(|one| one.id == owner);
                self.shelf.let_go(&names, |owner| owner == id || !lives(owner));
                self.answer(id, &StoreReply::Done, None)
            }
            StoreRequest::Take { after } => {
                let (names, sockets, has_more) = self.shelf.page(after.as_deref());
                self.answer(id, &StoreReply::Taken { names, has_more }, Some(&sockets))
            }
            StoreRequest::End => Then::Ends,
        }
    }

    /// Whoever does not read its answers loses the connection: nobody waits here.
    fn answer(&self, id: OwnerId, reply: &StoreReply, sockets: Option<&[BorrowedFd<'_>]>) -> Then {
        let Some(connection) = self.connections.iter().find(|one| one.id == id) else {
            return Then::Stays;
        };
        let Ok(words) = serde_json::to_vec(reply) else {
            return Then::Closes;
        };
        let numbers: Vec<i32> = sockets
            .unwrap_or_default()
            .iter()
            .map(AsRawFd::as_raw_fd)
            .collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let rights = if numbers.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = sendmsg::<()>(
            connection.socket.as_raw_fd(),
            &[IoSlice::new(&words)],
            rights,
            flags,
            None,
        );
        match sent {
            Ok(_) => Then::Stays,
            Err(_) => Then::Closes,
        }
    }
}

fn readable(socket: &OwnedFd) -> PollFd<'_> {
    PollFd::new(socket.as_fd(), PollFlags::POLLIN)
}

/// One message with the sockets that came with it; `None` at the end.
fn receive(socket: &OwnedFd) -> nix::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut words = vec![0u8; MESSAGE_MAX_BYTES];
    let mut space = nix::cmsg_space!([i32; NAMES_MAX]);
    let mut sockets = Vec::new();
    let length = {
        let mut slices = [IoSliceMut::new(&mut words)];
        let message = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut slices,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                sockets.extend(numbers.into_iter().map(unchecked::own_descriptor));
            }
        }
        message.bytes
    };
    if length == 0 {
        return Ok(None);
    }
    words.truncate(length);
    Ok(Some((words, sockets)))
}
