//! What befalls a world: one fault at a time, long enough before the next that everybody has found a server by then.

use dhow_core::ids::NodeId;

use super::World;
use super::leader::Leader;
use super::message::{Message, ServerWord};

/// A fault under way.
pub(super) struct Fault {
    kind: Kind,
    server: NodeId,
    until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It stands still.
    Paused,
    /// It does not reach the other servers.
    CutOff,
    /// It does not reach its nodes.
    Deaf,
    /// Its process is gone.
    Killed,
}

impl Fault {
    /// From the beginning of one to the beginning of the next. The longest takes a minute, and the dead another one.
    pub const EVERY_MS: u64 = 150_000;
}

/// Of a hundred nodes with a session at the server of a fault so many die with it.
const DIE_PERCENT: u64 = 10;

impl World {
    pub(super) fn begin_fault(&mut self) {
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        let kinds = [Kind::Paused, Kind::CutOff, Kind::Deaf, Kind::Killed];
        let (Some(server), Some(kind)) = (self.chance.pick(&all), self.chance.pick(&kinds)) else {
            return;
        };
        let sessions = self.sessions_of(server);
        // The silence of one node says nothing of its server.
        let kind = match kind {
            Kind::Deaf if sessions.len() < 2 => Kind::CutOff,
            Kind::Paused | Kind::CutOff | Kind::Deaf | Kind::Killed => kind,
        };
        let for_ms = 1_000 + self.chance.below(60_000);
        self.tell(format!("server {server}: {kind:?} for {for_ms} ms"));
        if kind != Kind::Deaf && self.chance.percent(50) {
            self.kill_some(&sessions);
        }
        let until_ms = self.now_ms + for_ms;
        match kind {
            Kind::Paused => {
                if let Some(paused) = self.servers.get_mut(&server) {
                    paused.paused_until_ms = until_ms;
                }
            }
            Kind::CutOff | Kind::Deaf => self.set_cut(kind, server, true),
            Kind::Killed => self.kill(server),
        }
        self.fault = Some(Fault {
            kind,
            server,
            until_ms,
        });
    }

    /// The nodes that live and have a session with this server.
    fn sessions_of(&self, server: NodeId) -> Vec<NodeId> {
        let nodes = self.nodes.values();
        let own = nodes.filter(|node| node.is_alive() && node.server() == Some(server));
        own.map(|node| node.id).collect()
    }

    fn kill_some(&mut self, nodes: &[NodeId]) {
        for id in nodes {
            let living = self.nodes.values().filter(|node| node.is_alive()).count();
            if living > 2 && self.chance.percent(DIE_PERCENT) {
                self.tell(format!("node {id} dies"));
                if let Some(node) = self.nodes.get_mut(id) {
                    node.die(self.now_ms);
                }
            }
        }
    }

    /// Its process is gone: its host says so to those who are connected, or is gone as well.
    fn kill(&mut self, server: NodeId) {
        let is_host_alive = self.chance.percent(50);
        let Some(killed) = self.servers.get_mut(&server) else {
            return;
        };
        killed.is_up = false;
        let nodes: Vec<_> = killed.nodes().filter(|_| is_host_alive).collect();
        for (to, connection) in nodes {
            let closed = Message::ToNode {
                from: server,
                to,
                connection,
                word: ServerWord::Closed,
            };
            self.network.send(closed, self.now_ms, &mut self.chance);
        }
    }

    fn set_cut(&mut self, kind: Kind, server: NodeId, is_cut: bool) {
        let others: Vec<NodeId> = match kind {
            Kind::CutOff => self.servers.keys().copied().collect(),
            Kind::Deaf => self.nodes.keys().copied().collect(),
            Kind::Paused | Kind::Killed => Vec::new(),
        };
        for other in others.into_iter().filter(|other| *other != server) {
            self.network.set_cut(server, other, is_cut);
        }
    }

    pub(super) fn end_fault(&mut self) {
        let now_ms = self.now_ms;
        let Some(fault) = self.fault.take_if(|fault| fault.until_ms <= now_ms) else {
            return;
        };
        self.tell(format!("server {} is well again", fault.server));
        match fault.kind {
            Kind::Paused => {}
            Kind::CutOff | Kind::Deaf => self.set_cut(fault.kind, fault.server, false),
            Kind::Killed => {
                if let Some(server) = self.servers.get_mut(&fault.server) {
                    server.restart(Leader::new(fault.server));
                }
            }
        }
    }
}
