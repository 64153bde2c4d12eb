//! Ports of the loopback for host programs: an endpoint's own where it can be had, else a free one. Who may not bind
//! ports below 1024, or shares the host with a program that listens on all addresses, gets another one.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::known::LoopbackPort;
use crate::proxy::Transport;

/// The address that can be had for each of these. Blocks, for a moment each.
pub fn find(ports: Vec<LoopbackPort>) -> Vec<(LoopbackPort, SocketAddr)> {
    let found = ports.into_iter().map(|port| {
        let tried = match port.is_public {
            true => Err(io::ErrorKind::AddrInUse.into()),
            false => try_bind(port.transport, port.addr),
        };
        let addr = match tried {
            Ok(addr) => addr,
            Err(taken) => {
                let any = SocketAddr::new(port.addr.ip(), 0);
                match try_bind(port.transport, any) {
                    Ok(free) => {
                        let (service, endpoint) = (&port.service, &port.endpoint);
                        tracing::info!(%service, endpoint, wanted = %port.addr, %free, %taken, "host programs find it at another port");
                        free
                    }
                    Err(error) => {
                        // The proxy will not have it either, and says so.
                        tracing::error!(addr = %port.addr, %error, "host programs cannot reach this endpoint");
                        port.addr
                    }
                }
            }
        };
        (port, addr)
    });
    found.collect()
}

/// Binds and lets go again.
fn try_bind(transport: Transport, addr: SocketAddr) -> io::Result<SocketAddr> {
    match transport {
        Transport::Stream => TcpListener::bind(addr)?.local_addr(),
        Transport::Datagram => UdpSocket::bind(addr)?.local_addr(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::ids::{DeploymentName, ServiceKey, ServiceName};

    #[test]
    fn a_port_that_is_taken_is_replaced_by_a_free_one() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = |addr| LoopbackPort {
            service: ServiceKey {
                deployment: DeploymentName::new("shop").unwrap(),
                service: ServiceName::new("db").unwrap(),
            },
            endpoint: "pg".into(),
            transport: Transport::Stream,
            addr,
            is_public: false,
        };
        let taken = port(other.local_addr().unwrap());
        let [(_, found)] = find(vec![taken.clone()])[..] else {
            panic!("one for one");
        };
        assert_eq!(found.ip(), taken.addr.ip());
        assert_ne!(found.port(), taken.addr.port());
        drop(other);
        let [(_, found)] = find(vec![taken.clone()])[..] else {
            panic!("one for one");
        };
        assert_eq!(found, taken.addr, "it is free now");
        let public = LoopbackPort {
            is_public: true,
            ..taken.clone()
        };
        let [(_, found)] = find(vec![public])[..] else {
            panic!("one for one");
        };
        assert_ne!(found, taken.addr, "it is a public endpoint's on every address");
    }
}
