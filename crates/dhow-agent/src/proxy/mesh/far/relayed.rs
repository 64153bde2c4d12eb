//! What nodes want of one that passes on: a place for a tunnel, a connection to somebody who has one, or to be that somebody.

use std::io;

use tokio::time::timeout;

use super::{ANSWER_TIMEOUT, Caller, Far};
use crate::proxy::mesh::connection::{Connection, bad};
use crate::proxy::mesh::frame::{self, Answer, Kind, Why};
use crate::proxy::mesh::refusals::{Cause, Refusee};

impl Far {
    /// Keeps the tunnel of a node: it is tied to others as itself alone, because its certificate says who it is.
    pub(super) async fn take_offer(&self, connection: Connection, caller: &Caller) {
        tokio::select! {
            () = self.own.relay.keep(caller.node, connection, self.own.timing) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// The same for what it dials for a call.
    pub(super) fn take_arrival(&self, connection: Connection, caller: &Caller, body: &[u8]) {
        match frame::read_number(Kind::Arrive, body) {
            Ok(number) => self.own.relay.arrive(caller.node, number, connection),
            Err(error) => self.nonsense(caller, &bad(error)),
        }
    }

    /// Passes on to a node that has a tunnel here, to the end of what passes.
    pub(super) async fn pass_through(
        &self,
        mut connection: Connection,
        caller: &Caller,
        body: &[u8],
    ) -> io::Result<()> {
        let node = frame::read_number(Kind::Through, body).map_err(bad)?;
        let tied = match self.is_removed(caller.node) || self.is_removed(node) {
            true => Err(Why::NotAllowed),
            false => self.own.relay.call(node, caller.node).await,
        };
        if let Err(why @ (Why::NotAllowed | Why::NoRelay)) = &tied {
            let words = || format!("it wants a connection to node {node}: {why}");
            self.refusals
                .say(Refusee::Node(caller.node), Cause::Stream(*why), words);
        }
        let answer = tied
            .as_ref()
            .map_or_else(|why| Answer::Refused(*why), |_| Answer::Accepted);
        let words = frame::write_body(&answer);
        let answered = timeout(ANSWER_TIMEOUT, connection.send(Kind::Answer, &words)).await;
        answered
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
            .flatten()?;
        if let Ok(tied) = tied {
            self.own.relay.pass(connection, tied).await;
        }
        Ok(())
    }
}
