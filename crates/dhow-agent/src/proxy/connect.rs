//! Connections to backends and from clients, set up alike.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};

/// A backend on this host answers at once, one on another within a round trip and one lost packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A peer that is gone without a word is noticed after 60 s and six probes of 10 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

pub async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(addr)).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // The kernel joins a connection to itself when the port that it picks is the one that it looks for.
    if stream.local_addr()? == addr {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    set_up(&stream);
    Ok(stream)
}

/// A socket for datagrams to a backend and from it.
pub async fn datagrams(addr: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(addr).await?;
    Ok(socket)
}

/// Small writes go out at once, and dead peers are noticed. A socket that refuses works without.
pub fn set_up(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES);
}
