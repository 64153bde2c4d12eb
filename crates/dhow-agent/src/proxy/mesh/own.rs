//! What this node shows and knows of itself: shared by the side that calls and the side that is called.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::identity::{Credentials, IdentityError, MeshIdentity};
use super::relay::{IDLE_FACTOR, Relay};
use super::tickets::{HeldTicket, NoTicket, TicketCheck};

/// How often a sign of life goes over a control connection.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// A node without one for this long is passed over, and its streams are cut: three beats.
const SILENCE_MAX: Duration = Duration::from_millis(1500);

/// The rhythm of control connections. Tests have a quicker one.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub beat: Duration,
    /// Also the longest that a connection may take to be made: a node that needs longer is as good as silent.
    pub silence: Duration,
}

impl Timing {
    /// Of a tunnel that waits for calls.
    pub fn idle(self) -> Self {
        Self {
            beat: self.beat * IDLE_FACTOR,
            silence: self.silence * IDLE_FACTOR,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            beat: BEAT_INTERVAL,
            silence: SILENCE_MAX,
        }
    }
}

/// This node's certificate and ticket of the moment. Connections ask for them, so that a renewal needs no restart.
pub struct Own {
    pub timing: Timing,
    shown: RwLock<Shown>,
    ticket: RwLock<Option<OwnTicket>>,
    check: RwLock<TicketCheck>,
    /// This node, and where the proxies of others are that can be dialled.
    node: AtomicU64,
    addrs: RwLock<BTreeMap<u64, SocketAddr>>,
    /// What this node passes on for others.
    pub relay: Relay,
}

/// What TLS is made of, and what was made of it.
#[derive(Default)]
struct Shown {
    identity: Option<MeshIdentity>,
    /// As the last table has them.
    believed: Option<String>,
    credentials: Option<Arc<Credentials>>,
}

impl Shown {
    /// Makes credentials of what there is; those that are there stay where that cannot be.
    fn renew(&mut self) -> Result<(), IdentityError> {
        if let Some(identity) = &self.identity {
            let made = Credentials::new(identity, self.believed.as_deref())?;
            self.credentials = Some(Arc::new(made));
        }
        Ok(())
    }
}

struct OwnTicket {
    text: Arc<str>,
    held: Option<HeldTicket>,
}

impl Own {
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            shown: RwLock::default(),
            ticket: RwLock::default(),
            check: RwLock::default(),
            node: AtomicU64::new(0),
            addrs: RwLock::default(),
            relay: Relay::default(),
        }
    }

    pub fn credentials(&self) -> Option<Arc<Credentials>> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        shown.credentials.clone()
    }

    /// Shows this from now on. Connections that are open keep what they have.
    pub fn show(&self, identity: &MeshIdentity) -> Result<(), IdentityError> {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        let made = Credentials::new(identity, shown.believed.as_deref())?;
        (shown.identity, shown.credentials) = (Some(identity.clone()), Some(Arc::new(made)));
        Ok(())
    }

    /// Believes the nodes of these CAs from now on. Where they cannot be read, those that were believed before.
    pub fn believe(&self, believed: Option<&str>) -> Result<(), IdentityError> {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        if shown.believed.as_deref() == believed {
            return Ok(());
        }
        let before = std::mem::replace(&mut shown.believed, believed.map(str::to_owned));
        shown.renew().inspect_err(|_| shown.believed = before)
    }

    /// Where a node's proxy can be dialled.
    pub fn addr_of(&self, node: u64) -> Option<SocketAddr> {
        let addrs = self.addrs.read().unwrap_or_else(PoisonError::into_inner);
        addrs.get(&node).copied()
    }

    pub fn set_addrs(&self, addrs: BTreeMap<u64, SocketAddr>) {
        *self.addrs.write().unwrap_or_else(PoisonError::into_inner) = addrs;
    }

    /// Which node this is; 0 while no table has said it.
    pub fn node(&self) -> u64 {
        self.node.load(Ordering::Relaxed)
    }

    pub fn ticket(&self) -> Option<Arc<str>> {
        let ticket = self.ticket.read().unwrap_or_else(PoisonError::into_inner);
        ticket.as_ref().map(|ticket| Arc::clone(&ticket.text))
    }

    /// What this node shows, and how the tickets of others are read.
    pub fn set_tickets(&self, node: u64, text: Option<&str>, check: TicketCheck) {
        self.node.store(node, Ordering::Relaxed);
        let fresh = text.map(|text| OwnTicket {
            text: text.into(),
            held: check.read(text, node).ok(),
        });
        *self.check.write().unwrap_or_else(PoisonError::into_inner) = check;
        *self.ticket.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// What the ticket of another node says, where the cluster has signed it.
    pub fn check(&self, text: &str, node: u64) -> Result<Arc<HeldTicket>, NoTicket> {
        let check = self.check.read().unwrap_or_else(PoisonError::into_inner).clone();
        check.read(text, node).map(Arc::new)
    }

    /// Whether a ticket counts now. One that has ended counts where this node's own has too: then there are no servers
    /// that could have renewed either, and the certificate of the connection's other end decides alone.
    pub fn counts(&self, ticket: &HeldTicket, now_unix_secs: i64) -> bool {
        let own = self.ticket.read().unwrap_or_else(PoisonError::into_inner);
        let own = own.as_ref().and_then(|own| own.held.as_ref());
        let has_servers = own.is_some_and(|own| now_unix_secs < own.expires_unix_secs);
        now_unix_secs < ticket.expires_unix_secs || !has_servers
    }
}
