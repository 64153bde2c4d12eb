//! A session that the leader has given, until it is served.

use dhow_core::ids::NodeId;
use dhow_core::lease::SessionId;
use dhow_wire::grpc::proto::{OpenedSession, opened_session};
use dhow_wire::grpc::{Refusal, from_session};

use super::holder::Holder;

/// A session that the leader has given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub session: SessionId,
    pub ttl_secs: u32,
}

/// A session that another server has given as the leader, and that is not served here yet. Dropped so, its node went before
/// it was told: the session broke, which the leader has to hear, or it would take the node for held until its lease ends.
pub(super) struct Unserved {
    holder: Holder,
    node: NodeId,
    given: Given,
    is_taken: bool,
}

impl Unserved {
    pub fn new(holder: Holder, node: NodeId, given: Given) -> Self {
        Self {
            holder,
            node,
            given,
            is_taken: false,
        }
    }

    /// It is served from now on.
    pub fn take(mut self) -> Given {
        self.is_taken = true;
        self.given
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        if !self.is_taken {
            tracing::debug!(node = %self.node, "a node went before it was told of its session");
            self.holder.broke_unserved(self.node, self.given.session);
        }
    }
}

/// What the leader says to one who wants a session.
pub(super) fn given_in(opened: Option<OpenedSession>) -> Result<Given, Refusal> {
    let opened = opened.ok_or(Refusal::Busy)?;
    match opened.outcome {
        Some(opened_session::Outcome::Session(id)) => Ok(Given {
            session: from_session(id),
            ttl_secs: opened.ttl_secs,
        }),
        Some(opened_session::Outcome::Refused(refused)) => Err(Refusal::from_refused(&refused)),
        None => Err(Refusal::Busy),
    }
}
