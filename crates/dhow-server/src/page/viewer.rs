//! Whoever looks at the page, as the door has found out.

use axum::http::HeaderValue;

use super::session::SessionKey;
use crate::api::{OfSession, Principal};
use crate::net::identity::Peer;
use crate::net::lobby::Visit;

/// Goes with every request behind the door.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    pub principal: Principal,
    /// Its name for people.
    pub name: String,
    /// The session that it is known by; none for whoever is known by the connection or brings a token each time.
    pub session: Option<(SessionKey, OfSession)>,
    /// What its forms carry, so that no other page can send them.
    pub form_word: String,
    pub peer: Option<Peer>,
    pub visit: Option<Visit>,
    pub authorization: Option<HeaderValue>,
}

impl Viewer {
    /// Whether it is offered what changes something. The API decides again.
    pub fn may_act(&self) -> bool {
        !self.principal.only_reads()
    }
}

/// Whether what the browser shows came over TLS to this server.
pub(super) fn is_tls(peer: Option<Peer>) -> bool {
    matches!(peer, Some(Peer::Tls { .. }))
}
