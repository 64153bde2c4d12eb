//! Where the balancer listens for those of other nodes.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use dhow_wire::MeshAddr;

/// At the address that others are told, unless that is another's: a host behind a gateway that translates addresses does
/// not have the one by which it is reached, and listens on all that it has.
pub fn of(mesh: MeshAddr) -> SocketAddr {
    let tried = TcpListener::bind((mesh.listen.ip(), 0));
    if tried.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable) {
        let any: IpAddr = match mesh.listen {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        tracing::info!(
            told = %mesh.told,
            "other nodes are told an address that this host does not have; its balancer listens for them on all addresses"
        );
        return SocketAddr::new(any, mesh.listen.port());
    }
    mesh.listen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_host_is_listened_for_on_all_of_this_one() {
        let at = |text: &str| {
            let addr = text.parse().unwrap();
            of(MeshAddr {
                listen: addr,
                told: addr,
            })
            .to_string()
        };
        assert_eq!(at("127.0.0.1:3672"), "127.0.0.1:3672");
        // Of a network for documentation, which no host has.
        assert_eq!(at("192.0.2.1:3672"), "0.0.0.0:3672");
    }
}
