//! A balancer that does nothing, for tests of agents: nobody listens for their replicas.

use std::collections::BTreeSet;
use std::time::Duration;

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::spec::ServiceSpec;

use super::{BackendAddress, Balancer, BalancerFuture};

/// Nobody listens: replicas are reached on their own ports alone.
pub struct NoBalancer;

impl Balancer for NoBalancer {
    fn open<'a>(&'a self, _: &'a ReplicaName, _: &'a ServiceSpec) -> BalancerFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn claim<'a>(
        &'a self,
        _: &'a ReplicaName,
        _: Option<&'a ServiceSpec>,
    ) -> BalancerFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn admit<'a>(&'a self, _: &'a ReplicaName, _: &'a [BackendAddress]) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    fn withdraw<'a>(&'a self, _: &'a ReplicaName, _: Duration) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    fn retain<'a>(&'a self, _: &'a BTreeSet<ReplicaName>) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    fn close<'a>(&'a self, _: &'a ServiceKey) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }
}
