//! Typed identifiers. Numbers and names of different kinds never mix; names are checked where they are
//! made, so everything behind this module can rely on them. Called by every other module; never allocates
//! an id by itself (ids enter inside commands or come from counters in `State`).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            /// The next one; stays at the largest value instead of wrapping.
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id! {
    /// A node of the cluster: server, peer or worker.
    NodeId(u64)
}
number_id! {
    /// Position in the log; also the revision of the whole state after that entry.
    Revision(u64)
}
number_id! {
    /// The leader's term: every leadership gets a higher one.
    Term(u64)
}
number_id! {
    /// Counts what one service's replicas were made from. Higher is newer; ids of replicas carry it.
    Generation(u32)
}
number_id! {
    /// Two generations with the same template run the same thing; a new template rolls.
    Template(u32)
}
number_id! {
    /// Settings of a service that running replicas are told to try before they count, counted by the service.
    SettingsId(u32)
}
number_id! {
    /// A service inside the state, given at its first deployment. Short, so that a replica's key is.
    ServiceId(u32)
}
number_id! {
    /// Position of a role in its service's list of roles, which only ever grows.
    RoleId(u16)
}
number_id! {
    /// A deployment's own versions, counted from 1.
    DeploymentRevision(u64)
}

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a {what} has {min} to {max} characters, this one has {found}")]
    Length {
        what: &'static str,
        min: usize,
        max: usize,
        found: usize,
    },
    #[error("a {what} starts with a letter a–z")]
    Start { what: &'static str },
    #[error("a {what} holds only a–z, 0–9 and -, found {found:?}")]
    Character { what: &'static str, found: char },
    #[error("a {what} does not end with -")]
    End { what: &'static str },
}

fn check_name(text: &str, what: &'static str, min: usize) -> Result<(), NameError> {
    const NAME_MAX_CHARS: usize = 63;
    let bad = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-'));
    if let Some(found) = bad {
        return Err(NameError::Character { what, found });
    }
    if text.len() < min || text.len() > NAME_MAX_CHARS {
        return Err(NameError::Length {
            what,
            min,
            max: NAME_MAX_CHARS,
            found: text.len(),
        });
    }
    if !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(NameError::Start { what });
    }
    if text.ends_with('-') {
        return Err(NameError::End { what });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $min:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and makes a name of it.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check_name(text, $what, $min)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// The name of a deployment, unique in the cluster.
    DeploymentName, "deployment name", 3
}
name! {
    /// The name of a service, unique in its deployment.
    ServiceName, "service name", 1
}
name! {
    /// The name of a role, unique in its service.
    RoleName, "role name", 1
}

impl DeploymentName {
    /// What a peer means that does not name a deployment.
    pub fn fallback() -> Self {
        Self("default".into())
    }
}

impl RoleName {
    /// The one role of a service without replica groups.
    pub fn fallback() -> Self {
        Self("default".into())
    }
}

/// A service by its names, as people and peers write it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceKey {
    pub deployment: DeploymentName,
    pub service: ServiceName,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.deployment, self.service)
    }
}

/// A place in a service that one replica at a time serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    pub role: RoleId,
    pub index: u32,
}

/// A replica: a slot of a service, with the generation that tells old and new apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaKey {
    pub service: ServiceId,
    pub slot: Slot,
    pub generation: Generation,
}

/// A replica by its names, as peers and people know it: the tuple that its id is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaName {
    pub deployment: DeploymentName,
    pub service: ServiceName,
    pub role: RoleName,
    pub index: u32,
    pub generation: Generation,
}

impl ReplicaName {
    /// `{service}-{role}-{index}`: the id inside the deployment.
    pub fn id(&self) -> String {
        replica_id(&self.service, &self.role, self.index)
    }

    /// The service that it is a replica of.
    pub fn service_key(&self) -> ServiceKey {
        ServiceKey {
            deployment: self.deployment.clone(),
            service: self.service.clone(),
        }
    }
}

impl fmt::Display for ReplicaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.deployment, self.id())
    }
}

/// `{service}-{role}-{index}`.
pub fn replica_id(service: &ServiceName, role: &RoleName, index: u32) -> String {
    format!("{service}-{role}-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_are_made() {
        assert!(DeploymentName::new("shop").is_ok());
        assert_eq!(
            DeploymentName::new("ab"),
            Err(NameError::Length {
                what: "deployment name",
                min: 3,
                max: 63,
                found: 2
            })
        );
        assert_eq!(
            DeploymentName::new("1shop"),
            Err(NameError::Start {
                what: "deployment name"
            })
        );
        assert_eq!(
            ServiceName::new("Web"),
            Err(NameError::Character {
                what: "service name",
                found: 'W'
            })
        );
        assert_eq!(RoleName::new("a-"), Err(NameError::End { what: "role name" }));
        assert!(ServiceName::new(&"a".repeat(63)).is_ok());
        assert!(ServiceName::new(&"a".repeat(64)).is_err());
        assert!(ServiceName::new("").is_err());
        assert!(serde_json::from_str::<ServiceName>("\"a b\"").is_err());
    }

    #[test]
    fn ids_are_made_of_the_tuple() {
        let name = ReplicaName {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new("web").unwrap(),
            role: RoleName::fallback(),
            index: 3,
            generation: Generation(2),
        };
        assert_eq!(name.to_string(), "shop/web-default-3");
    }
}
