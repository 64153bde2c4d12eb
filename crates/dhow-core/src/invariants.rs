//! What is true of every state that `step` can make. The laws and the scenarios of the simulator check it after every
//! step; servers do not, because a violation is a bug and never an input.

use std::collections::BTreeMap;
use std::fmt;

use crate::amount::Amount;
use crate::ids::{NodeId, ReplicaKey, ServiceId, Slot};
use crate::spec::{ContentHash, NodeMode};
use crate::state::{AssignedReplica, Node, NodeRole, Replica, Service, State, Wanted};

/// A broken invariant, with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All violations; empty for a sound state.
pub fn check(state: &State) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    check_replicas(state, &mut found);
    check_nodes(state, &mut found);
    check_services(state, &mut found);
    check_deployments(state, &mut found);
    check_contents(state, &mut found);
    check_requests(state, &mut found);
    found.0
}

struct Found(Vec<Violation>);

impl Found {
    fn expect(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation(text()));
        }
    }
}

fn check_replicas(state: &State, found: &mut Found) {
    let mut serving: BTreeMap<(ServiceId, Slot), Vec<&ReplicaKey>> = BTreeMap::new();
    for (key, replica) in &state.replicas {
        let Some(service) = state.service(key.service) else {
            found.expect(false, || format!("{key:?} belongs to no service"));
            continue;
        };
        found.expect(service.info(key.generation).is_some(), || {
            format!("{key:?} has an unknown generation")
        });
        found.expect(service.role(key.slot.role).is_some(), || {
            format!("{key:?} has an unknown role")
        });
        check_on_node(state, key, replica, found);
        let healthy = replica.is_healthy() == replica.healthy_since.is_some();
        found.expect(healthy, || {
            format!("{key:?} does not know since when it is healthy")
        });
        if stays(state, service, key, replica) {
            serving.entry((key.service, key.slot)).or_default().push(key);
        }
    }
    for (slot, keys) in serving {
        // Two at a time only while a move is being undone, and then they differ in their generation.
        found.expect(keys.len() <= 2, || format!("{slot:?} is served by {keys:?}"));
    }
}

/// Whether the replica is one that its slot keeps: of the target's template, and on a node that stays.
fn stays(state: &State, service: &Service, key: &ReplicaKey, replica: &Replica) -> bool {
    replica.wanted == Wanted::Run
        && replica.reserves()
        && service.is_current(key.generation)
        && state.node(replica.node).is_some_and(|node| node.is_open())
}

fn check_on_node(state: &State, key: &ReplicaKey, replica: &Replica, found: &mut Found) {
    let Some(node) = state.node(replica.node) else {
        found.expect(false, || {
            format!("{key:?} is on node {}, which is not there", replica.node)
        });
        return;
    };
    let assigned = AssignedReplica {
        slot: key.slot,
        generation: key.generation,
    };
    let is_assigned = node.assignments.contains(key.service, &assigned);
    let is_stopping = node.stopping.contains(key);
    let expected = match replica.wanted {
        Wanted::Run => (true, false),
        Wanted::Stop => (false, true),
    };
    found.expect((is_assigned, is_stopping) == expected, || {
        format!(
            "{key:?} is wanted {:?}, assigned {is_assigned}, stopping {is_stopping}",
            replica.wanted
        )
    });
}

fn check_nodes(state: &State, found: &mut Found) {
    let mut load: BTreeMap<NodeId, (Amount, u32)> = BTreeMap::new();
    for (key, replica) in state.replicas.iter().filter(|(_, replica)| replica.reserves()) {
        let demand = state.service(key.service).map_or(Amount::ZERO, |service| {
            service.demand(key.generation, key.slot.role)
        });
        let (used, count) = load.entry(replica.node).or_default();
        *used = used.plus(demand);
        *count += 1;
    }
    let noted = &state.node_ids.removed;
    found.expect(noted.len() <= State::REMOVED_MAX, || {
        format!("{} removed nodes are noted", noted.len())
    });
    for (id, node) in &state.nodes {
        found.expect(!noted.contains_key(id), || {
            format!("node {id} is there and noted as removed")
        });
        let (used, count) = load.get(id).copied().unwrap_or_default();
        found.expect((node.used, node.reserving) == (used, count), || {
            format!(
                "node {id} believes {} for {}, has {used} for {count}",
                node.used, node.reserving
            )
        });
        for key in node.replica_keys() {
            let known = state
                .replicas
                .get(&key)
                .is_some_and(|replica| replica.node == *id);
            found.expect(known, || format!("node {id} has {key:?}, which is not there"));
        }
        found.expect(
            state.last_node_id >= *id || state.node_ids.used.contains(id),
            || format!("the id of node {id} could be given again"),
        );
        let is_server_id = state.node_ids.servers.contains(id);
        found.expect(!(is_server_id && node.info.role == NodeRole::Worker), || {
            format!("worker {id} has an id that is kept for a server")
        });
        check_tenants(state, node, found);
    }
}

/// A node that a service has to itself has no other's replicas.
fn check_tenants(state: &State, node: &Node, found: &mut Found) {
    let Some(taken) = node.taken else { return };
    let tenants: Vec<ReplicaKey> = node
        .replica_keys()
        .filter(|key| state.replicas.get(key).is_some_and(|replica| replica.reserves()))
        .collect();
    let own = tenants.iter().all(|key| key.service == taken.service);
    found.expect(own, || {
        format!(
            "node {} is service {}'s alone and has {tenants:?}",
            node.id, taken.service
        )
    });
    let alone = taken.mode != NodeMode::Exclusive || tenants.len() <= 1;
    found.expect(alone, || {
        format!("node {} is for one replica and has {tenants:?}", node.id)
    });
}

/// A deployment has what its revisions and generations name, and nothing else, within its bounds.
fn check_contents(state: &State, found: &mut Found) {
    let mut total = 0_u64;
    for (name, deployment) in &state.deployments {
        let named = crate::step::named_contents(state, deployment);
        let kept: std::collections::BTreeSet<_> = deployment.contents.keys().copied().collect();
        found.expect(named == kept, || {
            format!("{name} names {named:?} and keeps {kept:?}")
        });
        total += deployment
            .contents
            .values()
            .map(|content| content.len() as u64)
            .sum::<u64>();
        let wrong = deployment
            .contents
            .iter()
            .find(|(hash, content)| **hash != ContentHash::of(content));
        found.expect(wrong.is_none(), || {
            format!("{name} has a content under another's name")
        });
    }
    found.expect(total <= State::CONFIG_BYTES_MAX, || {
        format!("configs have {total} bytes")
    });
}

fn check_services(state: &State, found: &mut Found) {
    for (id, service) in &state.services {
        found.expect(state.service_ids.get(&service.key) == Some(id), || {
            format!("{} is not indexed", service.key)
        });
        found.expect(service.target_info().is_some(), || {
            format!("{} has no target", service.key)
        });
        let lengths = service.counts.len() == service.roles.len();
        found.expect(lengths, || format!("{} has counts for other roles", service.key));
        let newest = service.generations.get_max().map(|(generation, _)| *generation);
        found.expect(newest == Some(service.target), || {
            format!("{}'s target is not its newest", service.key)
        });
        let counted = service.generations.values().filter_map(|info| info.next.as_ref());
        for next in counted {
            let same = service.generations.values().any(|info| {
                let own = info.next.as_ref().is_some_and(|own| own.id == next.id);
                own && !info.spec.rolls_into(&next.spec)
            });
            found.expect(same && next.id <= service.settings, || {
                format!("{} has settings to come that are not its own", service.key)
            });
        }
        let known = state
            .deployment(&service.key.deployment)
            .is_some_and(|deployment| deployment.services.get(&service.key.service) == Some(id));
        found.expect(known, || format!("{} is unknown to its deployment", service.key));
    }
    let lengths = state.services.len() == state.service_ids.len();
    found.expect(lengths, || "the index of services has more than there are".into());
}

fn check_deployments(state: &State, found: &mut Found) {
    for (name, deployment) in &state.deployments {
        found.expect(deployment.current().is_some(), || {
            format!("{name} has no current revision")
        });
        found.expect(deployment.history.len() <= State::HISTORY_MAX + 1, || {
            format!("{name} keeps too much")
        });
        let good = deployment
            .last_good
            .is_none_or(|good| deployment.history.contains_key(&good));
        found.expect(good, || format!("{name} has forgotten its last good revision"));
        for id in deployment.services.values() {
            found.expect(state.service(*id).is_some(), || {
                format!("{name} has service {id}, not there")
            });
        }
    }
}

fn check_requests(state: &State, found: &mut Found) {
    let bounded = state.requests.len() <= State::REQUESTS_MAX;
    found.expect(bounded, || {
        format!("{} requests are remembered", state.requests.len())
    });
    let matched = state.requests.len() == state.request_order.len();
    found.expect(matched, || "requests and their order differ".into());
    let bounded = state.api_tokens.len() <= State::API_TOKENS_MAX;
    found.expect(bounded, || format!("{} tokens are kept", state.api_tokens.len()));
    let bounded = state.tokens.len() <= state.worker_tokens_max()
        && state.worker_cas.retired.len() <= State::RETIRED_WORKER_CAS_MAX;
    found.expect(bounded, || {
        let (tokens, cas) = (state.tokens.len(), state.worker_cas.retired.len());
        format!("{tokens} tokens of workers and {cas} of their CAs are kept")
    });
}
