//! Which process has a port: `/proc/net` knows the socket, `/proc/PID/fd` its holder.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::table::Transport;

/// The holder of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub name: String,
}

/// The process that keeps others from binding this address; `None` where it cannot be seen. Blocks.
pub fn find(addr: SocketAddr, transport: Transport) -> Option<Owner> {
    let sockets = holding(addr, transport);
    sockets.into_iter().find_map(|(_, inode)| holder(inode))
}

/// Whether something other than these listeners keeps others from binding this address, and who. Blocks.
pub fn find_beside(
    addr: SocketAddr,
    transport: Transport,
    own: &BTreeSet<SocketAddr>,
) -> Option<Option<Owner>> {
    let sockets = holding(addr, transport);
    let other = sockets.into_iter().find(|(local, _)| !own.contains(local));
    other.map(|(_, inode)| holder(inode))
}

/// The sockets in the way of an address.
fn holding(addr: SocketAddr, transport: Transport) -> Vec<(SocketAddr, u64)> {
    let files = match transport {
        Transport::Stream => ["/proc/net/tcp", "/proc/net/tcp6"],
        Transport::Datagram => ["/proc/net/udp", "/proc/net/udp6"],
    };
    let sockets = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let held = text.lines().filter_map(|line| held_socket(line, addr, transport));
        held.collect::<Vec<_>>()
    });
    sockets.collect()
}

/// The address and the inode of the socket that a line of `/proc/net/*` describes, if it stands in the way.
fn held_socket(line: &str, wanted: SocketAddr, transport: Transport) -> Option<(SocketAddr, u64)> {
    const LISTENING: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let local = parse_address(fields.get(1)?)?;
    let is_bound = match transport {
        Transport::Stream => *fields.get(3)? == LISTENING,
        Transport::Datagram => true,
    };
    let overlaps = local.ip() == wanted.ip() || local.ip().is_unspecified() || wanted.ip().is_unspecified();
    if !is_bound || local.port() != wanted.port() || !overlaps {
        return None;
    }
    let inode = fields.get(9)?.parse().ok().filter(|inode| *inode != 0)?;
    Some((local, inode))
}

/// `0100007F:1F90`: words of four bytes in the host's order, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

/// The first process that has the socket open.
fn holder(inode: u64) -> Option<Owner> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut descriptors = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let has = descriptors.any(|descriptor| {
            fs::read_link(descriptor.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str())
        });
        let name = || fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        has.then(|| Owner {
            pid,
            name: name().trim().to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_proc_are_read() {
        if cfg!(target_endian = "little") {
            let v4 = parse_address("0100007F:1F90").unwrap();
            assert_eq!(v4, "127.0.0.1:8080".parse().unwrap());
            let v6 = parse_address("00000000000000000000000001000000:0050").unwrap();
            assert_eq!(v6, "[::1]:80".parse().unwrap());
        }
        assert_eq!(parse_address("0100007F"), None);
        assert_eq!(parse_address("01:x"), None);
    }

    #[test]
    fn the_holder_of_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let owner = find(addr, Transport::Stream).unwrap();
        assert_eq!(owner.pid, std::process::id());
        // Whoever wants all addresses meets the one that is taken.
        let all = SocketAddr::from(([0, 0, 0, 0], addr.port()));
        assert_eq!(find(all, Transport::Stream).unwrap().pid, std::process::id());
        let others = find_beside(all, Transport::Stream, &BTreeSet::new()).flatten();
        assert_eq!(others.map(|owner| owner.pid), Some(std::process::id()));
        assert_eq!(find_beside(all, Transport::Stream, &BTreeSet::from([addr])), None);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        assert_eq!(find(addr, Transport::Datagram).unwrap().pid, std::process::id());
    }
}
