//! Who may call an endpoint: what a table says, and the judgement itself. Pure.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Who may call by a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Whoever reaches the address.
    #[default]
    Anybody,
    /// Those whom the endpoint lets in.
    Judged(EndpointRule),
}

/// Whom an endpoint lets in: its deployment, and what its spec says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointRule {
    pub deployment: String,
    pub expose: Expose,
    /// `None`: whoever `expose` lets in. Else these replicas and no others.
    #[serde(default)]
    pub allow: Option<Vec<Allowed>>,
}

/// From where an endpoint can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expose {
    /// Replicas of the same deployment.
    Internal,
    /// Replicas of every deployment.
    Cluster,
    /// Everybody.
    Public,
}

/// A service whose replicas may call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Allowed {
    pub deployment: String,
    pub service: String,
}

/// Who calls, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A replica of this service; of one of these, where a user runs replicas of several.
    Replicas(Arc<[Allowed]>),
    /// Root, or the user who runs the daemon.
    HostUser,
    Stranger,
}

impl Rule {
    pub fn admits(&self, peer: &Peer) -> bool {
        match self {
            Self::Anybody => true,
            Self::Judged(rule) => rule.admits(peer),
        }
    }
}

impl EndpointRule {
    fn admits(&self, peer: &Peer) -> bool {
        let by_expose = |caller: &Allowed| match self.expose {
            Expose::Internal => caller.deployment == self.deployment,
            Expose::Cluster => true,
            Expose::Public => true,
        };
        let one = |caller: &Allowed| match &self.allow {
            Some(allowed) => allowed.contains(caller),
            None => by_expose(caller),
        };
        match (peer, self.expose) {
            (Peer::Replicas(_) | Peer::HostUser | Peer::Stranger, Expose::Public) => true,
            (Peer::HostUser, Expose::Internal | Expose::Cluster) => true,
            (Peer::Stranger, Expose::Internal | Expose::Cluster) => false,
            // Which of them it is cannot be told.
            (Peer::Replicas(callers), Expose::Internal | Expose::Cluster) => {
                !callers.is_empty() && callers.iter().all(one)
            }
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas(callers) => {
                for (at, caller) in callers.iter().enumerate() {
                    let or = if at == 0 { "" } else { " or " };
                    write!(f, "{or}{}/{}", caller.deployment, caller.service)?;
                }
                Ok(())
            }
            Self::HostUser => f.write_str("a user of this host"),
            Self::Stranger => f.write_str("nobody known here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(deployment: &str, service: &str) -> Allowed {
        Allowed {
            deployment: deployment.into(),
            service: service.into(),
        }
    }

    fn replicas(of: &[(&str, &str)]) -> Peer {
        let of = of.iter().map(|(deployment, name)| service(deployment, name));
        Peer::Replicas(of.collect())
    }

    fn rule(expose: Expose, allow: Option<Vec<Allowed>>) -> Rule {
        Rule::Judged(EndpointRule {
            deployment: "shop".into(),
            expose,
            allow,
        })
    }

    #[test]
    fn who_may_call_follows_from_expose_and_allow() {
        let (own, other) = (replicas(&[("shop", "web")]), replicas(&[("blog", "web")]));
        let both = replicas(&[("shop", "web"), ("blog", "web")]);
        let only_admin = || Some(vec![service("shop", "admin"), service("blog", "web")]);
        for (rule, admits) in [
            (rule(Expose::Internal, None), [true, false, false, true, false]),
            (rule(Expose::Cluster, None), [true, true, true, true, false]),
            (rule(Expose::Public, None), [true, true, true, true, true]),
            // A list narrows and widens: it alone counts.
            (
                rule(Expose::Internal, only_admin()),
                [false, true, false, true, false],
            ),
            (
                rule(Expose::Cluster, only_admin()),
                [false, true, false, true, false],
            ),
            (
                rule(Expose::Internal, Some(vec![])),
                [false, false, false, true, false],
            ),
            (Rule::Anybody, [true, true, true, true, true]),
        ] {
            let peers = [&own, &other, &both, &Peer::HostUser, &Peer::Stranger];
            let seen = peers.map(|peer| rule.admits(peer));
            assert_eq!(seen, admits, "{rule:?}");
        }
        assert!(!rule(Expose::Cluster, None).admits(&replicas(&[])));
    }
}
