//! What the agent asks of the balancer in front of its replicas. The order is what keeps requests from failing:
//! listeners are open before a replica starts, a replica is admitted once it is healthy and withdrawn before it is
//! asked to end.

mod no_balancer;
mod node;
mod routes;

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::spec::ServiceSpec;

pub use no_balancer::NoBalancer;
pub use node::NodeBalancer;

pub type BalancerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a replica serves one of its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendAddress {
    /// The endpoint's name.
    pub endpoint: String,
    pub addr: SocketAddr,
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

    /// The service has gone from this node: its ports are given up.
    fn close<'a>(&'a self, service: &'a ServiceKey) -> BalancerFuture<'a, ()>;
}
