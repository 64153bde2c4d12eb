//! Where the servers find a worker's door. By default that is loopback, where only servers of this very host would
//! find it: then it is the address with which this host reaches them. Several workers of one host do not have to be
//! told apart by hand: where the usual port is taken another one will do, for the servers are told which.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dhow_agent::session::grpc::FixedRoutes;
use tokio::net::{TcpListener, UdpSocket};

/// The port of the API where none is configured.
const DEFAULT_API_PORT: u16 = 3669;

/// The address to listen at.
pub async fn reachable(configured: SocketAddr, servers: &FixedRoutes) -> SocketAddr {
    let addr = towards_servers(configured, servers).await;
    match configured.port() == DEFAULT_API_PORT && is_taken(addr).await {
        true => free_port(addr).await.unwrap_or(addr),
        false => addr,
    }
}

/// The same as others reach it: where it listens on all addresses of this host, the one with which this host reaches the
/// servers.
pub async fn reached(listened: SocketAddr, servers: &FixedRoutes) -> SocketAddr {
    if listened.ip().is_unspecified() {
        for server in &servers.0 {
            if let Some(ip) = own_address_towards(&server.address).await {
                return SocketAddr::new(ip, listened.port());
            }
        }
    }
    listened
}

async fn is_taken(addr: SocketAddr) -> bool {
    let bound = TcpListener::bind(addr).await;
    bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

async fn free_port(addr: SocketAddr) -> Option<SocketAddr> {
    let bound = TcpListener::bind((addr.ip(), 0)).await.ok()?;
    let free = bound.local_addr().ok()?;
    tracing::info!(taken = %addr, %free, "the usual port is taken: the servers are told another one");
    Some(free)
}

async fn towards_servers(configured: SocketAddr, servers: &FixedRoutes) -> SocketAddr {
    if !configured.ip().is_loopback() {
        return configured;
    }
    for server in &servers.0 {
        let Some(ip) = own_address_towards(&server.address).await else {
            continue;
        };
        return match ip.is_loopback() || ip.is_unspecified() {
            true => configured,
            false => SocketAddr::new(ip, configured.port()),
        };
    }
    configured
}

/// Nothing is sent: a datagram socket that is connected knows the way that it would take.
async fn own_address_towards(server: &str) -> Option<IpAddr> {
    let to = tokio::net::lookup_host(server).await.ok()?.next()?;
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(to).await.ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::worker::ways::routes;

    #[tokio::test]
    async fn an_address_that_is_configured_is_kept() {
        let servers = routes(&["127.0.0.1:3670".to_owned()]);
        for addr in ["10.1.2.3:3669", "127.0.0.1:3668"] {
            let addr = addr.parse().unwrap();
            assert_eq!(reachable(addr, &servers).await, addr);
        }
    }

    #[tokio::test]
    async fn who_listens_everywhere_is_reached_where_it_reaches_the_servers() {
        let servers = routes(&["127.0.0.1:3670".to_owned()]);
        let reached_at = async |text: &str| reached(text.parse().unwrap(), &servers).await.to_string();
        assert_eq!(reached_at("0.0.0.0:3669").await, "127.0.0.1:3669");
        assert_eq!(reached_at("10.1.2.3:3669").await, "10.1.2.3:3669");
    }

    #[tokio::test]
    async fn a_taken_port_is_noticed_and_another_one_found() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = other.local_addr().unwrap();
        assert!(is_taken(taken).await);
        let free = free_port(taken).await.unwrap();
        assert_ne!(free, taken);
        assert!(!is_taken(free).await);
    }
}
