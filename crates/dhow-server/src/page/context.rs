//! What every part of the page works with.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::glance::Glances;
use super::limits::STREAMS_MAX;
use super::session::Sessions;
use super::viewer::Viewer;
use crate::api::{Inside, Principal};
use crate::plane::services::ServiceManager;

/// The page of one server; cheap to clone.
#[derive(Clone)]
pub(super) struct Page {
    pub inside: Inside,
    pub sessions: Arc<Sessions>,
    pub glances: Arc<Glances>,
    /// One permit for each stream of an open page.
    pub streams: Arc<Semaphore>,
    /// What words of forms are made with.
    form_key: [u8; 32],
}

impl Page {
    pub fn new(inside: Inside) -> Self {
        Self {
            inside,
            sessions: Arc::default(),
            glances: Arc::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            form_key: rand::random(),
        }
    }

    pub fn manager(&self) -> &ServiceManager {
        &self.inside.api.manager
    }

    pub fn now_unix_secs(&self) -> i64 {
        self.manager().clock().wall_unix_ms().div_euclid(1_000)
    }

    /// What the forms of a viewer carry: of its session, else of whoever it is.
    pub fn form_word(&self, session: Option<&[u8]>, principal: &Principal) -> String {
        let name = principal.text();
        let mut hasher = blake3::Hasher::new_keyed(&self.form_key);
        hasher.update(session.unwrap_or_default());
        hasher.update(name.as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    /// Whether somebody's session is still open, where there is one.
    pub fn is_open(&self, viewer: &Viewer) -> bool {
        let Some((key, _)) = &viewer.session else {
            return true;
        };
        self.sessions.token_of(key, self.now_unix_secs()).is_some()
    }
}
