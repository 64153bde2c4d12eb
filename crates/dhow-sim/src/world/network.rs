//! The network of a world: connections that are slow, cut and mended, and messages between servers that are also lost,
//! repeated and overtaken.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::NodeId;

use super::chance::Chance;
use super::message::{Connection, Message};

/// How long a message takes at the most, where nothing is cut.
const DELAY_MAX_MS: u64 = 150;
/// Of a hundred messages between servers so many are lost, come again, and take much longer.
const LOST_PERCENT: u64 = 3;
const AGAIN_PERCENT: u64 = 3;
const LATE_PERCENT: u64 = 3;
const LATE_MS: u64 = 3_000;
/// A connection that is cut tries again so often.
const RESENT_MS: u64 = 200;

/// Everything that is on its way, and which ways are cut.
#[derive(Default)]
pub(super) struct Network {
    on_its_way: BTreeMap<(u64, u64), Message>,
    sent: u64,
    /// Pairs of machines that do not reach each other.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Up to when nothing comes over a connection in one direction before what was sent earlier.
    behind: BTreeMap<(Connection, bool), u64>,
}

impl Network {
    pub fn set_cut(&mut self, a: NodeId, b: NodeId, is_cut: bool) {
        let pair = (a.min(b), a.max(b));
        match is_cut {
            true => self.cut.insert(pair),
            false => self.cut.remove(&pair),
        };
    }

    pub fn is_cut(&self, a: NodeId, b: NodeId) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    pub fn send(&mut self, message: Message, now_ms: u64, chance: &mut Chance) {
        let mut due_ms = now_ms + 1 + chance.below(DELAY_MAX_MS);
        if message.stream().is_none() {
            if chance.percent(LOST_PERCENT) {
                return;
            }
            if chance.percent(AGAIN_PERCENT) {
                let again_ms = due_ms + chance.below(LATE_MS);
                self.put(message.clone(), again_ms);
            }
            if chance.percent(LATE_PERCENT) {
                due_ms += chance.below(LATE_MS);
            }
        }
        self.put(message, due_ms);
    }

    fn put(&mut self, message: Message, due_ms: u64) {
        let due_ms = match message.stream() {
            Some(stream) => {
                let behind_ms = self.behind.entry(stream).or_default();
                *behind_ms = due_ms.max(*behind_ms);
                *behind_ms
            }
            None => due_ms,
        };
        self.sent += 1;
        self.on_its_way.insert((due_ms, self.sent), message);
    }

    /// What arrives by now. `hears` says whether a machine takes anything in.
    pub fn arrived(&mut self, now_ms: u64, hears: impl Fn(NodeId) -> bool) -> Vec<Message> {
        let later = self.on_its_way.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut self.on_its_way, later);
        let mut arrived = Vec::new();
        let mut stuck: BTreeSet<(Connection, bool)> = BTreeSet::new();
        for message in due.into_values() {
            let (from, to) = message.ends();
            let is_reached = !self.is_cut(from, to) && hears(to);
            match message.stream() {
                Some(stream) if !is_reached || stuck.contains(&stream) => {
                    stuck.insert(stream);
                    self.put(message, now_ms + RESENT_MS);
                }
                // What servers ask each other is asked again by whoever asked.
                None if !is_reached => {}
                Some(_) | None => arrived.push(message),
            }
        }
        arrived
    }

    /// Forgets connections that neither end has any more.
    pub fn retain(&mut self, is_used: impl Fn(Connection) -> bool) {
        self.behind.retain(|(connection, _), _| is_used(*connection));
        self.on_its_way
            .retain(|_, message| message.stream().is_none_or(|(connection, _)| is_used(connection)));
    }
}
