//! Which way a call goes from a replica of this node, as the proxy's table has it. Pure.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dhow_core::ids::ServiceKey;
use dhow_core::spec::{Endpoint, Runtime};

use super::door::{proxy_protocol, rule_of};
use super::routes::{Routes, route_prefix};
use crate::proxy::{Allowed, Peer, Rule, Transport};

/// The way of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallWay {
    /// What stands for the service here, with the endpoint's port.
    pub address: SocketAddr,
    pub transport: Transport,
    /// Where the caller asks for names; none for a host program, which has variables.
    pub name_server: Option<Ipv4Addr>,
    /// Whether the endpoint lets the caller in.
    pub may_call: bool,
    /// Ready replicas of this node, by id.
    pub here: Vec<String>,
    /// Those of other nodes.
    pub there: Vec<There>,
}

/// A ready replica of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct There {
    pub id: String,
    pub node: u64,
    /// The servers through whom the node is called, the first before the others; none where it is dialled.
    pub relays: Vec<u64>,
}

/// Why there is no way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWay {
    /// This node knows no such service.
    Service,
    /// The service has no such endpoint, but these.
    Endpoint(Vec<String>),
    /// It has no address for callers of this kind.
    Address,
}

impl Routes {
    pub fn way(
        &self,
        from: &ServiceKey,
        runtime: Runtime,
        to: &ServiceKey,
        endpoint: &str,
    ) -> Result<CallWay, NoWay> {
        let endpoints = self.known.endpoints(to).ok_or(NoWay::Service)?;
        let found = endpoints.iter().find(|known| known.name == endpoint);
        let found = found.ok_or_else(|| {
            let names = endpoints.iter().map(|known| known.name.clone());
            NoWay::Endpoint(names.collect())
        })?;
        let address = self.known.address(to, found, runtime).ok_or(NoWay::Address)?;
        let backends = self.behind(&format!("{}{endpoint}", route_prefix(to)));
        let ready = backends.into_iter().filter(|backend| !backend.draining);
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for backend in ready {
            let id = backend.replica().unwrap_or(&backend.id).to_owned();
            match backend.node {
                Some(node) => {
                    let relays = self.known.relays_of(node);
                    let relays = relays.iter().map(|relay| relay.0).collect();
                    there.push(There { id, node, relays });
                }
                None => here.push(id),
            }
        }
        Ok(CallWay {
            address,
            transport: proxy_protocol(found.protocol).transport(),
            name_server: match runtime {
                Runtime::Container => self.known.dns.as_ref().map(|dns| dns.addr),
                Runtime::Process => None,
            },
            may_call: admits(from, to, found),
            here,
            there,
        })
    }
}

fn admits(from: &ServiceKey, to: &ServiceKey, endpoint: &Endpoint) -> bool {
    let caller = Allowed {
        deployment: from.deployment.to_string(),
        service: from.service.to_string(),
    };
    Rule::Judged(rule_of(&to.deployment, endpoint)).admits(&Peer::Replicas(Arc::from([caller])))
}
