//! Whose the other end of a connection of this host is: the kernel says it of any socket, to anybody.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::table::Transport;

const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// Any socket at these addresses, whatever its cookie.
const NO_COOKIE: u32 = u32::MAX;
const CGROUP: u16 = 21;
const HEAD_BYTES: usize = 16;
/// Family, state and timers, the addresses, five numbers of which the fourth is the user.
const ANSWER_BYTES: usize = 72;
const UID_AT: usize = HEAD_BYTES + 64;
const TIMER_AT: usize = HEAD_BYTES + 2;
/// The port of its other end; 0 where it has none.
const OTHER_PORT_AT: usize = HEAD_BYTES + 6;
/// The timer of what is left of a socket that was closed: the kernel has forgotten whose it was and says root's.
const TIME_WAIT: u8 = 3;
/// One answer with all that the kernel may tell of a socket.
const ANSWER_MAX_BYTES: usize = 4096;

/// The user that made a socket and the control group in which that was done, where the kernel knows groups of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    pub uid: u32,
    pub cgroup: Option<u64>,
    /// It is bound to the one other end. A socket for datagrams may be open to all: then the kernel gives one that has the
    /// port, which others may have as well.
    pub is_connected: bool,
}

/// Asks for the socket that has `of` as its own address and is connected to `to`. Does not wait: the kernel answers
/// while it is asked.
pub fn owner(transport: Transport, of: SocketAddr, to: SocketAddr) -> io::Result<SocketOwner> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &question(transport, of, to), SendFlags::empty(), &kernel)?;
    let mut answer = [0u8; ANSWER_MAX_BYTES];
    let (count, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    parse(answer.get(..count).unwrap_or_default())
}

fn question(transport: Transport, of: SocketAddr, to: SocketAddr) -> Vec<u8> {
    const INET: u8 = 2;
    const INET6: u8 = 10;
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const LENGTH: u32 = 72;
    let protocol = match transport {
        Transport::Stream => TCP,
        Transport::Datagram => UDP,
    };
    let family = match of.ip().to_canonical() {
        IpAddr::V4(_) => INET,
        IpAddr::V6(_) => INET6,
    };
    let mut bytes = Vec::with_capacity(HEAD_BYTES + 56);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // Sequence and sender: there is one question and one answer.
    bytes.extend([0; 8]);
    bytes.extend([family, protocol, 0, 0]);
    // In every state.
    bytes.extend(u32::MAX.to_ne_bytes());
    // The kernel looks for datagrams' sockets the other way round: as if it had received one of them.
    let (first, second) = match transport {
        Transport::Stream => (of, to),
        Transport::Datagram => (to, of),
    };
    bytes.extend(first.port().to_be_bytes());
    bytes.extend(second.port().to_be_bytes());
    bytes.extend(address(first.ip()));
    bytes.extend(address(second.ip()));
    // On any device.
    bytes.extend([0; 4]);
    bytes.extend(NO_COOKIE.to_ne_bytes());
    bytes.extend(NO_COOKIE.to_ne_bytes());
    bytes
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V4(four) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&four.octets());
            bytes
        }
        IpAddr::V6(six) => six.octets(),
    }
}

fn parse(answer: &[u8]) -> io::Result<SocketOwner> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    if word16(answer, 4) == Some(ERROR) {
        let code = word32(answer, HEAD_BYTES).ok_or_else(short)?;
        return Err(io::Error::from_raw_os_error(code.cast_signed().saturating_neg()));
    }
    if answer.get(TIMER_AT) == Some(&TIME_WAIT) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let uid = word32(answer, UID_AT).ok_or_else(short)?;
    let is_connected = word16(answer, OTHER_PORT_AT).is_some_and(|port| port != 0);
    let mut cgroup = None;
    let mut rest = answer.get(HEAD_BYTES + ANSWER_BYTES..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (word16(rest, 0), word16(rest, 2)) {
        let length = usize::from(length).max(4);
        if kind == CGROUP {
            let value = rest.get(4..12).and_then(|bytes| bytes.try_into().ok());
            cgroup = value.map(u64::from_ne_bytes);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(SocketOwner {
        uid,
        cgroup,
        is_connected,
    })
}

fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;
    use crate::proxy::tests::support::own_cgroup;

    #[test]
    fn the_other_end_is_known_by_its_user_and_group() {
        let uid = nix::unistd::geteuid().as_raw();
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                println!("SKIPPED: no {any} here");
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let found = owner(Transport::Stream, peer, server.local_addr().unwrap()).unwrap();
            assert!(found.uid == uid && found.is_connected);
            if let (Some(own), Some(seen)) = (own_cgroup(), found.cgroup) {
                assert_eq!(own, seen);
            }
            drop(client);
        }
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (of, to) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let found = owner(Transport::Datagram, of, to).unwrap();
        assert!(found.uid == uid && !found.is_connected);
        client.connect(to).unwrap();
        let found = owner(Transport::Datagram, of, to).unwrap();
        assert!(found.uid == uid && found.is_connected);
    }

    #[test]
    fn a_socket_that_was_closed_is_not_taken_for_roots() {
        let mut answer = [0; HEAD_BYTES + ANSWER_BYTES];
        assert_eq!(parse(&answer).unwrap().uid, 0);
        answer[TIMER_AT] = TIME_WAIT;
        assert!(parse(&answer).is_err());

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let to = server.local_addr().unwrap();
        assert!(owner(Transport::Stream, peer, to).is_ok());
        // The kernel takes the closed socket for good once this end has acknowledged its close, in a moment of its own.
        drop(client);
        while owner(Transport::Stream, peer, to).is_ok() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_socket_that_is_not_there_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(owner(Transport::Stream, nobody, listener.local_addr().unwrap()).is_err());
        for broken in [&[][..], &[0; 20], &[0; 90]] {
            let _ = parse(broken);
        }
    }
}
