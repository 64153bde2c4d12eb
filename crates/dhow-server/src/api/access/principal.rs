//! Who calls, once that is known.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use dhow_core::ids::NodeId;
use dhow_core::state::ApiRole;

use crate::api::problem::ApiProblem;
use crate::net::identity::Identity;

/// Name the original caller of a request that a server passes on. Believed of members alone.
pub const PRINCIPAL_HEADER: &str = "x-dhow-principal";
pub const AUTHOR_HEADER: &str = "x-dhow-author";

/// The longest name in such a header: that of a token with its kind, and room.
const NAME_CHARS_MAX: usize = 128;

/// The author of a request whose caller the API did not ask who it is.
const UNKNOWN: &str = "unknown";

/// Stands before a token's id.
const OF_TOKEN: &str = "token ";

/// The length of that: eight bytes.
const ID_CHARS: usize = 16;

/// On whose behalf a request is made. Every request that was let in carries one; handlers judge by it and events name
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A user of this host, on the Unix socket.
    User {
        uid: u32,
    },
    /// A server of the cluster, for itself.
    Member(NodeId),
    /// The caller whose request a server of the cluster passed on.
    Forwarded {
        principal: Arc<str>,
        author: Arc<str>,
    },
    Worker(NodeId),
    Token {
        id: Arc<str>,
        name: Arc<str>,
        role: ApiRole,
    },
    /// The API has not asked who calls: the route needs no right, or asks by itself.
    Unknown,
}

impl Principal {
    /// What a retried request is known by, together with its key.
    pub fn text(&self) -> Arc<str> {
        match self {
            Self::Unknown => UNKNOWN.into(),
            Self::User { uid } => format!("uid {uid}").into(),
            Self::Member(node) => Identity::Member(*node).to_string().into(),
            Self::Worker(node) => Identity::Worker(*node).to_string().into(),
            Self::Forwarded { principal, .. } => Arc::clone(principal),
            // Names of tokens may be given twice, ids are not.
            Self::Token { id, .. } => format!("{OF_TOKEN}{id}").into(),
        }
    }

    /// The id of the token of a caller whose request a server has passed on, where it has one. Servers of the first
    /// versions wrote its name.
    pub(super) fn forwarded_token(&self) -> Option<&str> {
        match self {
            Self::Forwarded { principal, .. } => {
                let id = principal.strip_prefix(OF_TOKEN);
                id.filter(|id| id.len() == ID_CHARS && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
            }
            Self::User { .. } | Self::Member(_) | Self::Worker(_) | Self::Token { .. } | Self::Unknown => {
                None
            }
        }
    }

    /// Whether it may look and change nothing.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Token { role, .. } => match role {
                ApiRole::Read => true,
                ApiRole::Admin | ApiRole::Deploy(_) => false,
            },
            Self::User { .. }
            | Self::Member(_)
            | Self::Forwarded { .. }
            | Self::Worker(_)
            | Self::Unknown => false,
        }
    }

    /// For people: the name of the one who called, where it is known, after the kind of what it showed, so that no
    /// name can be taken for somebody or something else.
    pub async fn author(&self) -> Arc<str> {
        match self {
            Self::User { uid } => user_name(*uid).await,
            Self::Forwarded { author, .. } => Arc::clone(author),
            Self::Token { name, .. } => format!("token {name}").into(),
            Self::Unknown | Self::Member(_) | Self::Worker(_) => self.text(),
        }
    }

    /// The same for the record of who did what: names of tokens may be given twice, ids are not.
    pub async fn recorded(&self) -> String {
        let author = self.author().await;
        match self {
            Self::Token { id, .. } => format!("{author} ({id})"),
            Self::User { .. }
            | Self::Forwarded { .. }
            | Self::Unknown
            | Self::Member(_)
            | Self::Worker(_) => author.to_string(),
        }
    }

    /// The headers with which a server passes a request of this caller on.
    pub async fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let author = self.author().await;
        for (name, text) in [(PRINCIPAL_HEADER, self.text()), (AUTHOR_HEADER, author)] {
            let value = HeaderValue::from_str(&text);
            // A user's name may hold what no header can; then the number that stands beside it has to do.
            if let Ok(value) = value {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// A member, or the one that it speaks for.
    pub(super) fn of_member(node: NodeId, headers: &HeaderMap) -> Result<Self, ApiProblem> {
        Ok(Self::forwarded(headers)?.unwrap_or(Self::Member(node)))
    }

    /// The one that a server speaks for, where it names one.
    fn forwarded(headers: &HeaderMap) -> Result<Option<Self>, ApiProblem> {
        let Some(principal) = read(headers, PRINCIPAL_HEADER)? else {
            return Ok(None);
        };
        let author = read(headers, AUTHOR_HEADER)?.unwrap_or_else(|| Arc::clone(&principal));
        Ok(Some(Self::Forwarded { principal, author }))
    }
}

fn read(headers: &HeaderMap, name: &str) -> Result<Option<Arc<str>>, ApiProblem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().ok().map(str::trim);
    let text = text.filter(|text| (1..=NAME_CHARS_MAX).contains(&text.len()));
    text.map(|text| Some(text.into())).ok_or_else(|| {
        ApiProblem::bad_request(format!("`{name}` has 1 to {NAME_CHARS_MAX} visible characters"))
    })
}

async fn user_name(uid: u32) -> Arc<str> {
    // The user database may be slow, or across the network.
    let looked_up = tokio::task::spawn_blocking(move || {
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
        user.ok().flatten().map(|user| user.name)
    });
    match looked_up.await.ok().flatten() {
        Some(name) => format!("user {name}").into(),
        None => format!("uid {uid}").into(),
    }
}
