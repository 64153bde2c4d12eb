//! Sockets of listeners: bound here or taken over from the proxy before this one.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use tokio::net::{TcpListener, UdpSocket};

use super::port_owner::{self, Owner};
use super::process::PROCESS_NAME;
use super::table::Transport;

/// Connections that the kernel keeps for us until they are accepted; it cuts this to its own limit.
pub const BACKLOG: i32 = 4096;

/// A listener's socket, shared by its task and by whoever hands it over.
#[derive(Clone)]
pub enum Socket {
    Stream(Arc<TcpListener>),
    Datagram(Arc<UdpSocket>),
}

impl Socket {
    pub fn bind(addr: SocketAddr, transport: Transport) -> io::Result<Self> {
        Self::take_over(new_socket(addr, transport)?, transport)
    }

    /// Takes over a socket that another process or thread has bound.
    pub fn take_over(descriptor: OwnedFd, transport: Transport) -> io::Result<Self> {
        match transport {
            Transport::Stream => {
                // One that was quiet listens again; another one only hears again how long its queue is.
                net::listen(&descriptor, BACKLOG)?;
                let listener = std::net::TcpListener::from(descriptor);
                listener.set_nonblocking(true)?;
                Ok(Self::Stream(Arc::new(TcpListener::from_std(listener)?)))
            }
            Transport::Datagram => {
                let socket = std::net::UdpSocket::from(descriptor);
                socket.set_nonblocking(true)?;
                Ok(Self::Datagram(Arc::new(UdpSocket::from_std(socket)?)))
            }
        }
    }

    /// Refuses connections from now on, in every process that has the socket, and stays bound. Nobody may be accepting.
    pub fn quieten(&self) -> io::Result<()> {
        Ok(net::shutdown(self, net::Shutdown::Both)?)
    }

    /// Listens again on one that was quiet. The runtime takes what it was for closed for good: this is a new descriptor.
    pub fn reopen(&self, transport: Transport) -> io::Result<Self> {
        Self::take_over(self.as_fd().try_clone_to_owned()?, transport)
    }
}

/// Binds an address in the network of the calling thread, and listens there.
pub fn new_socket(addr: SocketAddr, transport: Transport) -> io::Result<OwnedFd> {
    let kind = match transport {
        Transport::Stream => SocketType::STREAM,
        Transport::Datagram => SocketType::DGRAM,
    };
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match transport {
        Transport::Stream => {
            // Connections of a proxy that was killed must not keep the port.
            net::sockopt::set_socket_reuseaddr(&socket, true)?;
            net::bind(&socket, &addr)?;
            net::listen(&socket, BACKLOG)?;
        }
        Transport::Datagram => net::bind(&socket, &addr)?,
    }
    Ok(socket)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(listener) => listener.as_fd(),
            Self::Datagram(socket) => socket.as_fd(),
        }
    }
}

/// Says by which process an address is taken, where that can be found. Blocks.
pub fn taken_by(addr: SocketAddr, transport: Transport) -> String {
    held_by(addr, port_owner::find(addr, transport))
}

/// The process that would keep an address from being bound once these listeners are closed, where there is one. Blocks.
pub fn taken_beside(addr: SocketAddr, transport: Transport, own: &BTreeSet<SocketAddr>) -> Option<String> {
    let owner = port_owner::find_beside(addr, transport, own)?;
    Some(held_by(addr, owner))
}

fn held_by(addr: SocketAddr, owner: Option<Owner>) -> String {
    let port = addr.port();
    match owner {
        Some(Owner { pid, name }) if name == PROCESS_NAME => format!(
            "port {port} is taken by process {pid} ({name}), the balancer of another Dhow on this host: take the endpoint \
             from the service that has it there, or give this one another port"
        ),
        Some(Owner { pid, name }) => {
            format!(
                "port {port} is taken by process {pid} ({name}): stop it, or give the endpoint another port"
            )
        }
        None => format!(
            "port {port} is taken by a process that this user cannot see: find it with `ss -lntup` as \
             root, or give the endpoint another port"
        ),
    }
}

/// Says why an address could not be bound. Who has it the proxy cannot see: its daemon can.
pub fn why_not(addr: SocketAddr, error: &io::Error) -> String {
    let port = addr.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("port {port} is taken by another process: stop it, or give the endpoint another port")
        }
        io::ErrorKind::PermissionDenied => format!(
            "port {port} is reserved for root: run the daemon as root or with CAP_NET_BIND_SERVICE, or give \
             the endpoint a port from 1024 up"
        ),
        io::ErrorKind::AddrNotAvailable => format!("this host does not have the address {}", addr.ip()),
        _ => format!("{addr} cannot be listened on: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balancer_of_another_dhow_is_called_that() {
        let addr = SocketAddr::from(([0, 0, 0, 0], 8080));
        let held = |name: &str| {
            let name = name.to_owned();
            held_by(addr, Some(Owner { pid: 7, name }))
        };
        let (ours, theirs) = (held(PROCESS_NAME), held("nginx"));
        assert!(ours.contains("balancer of another Dhow"), "{ours}");
        assert!(theirs.contains("process 7 (nginx): stop it"), "{theirs}");
    }
}
