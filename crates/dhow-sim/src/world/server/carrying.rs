//! What a server of a world carries to the leader for its nodes, and what becomes of the answers: the real outboxes, over
//! messages that are made up.

use dhow_core::ids::{NodeId, Revision};
use dhow_core::lease::SessionId;

use super::super::message::{Connection, HeldWord, Message, PeerWord, ServerWord};
use super::{Server, Sight};

/// A node that has asked for a session, and from which order it goes on.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub node: NodeId,
    pub connection: Connection,
    pub last: Option<Revision>,
}

/// A report or a heartbeat of a node.
pub(super) type Held = (NodeId, Connection, HeldWord);

/// A message to the leader, and what it has answered: of use once this much of the log is in the state here.
pub(super) struct OnItsWay<Q, A> {
    until_ms: u64,
    asked: Vec<Q>,
    pub answer: Option<(usize, A)>,
}

/// The sessions that the leader gives for one message.
pub(super) type Given = Vec<(NodeId, Connection, SessionId, u32)>;

impl Server {
    /// Asks the leader for the sessions that nodes want, and serves those that it may.
    pub(super) fn open_for_nodes(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        loop {
            let asking = &self.asking;
            let has_gone =
                |opening: &Opening| asking.get(&opening.connection).is_none_or(|has_gone| *has_gone);
            let Some(parcel) = self.openings.next(now_ms, has_gone) else {
                break;
            };
            for opening in parcel.late {
                self.refuse_session(opening, sight);
            }
            if parcel.asked.is_empty() {
                continue;
            }
            let asked = parcel
                .asked
                .iter()
                .map(|opening| (opening.node, opening.connection));
            let word = PeerWord::Open {
                boot: self.boot,
                parcel: parcel.id,
                asked: asked.collect(),
            };
            self.say_to_leader(word, sight);
            self.opening
                .insert(parcel.id, OnItsWay::new(parcel.until_ms, parcel.asked));
        }
        let applied = self.applied;
        let over = self
            .opening
            .extract_if(.., |_, message| message.is_over(now_ms, applied));
        for (parcel, message) in over.collect::<Vec<_>>() {
            self.openings.done(parcel);
            let (is_reached, given) = match message.answer {
                Some((index, given)) => (index <= applied, given),
                None => (false, Vec::new()),
            };
            for opening in message.asked {
                let mut given = given.iter();
                let known = given.find(|(_, connection, ..)| *connection == opening.connection);
                let given = known.map(|(_, _, id, ttl_secs)| (*id, *ttl_secs));
                self.opened(opening, given, is_reached, sight);
            }
        }
    }

    fn opened(
        &mut self,
        opening: Opening,
        given: Option<(SessionId, u32)>,
        is_reached: bool,
        sight: &mut Sight<'_>,
    ) {
        let (node, now_ms) = (opening.node, sight.now_ms);
        let has_gone = self
            .asking
            .get(&opening.connection)
            .is_none_or(|has_gone| *has_gone);
        match given {
            Some((id, _)) if !is_reached => {
                self.held.ended_unserved(node, id, now_ms);
                self.refuse_session(opening, sight);
            }
            Some((id, _)) if has_gone => {
                self.held.broke_unserved(node, id, now_ms);
                self.asking.remove(&opening.connection);
            }
            Some(given) => {
                self.asking.remove(&opening.connection);
                self.serve(node, given, (opening.connection, opening.last), sight);
            }
            None => self.refuse_session(opening, sight),
        }
    }

    pub(super) fn refuse_session(&mut self, opening: Opening, sight: &mut Sight<'_>) {
        self.asking.remove(&opening.connection);
        self.say(opening.node, opening.connection, ServerWord::Closed, sight);
    }

    fn say_to_leader(&self, word: PeerWord, sight: &mut Sight<'_>) {
        if let Some(to) = sight.reaches {
            let from = self.id;
            sight.out.push(Message::Between { from, to, word });
        }
    }

    /// Hands reports on, a few messages at a time, and answers nodes once the state here has what was written.
    pub(super) fn forward(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        while let Some(parcel) = self.words.next(now_ms, |_| false) {
            for (node, connection, word) in parcel.late {
                self.refuse(node, connection, &word, sight);
            }
            if parcel.asked.is_empty() {
                continue;
            }
            let word = PeerWord::Forward {
                boot: self.boot,
                parcel: parcel.id,
                words: parcel.asked.clone(),
            };
            self.say_to_leader(word, sight);
            self.forwarded
                .insert(parcel.id, OnItsWay::new(parcel.until_ms, parcel.asked));
        }
        let applied = self.applied;
        let over = self
            .forwarded
            .extract_if(.., |_, message| message.is_over(now_ms, applied));
        for (parcel, message) in over.collect::<Vec<_>>() {
            self.words.done(parcel);
            match message.answer.filter(|(index, _)| *index <= applied) {
                Some((_, answers)) => {
                    for (node, connection, answer) in answers {
                        self.answer(node, connection, answer, sight);
                    }
                }
                None => {
                    for (node, connection, word) in message.asked {
                        self.refuse(node, connection, &word, sight);
                    }
                }
            }
        }
    }
}

impl<Q, A> OnItsWay<Q, A> {
    fn new(until_ms: u64, asked: Vec<Q>) -> Self {
        let answer = None;
        Self {
            until_ms,
            asked,
            answer,
        }
    }

    /// Whether it is answered and the state here has what was written, or there is no time left.
    fn is_over(&self, now_ms: u64, applied: usize) -> bool {
        let is_reached = |(index, _): &(usize, A)| *index <= applied;
        self.until_ms <= now_ms || self.answer.as_ref().is_some_and(is_reached)
    }
}
