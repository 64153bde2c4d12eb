//! What other nodes can call here: this node's replicas by endpoint, and who may. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::frame::{Opening, Origin, Why};
use super::tickets::HeldTicket;
use crate::proxy::backend::BackendState;
use crate::proxy::table::{Backend, Listener, Names, Peer, Rule, Table, Transport};

/// One endpoint of one replica of this node.
pub struct Target {
    pub backend: Arc<BackendState>,
    transport: Transport,
    rule: Rule,
}

/// The endpoints of this node's replicas, as the last table has them.
#[derive(Default)]
pub struct Targets {
    /// By the backend's id and the endpoint's name.
    targets: HashMap<(String, String), Arc<Target>>,
    /// The names of the replicas, without their generations.
    names: BTreeSet<String>,
}

impl Targets {
    /// What stands in a table with an address. Where an endpoint has a name, the rule of the name counts: that of a
    /// listener is about this host's callers.
    pub fn new(table: &Table, state: impl Fn(&str, &Backend) -> Option<Arc<BackendState>>) -> Self {
        let mut targets = Self::default();
        let named = table.names.as_ref().map(Names::listeners).unwrap_or_default();
        for listener in table.listeners.iter().chain(&named) {
            targets.add(listener, &state);
        }
        targets
    }

    fn add(&mut self, listener: &Listener, state: &impl Fn(&str, &Backend) -> Option<Arc<BackendState>>) {
        for route in &listener.routes {
            let endpoint = endpoint_of(&route.id);
            for backend in route.backends.iter().filter(|backend| backend.addr.is_some()) {
                let Some(state) = state(endpoint, backend) else {
                    continue;
                };
                let target = Target {
                    backend: state,
                    transport: listener.protocol.transport(),
                    rule: route.who.clone(),
                };
                self.names.insert(name_of(&backend.id).to_owned());
                let key = (backend.id.clone(), endpoint.to_owned());
                self.targets.insert(key, Arc::new(target));
            }
        }
    }

    /// Finds what an opening means and judges whether it may have it.
    pub fn find(&self, opening: &Opening, ticket: Option<&HeldTicket>) -> Result<Arc<Target>, Why> {
        let key = (opening.replica.clone(), opening.endpoint.clone());
        let Some(target) = self.targets.get(&key) else {
            return Err(match self.names.contains(name_of(&opening.replica)) {
                true => Why::Gone,
                false => Why::NotMine,
            });
        };
        if target.transport != opening.transport {
            return Err(Why::NotMine);
        }
        judge(&target.rule, &opening.origin, ticket)?;
        match target.backend.is_draining() {
            true => Err(Why::Draining),
            false => Ok(Arc::clone(target)),
        }
    }

    /// The replicas that get nothing new.
    pub fn draining(&self) -> BTreeSet<Arc<str>> {
        let draining = self
            .targets
            .values()
            .filter(|target| target.backend.is_draining());
        draining.map(|target| target.backend.id.as_str().into()).collect()
    }
}

/// The last part of a route's id, `deployment/service/endpoint`.
pub fn endpoint_of(route: &str) -> &str {
    route.rsplit('/').next().unwrap_or(route)
}

/// A backend's id without the generation.
fn name_of(id: &str) -> &str {
    id.rsplit_once('@').map_or(id, |(name, _)| name)
}

/// Whether a caller of another node may call. What it says of itself, the ticket must have; where everybody may call,
/// nobody has to prove anything.
fn judge(rule: &Rule, origin: &Origin, ticket: Option<&HeldTicket>) -> Result<(), Why> {
    if rule.admits(&Peer::Stranger) {
        return Ok(());
    }
    let may = match origin {
        Origin::Outside => false,
        // The users of a host may look at what one of the replicas there may look at, and at nothing else.
        Origin::Host => {
            let ticket = ticket.ok_or(Why::Ticket)?;
            ticket.replicas().any(|replica| rule.admits(&replica))
        }
        Origin::Replica { deployment, service } => {
            let ticket = ticket.filter(|ticket| ticket.has(deployment, service));
            ticket.ok_or(Why::Ticket)?;
            rule.admits(&origin.caller())
        }
    };
    match may {
        true => Ok(()),
        false => Err(Why::NotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::table::{Allowed, EndpointRule, Expose};

    fn replica(deployment: &str, service: &str) -> Origin {
        Origin::Replica {
            deployment: deployment.into(),
            service: service.into(),
        }
    }

    fn rule(expose: Expose, allow: Option<&[(&str, &str)]>) -> Rule {
        let allow = allow.map(|pairs| {
            let pairs = pairs.iter();
            pairs
                .map(|(deployment, service)| Allowed {
                    deployment: (*deployment).into(),
                    service: (*service).into(),
                })
                .collect()
        });
        Rule::Judged(EndpointRule {
            deployment: "shop".into(),
            expose,
            allow,
        })
    }

    #[test]
    fn who_may_call_from_another_node() {
        let callers = [("shop", "web"), ("blog", "app")];
        let ticket = HeldTicket {
            callers: callers.map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
            expires_unix_secs: 0,
        };
        let (web, app, forged) = (
            replica("shop", "web"),
            replica("blog", "app"),
            replica("shop", "db"),
        );
        let judged = |rule: &Rule, origin: &Origin| judge(rule, origin, Some(&ticket));
        let (internal, cluster, public) = (
            rule(Expose::Internal, None),
            rule(Expose::Cluster, None),
            rule(Expose::Public, None),
        );
        assert_eq!(judged(&internal, &web), Ok(()));
        assert_eq!(judged(&internal, &app), Err(Why::NotAllowed));
        assert_eq!(judged(&internal, &forged), Err(Why::Ticket));
        assert_eq!(judged(&internal, &Origin::Outside), Err(Why::NotAllowed));
        assert_eq!(judged(&internal, &Origin::Host), Ok(()));
        assert_eq!(judged(&cluster, &app), Ok(()));
        assert_eq!(judged(&cluster, &Origin::Outside), Err(Why::NotAllowed));
        assert_eq!(judged(&public, &Origin::Outside), Ok(()));
        assert_eq!(judged(&Rule::Anybody, &Origin::Outside), Ok(()));
        // `allow` widens and narrows.
        let allowing = rule(Expose::Internal, Some(&[("blog", "app")]));
        assert_eq!(judged(&allowing, &app), Ok(()));
        assert_eq!(judged(&allowing, &web), Err(Why::NotAllowed));
        assert_eq!(judged(&allowing, &Origin::Host), Ok(()));
        // What none of a host's replicas may call, its users may not either.
        let none = HeldTicket {
            callers: BTreeSet::new(),
            expires_unix_secs: 0,
        };
        assert_eq!(judge(&cluster, &Origin::Host, Some(&none)), Err(Why::NotAllowed));
        let narrow = rule(Expose::Cluster, Some(&[("blog", "db")]));
        assert_eq!(judged(&narrow, &Origin::Host), Err(Why::NotAllowed));
        // Without a ticket nobody is a replica or a user of the node.
        for origin in [&web, &Origin::Host] {
            assert_eq!(judge(&cluster, origin, None), Err(Why::Ticket));
            assert_eq!(judge(&public, origin, None), Ok(()));
        }
    }
}
