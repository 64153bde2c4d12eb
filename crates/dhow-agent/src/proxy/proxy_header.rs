//! The PROXY protocol: what a balancer in front of this one, or this one in front of a replica, says before the first byte
//! of who the client is. Versions 1 (text) and 2 (binary).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dhow_core::spec::ProxyProtocol;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whoever is to send one sends it at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for more of a header that has come in parts.
const PAUSE: Duration = Duration::from_millis(5);

const TEXT: &[u8] = b"PROXY ";
/// The longest line of version 1, as it is laid down.
const LINE_MAX_BYTES: usize = 107;
const BINARY: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const BINARY_HEAD_BYTES: usize = 16;
/// What follows the addresses in version 2 is not used, and not taken without end.
const BINARY_MAX_BYTES: usize = BINARY_HEAD_BYTES + 2048;

/// Reads the header that a connection must begin with, and nothing beyond. Gives the client that it names; none where the
/// one in front speaks for itself, as when it looks whether somebody answers.
pub async fn take(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let read = timeout(HEADER_TIMEOUT, read(stream)).await;
    read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut seen = vec![0; BINARY_MAX_BYTES];
    loop {
        let count = stream.peek(&mut seen).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((length, client)) = parse(seen.get(..count).unwrap_or_default())? {
            let mut header = vec![0; length];
            stream.read_exact(&mut header).await?;
            return Ok(client);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The length of a header and whom it names; none where more of it is to come.
fn parse(seen: &[u8]) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    let begins = |words: &[u8]| {
        let both = words.len().min(seen.len());
        words.get(..both) == seen.get(..both)
    };
    if begins(&BINARY) {
        return parse_binary(seen);
    }
    if !begins(TEXT) {
        return Err(bad());
    }
    let end = seen.windows(2).position(|pair| pair == b"\r\n");
    let Some(end) = end else {
        return match seen.len() >= LINE_MAX_BYTES {
            true => Err(bad()),
            false => Ok(None),
        };
    };
    if end + 2 > LINE_MAX_BYTES {
        return Err(bad());
    }
    let line = std::str::from_utf8(seen.get(..end).unwrap_or_default()).map_err(|_| bad())?;
    Ok(Some((end + 2, parse_line(line)?)))
}

fn parse_line(line: &str) -> io::Result<Option<SocketAddr>> {
    let mut words = line.split(' ').skip(1);
    match words.next() {
        Some("UNKNOWN") => return Ok(None),
        Some("TCP4" | "TCP6") => {}
        Some(_) | None => return Err(bad()),
    }
    let words: Vec<&str> = words.collect();
    let [source, _, port, _] = words.as_slice() else {
        return Err(bad());
    };
    let source: IpAddr = source.parse().map_err(|_| bad())?;
    Ok(Some(SocketAddr::new(source, port.parse().map_err(|_| bad())?)))
}

fn parse_binary(seen: &[u8]) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    let Some(head) = seen.first_chunk::<BINARY_HEAD_BYTES>() else {
        return Ok(None);
    };
    let [.., version, family, high, low] = *head;
    let length = BINARY_HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > BINARY_MAX_BYTES {
        return Err(bad());
    }
    let Some(rest) = seen.get(BINARY_HEAD_BYTES..length) else {
        return Ok(None);
    };
    let client = match (version, family >> 4) {
        // LOCAL: it speaks for itself.
        (0x20, _) => None,
        (0x21, 1) => {
            let [a, b, c, d, _, _, _, _, high, low, ..] = *rest else {
                return Err(bad());
            };
            let port = u16::from_be_bytes([high, low]);
            Some((Ipv4Addr::from([a, b, c, d]), port).into())
        }
        (0x21, 2) => {
            let source = rest.first_chunk::<16>().ok_or_else(bad)?;
            let port = rest.get(32..34).and_then(|port| port.first_chunk::<2>());
            let port = u16::from_be_bytes(*port.ok_or_else(bad)?);
            Some((Ipv6Addr::from(*source), port).into())
        }
        (0x21, _) => None,
        _ => return Err(bad()),
    };
    Ok(Some((length, client)))
}

fn bad() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it does not begin with a PROXY header",
    )
}

/// The header for a replica: who calls, and where.
pub fn header(version: ProxyProtocol, client: SocketAddr, at: SocketAddr) -> Vec<u8> {
    let (source, target) = same_family(client.ip(), at.ip());
    match version {
        ProxyProtocol::V1 => {
            let family = match source {
                IpAddr::V4(_) => "TCP4",
                IpAddr::V6(_) => "TCP6",
            };
            format!(
                "PROXY {family} {source} {target} {} {}\r\n",
                client.port(),
                at.port()
            )
            .into_bytes()
        }
        ProxyProtocol::V2 => {
            let mut header = BINARY.to_vec();
            let (family, addresses) = match (source, target) {
                (IpAddr::V4(source), IpAddr::V4(target)) => {
                    (0x11, [source.octets(), target.octets()].concat())
                }
                (source, target) => (0x21, [v6(source), v6(target)].concat()),
            };
            let length = u16::try_from(addresses.len() + 4).unwrap_or(u16::MAX);
            header.extend([0x21, family]);
            header.extend(length.to_be_bytes());
            header.extend(addresses);
            header.extend(client.port().to_be_bytes());
            header.extend(at.port().to_be_bytes());
            header
        }
    }
}

/// Both as IPv4 where both are, else both as IPv6.
fn same_family(source: IpAddr, target: IpAddr) -> (IpAddr, IpAddr) {
    let (source, target) = (source.to_canonical(), target.to_canonical());
    match source.is_ipv4() && target.is_ipv4() {
        true => (source, target),
        false => (IpAddr::from(v6(source)), IpAddr::from(v6(target))),
    }
}

fn v6(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (client, at) in [
            ("192.0.2.1:4711", "10.0.0.1:443"),
            ("[2001:db8::1]:4711", "[2001:db8::2]:443"),
        ] {
            let (client, at): (SocketAddr, SocketAddr) = (client.parse().unwrap(), at.parse().unwrap());
            for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
                let mut bytes = header(version, client, at);
                let length = bytes.len();
                for part in 0..length {
                    assert_eq!(parse(&bytes[..part]).unwrap(), None, "{part} of {length}");
                }
                bytes.extend(b"GET / HTTP/1.1\r\n\r\n");
                assert_eq!(parse(&bytes).unwrap(), Some((length, Some(client))));
            }
        }
        let mixed = header(
            ProxyProtocol::V1,
            "192.0.2.1:1".parse().unwrap(),
            "[2001:db8::2]:2".parse().unwrap(),
        );
        assert_eq!(mixed, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 1 2\r\n");
    }

    #[test]
    fn who_speaks_for_itself_names_nobody() {
        assert_eq!(parse(b"PROXY UNKNOWN\r\n").unwrap(), Some((15, None)));
        let local = [&BINARY[..], &[0x20, 0, 0, 0]].concat();
        assert_eq!(parse(&local).unwrap(), Some((16, None)));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 120]].concat();
        let huge = [&BINARY[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        let short = [&BINARY[..], &[0x21, 0x11, 0, 2, 1, 2]].concat();
        let version = [&BINARY[..], &[0x31, 0x11, 0, 0]].concat();
        for bytes in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"PROXY TCP4 1.2.3.4\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 99999 1\r\n",
            b"PROXY SCTP 1.2.3.4 5.6.7.8 9 1\r\n",
            &long,
            &huge,
            &short,
            &version,
        ] {
            assert!(parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
