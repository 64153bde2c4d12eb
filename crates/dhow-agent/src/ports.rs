//! Ports of this host for replicas that have no network of their own.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::spec::{Protocol, Runtime, ServiceSpec};
use dhow_driver::driver::PortBinding;

/// Attempts to find a port that no replica of this node has been given: each fails only where the kernel offers
/// one that is given out and not listened on yet.
const TRIES_MAX: u32 = 256;

/// What a running replica has under another spec that runs the same: a container listens on the spec's own ports, a
/// host program goes on with those that it was given.
pub fn under(given: &[PortBinding], spec: &ServiceSpec) -> Vec<PortBinding> {
    let ports = spec.endpoints.iter().filter_map(|endpoint| {
        let target_port = endpoint.target_port();
        let host_port = match spec.runtime() {
            Runtime::Container => target_port,
            Runtime::Process => {
                let mut given = given.iter();
                given.find(|known| known.endpoint == endpoint.name)?.host_port
            }
        };
        Some(PortBinding {
            endpoint: endpoint.name.clone(),
            host_port,
            target_port,
        })
    });
    ports.collect()
}

/// Ports that are given out, also those that nobody listens on at the moment; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    given: Arc<Mutex<BTreeSet<u16>>>,
}

impl Ports {
    /// Marks ports of an earlier life as given.
    pub fn restore(&self, bindings: &[PortBinding]) {
        self.given()
            .extend(bindings.iter().map(|binding| binding.host_port));
    }

    pub fn give_back(&self, bindings: &[PortBinding]) {
        let mut given = self.given();
        for binding in bindings {
            given.remove(&binding.host_port);
        }
    }

    /// A port for each endpoint of a host program; a container listens on its own ports in its own network.
    pub fn bind(&self, spec: &ServiceSpec) -> io::Result<Vec<PortBinding>> {
        let mut bindings = Vec::new();
        for endpoint in &spec.endpoints {
            let target_port = endpoint.target_port();
            let host_port = match spec.runtime() {
                Runtime::Process => self.free(endpoint.protocol)?,
                Runtime::Container => target_port,
            };
            bindings.push(PortBinding {
                endpoint: endpoint.name.clone(),
                host_port,
                target_port,
            });
        }
        Ok(bindings)
    }

    fn free(&self, protocol: Protocol) -> io::Result<u16> {
        for _ in 0..TRIES_MAX {
            // The kernel offers a free port; who takes it before the replica does makes the start fail, and the
            // next attempt gets another one.
            let any = (Ipv4Addr::LOCALHOST, 0);
            let port = match protocol {
                Protocol::Udp => UdpSocket::bind(any)?.local_addr()?.port(),
                Protocol::Http | Protocol::Https | Protocol::Tcp | Protocol::Websocket => {
                    TcpListener::bind(any)?.local_addr()?.port()
                }
            };
            if self.given().insert(port) {
                return Ok(port);
            }
        }
        Err(io::Error::other(
            "every free port of this host is given to a replica",
        ))
    }

    fn given(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        // Changed by single inserts and removes, so a holder that panicked left it whole.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
