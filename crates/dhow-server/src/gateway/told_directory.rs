//! What one node has been told of services over its session.

use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_wire::grpc::{Malformed, MeshPass, proto, to_directory_parts};

use super::tickets::{GivenTicket, TicketIssuer};
use crate::plane::runtime::DirectoryFollower;

/// The directory as a node has it, and its ticket. A session of a node that asks for the directory keeps one.
#[derive(Debug)]
pub(super) struct ToldDirectory {
    pub follower: DirectoryFollower,
    ticket: GivenTicket,
}

impl ToldDirectory {
    pub fn new(follower: DirectoryFollower) -> Self {
        Self {
            follower,
            ticket: GivenTicket::default(),
        }
    }

    pub fn renew_at_unix_secs(&self) -> Option<i64> {
        self.ticket.renew_at_unix_secs()
    }

    /// What the node has not been told; no parts where it has everything.
    pub fn look(
        &mut self,
        state: &State,
        node: NodeId,
        (tickets, now_unix_secs): (Option<&TicketIssuer>, i64),
    ) -> Result<Vec<proto::Directory>, Malformed> {
        let change = self.follower.look(state);
        let pass = tickets.map(|tickets| self.ticket.due(tickets, state, node, now_unix_secs));
        let pass = pass.unwrap_or_default();
        match change.is_empty() && pass == MeshPass::default() {
            true => Ok(Vec::new()),
            false => to_directory_parts(&change, &pass),
        }
    }
}
