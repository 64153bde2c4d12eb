//! What the agent asks of the balancer in front of its replicas. The order is what keeps requests from failing:
//! listeners are open before a replica starts, a replica is admitted once it is healthy and withdrawn before it is
//! asked to end.

mod book;
mod credentials;
mod door;
mod figures;
mod known;
mod known_file;
mod loopback;
mod no_balancer;
mod node;
mod process_caller;
mod routes;
mod variables;
mod wants;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::spec::{Runtime, ServiceSpec};
use dhow_core::usage::{EndpointFigures, RelayFigures};
use tokio::sync::watch;

use crate::proxy::{GivenCertificates, MeshIdentity, RefusedCertificate};
use crate::session::KnownDirectory;

pub use door::WebPorts;
pub use known::NodePlace;
pub use no_balancer::NoBalancer;
pub use node::{NodeBalancer, NodeNetwork};
pub(crate) use process_caller::of_process;
pub(crate) use variables::address_variable;
pub use way::{CallWay, NoWay, There};

pub type BalancerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a replica serves one of its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendAddress {
    /// The endpoint's name.
    pub endpoint: String,
    pub addr: SocketAddr,
}

/// From where a replica calls others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsFrom {
    /// A container has an address of its own on the bridge.
    Bridge(Ipv4Addr),
    /// A host program shares the host's network: its control group tells it from others, else its user.
    Process { cgroup: Option<u64>, uid: Option<u32> },
}

/// Implemented by the proxy's client, and by [`NoBalancer`].
pub trait Balancer: Send + Sync + 'static {
    /// Makes sure that the ports of the replica's service are listened on, or says why they are not. What a newer
    /// generation has said holds.
    fn open<'a>(
        &'a self,
        name: &'a ReplicaName,
        spec: &'a ServiceSpec,
    ) -> BalancerFuture<'a, Result<(), String>>;

    /// Listens also on the ports that the replica's service is to have next, or says why that cannot be: then the
    /// service keeps those that it has. Ends when `none` is claimed.
    fn claim<'a>(
        &'a self,
        name: &'a ReplicaName,
        next: Option<&'a ServiceSpec>,
    ) -> BalancerFuture<'a, Result<(), String>>;

    /// Sends the replica its share from now on.
    fn admit<'a>(&'a self, name: &'a ReplicaName, backends: &'a [BackendAddress]) -> BalancerFuture<'a, ()>;

    /// Sends it nothing new, and waits until nothing is in flight to it or the time is over.
    fn withdraw<'a>(&'a self, name: &'a ReplicaName, drain_max: Duration) -> BalancerFuture<'a, ()>;

    /// After a start: whatever an earlier daemon left of others than these is given up.
    fn retain<'a>(&'a self, names: &'a BTreeSet<ReplicaName>) -> BalancerFuture<'a, ()>;

    /// Shows this to the proxies of other nodes from now on.
    fn identify(&self, _identity: MeshIdentity) -> BalancerFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Shows these certificates to clients from now on; gives those that cannot be shown.
    fn certify(&self, _given: GivenCertificates) -> BalancerFuture<'_, Vec<RefusedCertificate>> {
        Box::pin(async { Vec::new() })
    }

    /// Takes in where this node is and what servers tell of services; nothing told leaves what was told before. Names are
    /// there when this returns.
    fn told<'a>(
        &'a self,
        _place: NodePlace,
        _told: Option<&'a Arc<KnownDirectory>>,
    ) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Follows which services of other deployments are wanted here; none where nobody asks for any.
    fn wants(&self) -> Option<watch::Receiver<BTreeSet<ServiceKey>>> {
        None
    }

    /// Follows that requests wait for a first replica; none where nobody asks for any.
    fn calling(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Takes whether anybody who decides hears this node: where not, no request waits for a first replica.
    fn hear(&self, _is_heard: bool) {}

    /// How a replica finds the services of its deployment. Call it once its service is open.
    fn variables<'a>(
        &'a self,
        _name: &'a ReplicaName,
        _spec: &'a ServiceSpec,
    ) -> BalancerFuture<'a, BTreeMap<String, String>> {
        Box::pin(async { BTreeMap::new() })
    }

    /// Says from where a replica calls, before it does.
    fn calls_from<'a>(&'a self, _name: &'a ReplicaName, _from: CallsFrom) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Nothing of the replica runs any more: its place may become another one's.
    fn calls_no_more<'a>(&'a self, _name: &'a ReplicaName) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Which way a call of an endpoint goes from a replica of this node.
    fn way<'a>(
        &'a self,
        _from: &'a ServiceKey,
        _runtime: Runtime,
        _to: &'a ServiceKey,
        _endpoint: &'a str,
    ) -> BalancerFuture<'a, Result<CallWay, NoWay>> {
        Box::pin(async { Err(NoWay::Service) })
    }

    /// What has passed each endpoint that was called on this node.
    fn figures(&self) -> BalancerFuture<'_, Option<Vec<EndpointFigures>>> {
        Box::pin(async { Some(Vec::new()) })
    }

    /// What this node has passed on for others that nobody can dial.
    fn relayed(&self) -> BalancerFuture<'_, RelayFigures> {
        Box::pin(async { RelayFigures::default() })
    }

    /// The node has gone from its cluster and runs nothing: whatever listens for services here ends.
    fn leave(&self) -> BalancerFuture<'_, ()> {
        Box::pin(async {})
    }

    /// The service has gone from this node: its ports are given up.
    fn close<'a>(&'a self, service: &'a ServiceKey) -> BalancerFuture<'a, ()>;
}
