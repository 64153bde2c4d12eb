//! Where the servers find a worker's door. By default that is loopback, where only servers of this very host would
//! find it: then it is the address with which this host reaches them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dhow_agent::session::grpc::FixedRoutes;
use tokio::net::UdpSocket;

/// The address to listen at.
pub async fn reachable(configured: SocketAddr, servers: &FixedRoutes) -> SocketAddr {
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
        for addr in ["10.1.2.3:3669", "127.0.0.1:3669"] {
            let addr = addr.parse().unwrap();
            assert_eq!(reachable(addr, &servers).await, addr);
        }
    }
}
