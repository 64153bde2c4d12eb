//! The ports that a service is to have next: they are listened on before its replicas try them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::error_chain;

use super::NodeBalancer;
use crate::proxy::{Transport, taken_beside};

impl NodeBalancer {
    pub(super) async fn claim_next(&self, name: &ReplicaName, spec: &ServiceSpec) -> Result<(), String> {
        if spec.endpoints.is_empty() {
            self.unclaim(name).await;
            return Ok(());
        }
        let (revision, claimed, own) = {
            let mut wanted = self.wanted();
            let before = wanted.routes.table(0);
            wanted.routes.claim(name, spec)?;
            if wanted.routes.claimed(name).is_empty() && wanted.routes.table(0) == before {
                return Ok(());
            }
            wanted.revision += 1;
            let own = wanted.routes.listened();
            (wanted.revision, wanted.routes.claimed(name), own)
        };
        let unbound = match self.serve(revision).await {
            Ok(unbound) => unbound.into_iter(),
            Err(error) => {
                self.unclaim(name).await;
                return Err(format!("the balancer failed: {}", error_chain(&error)));
            }
        };
        let mut unbound = unbound.filter(|(addr, _)| claimed.iter().any(|(_, own)| own == addr));
        let why = match unbound.next() {
            Some((_, why)) => Some(why),
            None => taken_by_others(claimed, own).await,
        };
        match why {
            None => Ok(()),
            Some(why) => {
                self.unclaim(name).await;
                Err(why)
            }
        }
    }

    pub(super) async fn unclaim(&self, name: &ReplicaName) {
        let revision = {
            let mut wanted = self.wanted();
            let before = wanted.routes.table(0);
            wanted.routes.unclaim(name);
            if wanted.routes.table(0) == before {
                return;
            }
            wanted.revision += 1;
            wanted.revision
        };
        self.serve_or_say(revision).await;
    }
}

/// Who has one of the addresses that are not listened on yet because their port is, on another address.
async fn taken_by_others(
    claimed: BTreeSet<(Transport, SocketAddr)>,
    own: BTreeSet<SocketAddr>,
) -> Option<String> {
    if claimed.iter().all(|(_, addr)| own.contains(addr)) {
        return None;
    }
    let looked = tokio::task::spawn_blocking(move || {
        let mut later = claimed.into_iter().filter(|(_, addr)| !own.contains(addr));
        later.find_map(|(transport, addr)| taken_beside(addr, transport, &own))
    });
    // Who cannot look learns it when the port is opened.
    looked.await.ok().flatten()
}
