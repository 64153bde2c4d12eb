//! Smaller things that a new leader must know: tokens' uses, secrets, manifest versions, answered requests.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::command::Outcome;
use crate::ids::NodeId;

/// A worker bootstrap token. The token itself is not here, only what its uses need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Token {
    pub uses_allowed: u32,
    pub expires_unix_secs: i64,
    pub revoked: bool,
    /// Who used it: the hash of the key that asked, and the node id it was given.
    #[serde(deserialize_with = "crate::maps::read")]
    pub uses: OrdMap<Arc<str>, NodeId>,
}

/// A secret as it is stored: sealed, never in clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    pub sealed: Arc<[u8]>,
    pub version: u64,
    /// Values before this one that a service which sees it as a file may go back to, the oldest first.
    #[serde(default)]
    pub earlier: Vector<EarlierSecret>,
}

/// A value that a secret had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierSecret {
    pub version: u64,
    pub sealed: Arc<[u8]>,
}

impl Secret {
    /// The value of that version, sealed, where it is kept.
    pub fn sealed_at(&self, version: u64) -> Option<&Arc<[u8]>> {
        if version == self.version {
            return Some(&self.sealed);
        }
        let earlier = self.earlier.iter().find(|earlier| earlier.version == version);
        earlier.map(|earlier| &earlier.sealed)
    }
}

/// The last set of signed manifests that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestVersion {
    pub version: u64,
    pub created_unix_secs: i64,
    pub index_hash: [u8; 32],
}

/// A directory of signed deployment files that the cluster follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Where it is on every server, and who may sign for it. None where the servers' configuration says so.
    pub settings: Option<SourceSettings>,
    /// The last set that was taken from it.
    pub taken: Option<ManifestVersion>,
    /// The commit that brought it, where the source is a git repository.
    #[serde(default)]
    pub commit: Option<Arc<str>>,
}

/// Where a source's files are and which keys may sign for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSettings {
    pub dir: Arc<str>,
    /// Ed25519 public keys.
    pub keys: Arc<[[u8; 32]]>,
    /// Where it is fetched from. None where it is the directory.
    #[serde(default)]
    pub remote: Option<Arc<RemoteSource>>,
    /// A set that was signed longer ago is not taken any more.
    #[serde(default)]
    pub max_age_secs: Option<u64>,
    /// The secret that whoever asks for a look over the source's webhook must know.
    #[serde(default)]
    pub hook_secret: Option<Arc<str>>,
}

impl SourceSettings {
    /// Where it is, in words.
    pub fn place(&self) -> String {
        match self.remote.as_deref() {
            None => self.dir.to_string(),
            Some(remote) => remote.place(),
        }
    }

    /// The secrets that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &Arc<str>> {
        let remote = self.remote.as_deref();
        let of_remote = remote
            .into_iter()
            .flat_map(|remote| [&remote.ca_secret, &remote.login_secret]);
        of_remote.chain([&self.hook_secret]).flatten()
    }

    /// Whether a server that knows directories alone would lose a part of it.
    pub fn needs_remotes(&self) -> bool {
        let Self {
            dir: _,
            keys: _,
            remote,
            max_age_secs,
            hook_secret,
        } = self;
        remote.is_some() || max_age_secs.is_some() || hook_secret.is_some()
    }
}

/// What kind of server a source is fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteKind {
    /// The files of a set below an address.
    Https,
    /// A repository over smart HTTP.
    Git,
}

/// Where a source is fetched from, and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSource {
    pub kind: RemoteKind,
    pub url: Arc<str>,
    /// The branch or tag of a repository; empty for its default branch.
    pub reference: Arc<str>,
    /// The folder of a repository that has the index; empty for its root.
    pub path: Arc<str>,
    /// The secret with the authorities that the server's certificate is believed by, in place of the usual ones.
    pub ca_secret: Option<Arc<str>>,
    /// The secret with a token, or with `USER:PASSWORD`, that is shown to the server.
    pub login_secret: Option<Arc<str>>,
}

impl RemoteSource {
    /// Where it is, in words.
    pub fn place(&self) -> String {
        let mut place = self.url.to_string();
        if !self.reference.is_empty() {
            place.push_str(&format!(" at {}", self.reference));
        }
        if !self.path.is_empty() {
            place.push_str(&format!(" in {}", self.path));
        }
        place
    }
}

/// Who asked, with which idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Request {
    pub principal: Arc<str>,
    pub key: Arc<str>,
}

/// How a request was answered: asked again, it gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    pub body_hash: [u8; 32],
    pub outcome: Outcome,
}
