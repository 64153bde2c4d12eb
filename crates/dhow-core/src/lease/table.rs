//! All leases of a leader. Heartbeats never enter the log: they land here, and only what runs out becomes a
//! command. A renewal finds its node in an ordered map and moves one timer of a wheel; nothing ever scans all
//! leases except an election and the safety valve, which give every one of them a new deadline.

use std::collections::BTreeMap;

use super::adaptive_ttl::AdaptiveTtlConfig;
use super::alarm::LeaseAlarm;
use super::valve::Valve;
use super::wheel::Wheel;
use crate::ids::NodeId;

/// What a heartbeat meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The node had no lease: it is new, or back.
    Opened,
    Renewed,
}

/// What the passing of time brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// The nodes whose lease has run out, ascending. They have left the table.
    pub expired: Vec<NodeId>,
    /// Expiry was held instead; for the log and the metrics.
    pub alarm: Option<LeaseAlarm>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    node: NodeId,
    /// The last heartbeat; 0 where this leader has heard none.
    renewed_ms: u64,
    /// The time to live that was promised, and when it ends: by then the node should have been heard.
    ttl_ms: u64,
    due_ms: u64,
    /// The last moment at which it still lives.
    deadline_ms: u64,
    /// As promised at the last renewal: a later change of the configuration never shortens it.
    grace_ms: u64,
    /// When the node was excused for having to look for another server, and until when; zeros where it was not.
    excused_since_ms: u64,
    excused_until_ms: u64,
    /// Which hold the node has been heard after, or had no part in.
    heard_after_hold: u64,
    has_evidence: bool,
    /// What the last evidence said when the node was last alive.
    evidence_ms: u64,
    /// Whether it is known that it was not heard in time.
    is_overdue: bool,
}

/// The leases of all nodes, with the timer of each and the safety valve. The leader's session table keeps one.
#[derive(Clone, Debug)]
pub struct LeaseTable {
    config: AdaptiveTtlConfig,
    /// The latest moment seen. A caller whose clock is behind is taken to speak of this one.
    now_ms: u64,
    places: BTreeMap<NodeId, u32>,
    /// By place; the number of a place is also that of its timer.
    leases: Vec<Option<Lease>>,
    free_places: Vec<u32>,
    wheel: Wheel,
    valve: Valve,
    /// Counts how often the valve has held expiry.
    holds: u64,
}

impl LeaseTable {
    pub fn new(config: AdaptiveTtlConfig) -> Self {
        Self {
            config,
            now_ms: 0,
            places: BTreeMap::new(),
            leases: Vec::new(),
            free_places: Vec::new(),
            wheel: Wheel::new(),
            valve: Valve::default(),
            holds: 0,
        }
    }

    /// Takes a changed configuration for later renewals; leases that were given keep their length.
    pub fn set_config(&mut self, config: AdaptiveTtlConfig) {
        self.config = config;
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.places.contains_key(&node)
    }

    /// The last moment at which the node's lease still lives.
    pub fn deadline_ms(&self, node: NodeId) -> Option<u64> {
        self.lease(node).map(|lease| lease.deadline_ms)
    }

    /// The time to live that the next ack grants, for the nodes that there are now.
    pub fn next_ttl_secs(&self) -> u32 {
        let workers = u32::try_from(self.len()).unwrap_or(u32::MAX);
        self.config.compute_ttl(workers)
    }

    /// When to call [`Self::advance`] next at the latest.
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.wheel.next_ms()
    }

    /// A heartbeat, or a session that opens: the lease lives for the time to live and the grace from now, and all
    /// evidence against the node is answered.
    pub fn renew(&mut self, node: NodeId, now_ms: u64, ttl_secs: u32) -> Renewal {
        self.renew_at(node, now_ms, now_ms, ttl_secs)
    }

    /// The same for a node that was heard at `at_ms`. The lease of one that was heard later than that stays as it is.
    pub fn renew_at(&mut self, node: NodeId, at_ms: u64, now_ms: u64, ttl_secs: u32) -> Renewal {
        self.now_ms = self.now_ms.max(now_ms);
        let at_ms = if at_ms >= now_ms { self.now_ms } else { at_ms };
        let known = self.lease(node).copied();
        let is_older =
            |lease: &Lease| at_ms < lease.renewed_ms || (lease.has_evidence && at_ms < lease.evidence_ms);
        if at_ms < self.now_ms && known.as_ref().is_some_and(is_older) {
            return Renewal::Renewed;
        }
        let (ttl_ms, grace_ms) = (ms(ttl_secs), self.grace_ms());
        let excused = known.filter(|lease| lease.excused_since_ms >= at_ms);
        let (excused_since_ms, excused_until_ms) =
            excused.map_or((0, 0), |lease| (lease.excused_since_ms, lease.excused_until_ms));
        let deadline_ms = at_ms.saturating_add(ttl_ms + grace_ms).max(excused_until_ms);
        let lease = Lease {
            node,
            renewed_ms: at_ms,
            ttl_ms,
            due_ms: at_ms
                .saturating_add(ttl_ms)
                .max(excused_until_ms.saturating_sub(grace_ms)),
            deadline_ms,
            grace_ms,
            excused_since_ms,
            excused_until_ms,
            heard_after_hold: self.holds,
            has_evidence: false,
            evidence_ms: 0,
            is_overdue: false,
        };
        match self.places.get(&node).copied() {
            Some(place) => {
                if self.leases[place as usize].is_some_and(|old| old.has_evidence || old.is_overdue) {
                    self.valve.forget(node);
                }
                self.put(place, lease);
                Renewal::Renewed
            }
            None => {
                self.valve.forget(node);
                let place = self.free_places.pop().unwrap_or_else(|| {
                    self.leases.push(None);
                    // Places are handed out one by one; memory ends long before 2^32 leases.
                    (self.leases.len() - 1) as u32
                });
                self.places.insert(node, place);
                self.put(place, lease);
                Renewal::Opened
            }
        }
    }

    /// A connection broke or was refused, and the last sign of life on it was at `last_sign_ms`: the lease
    /// ends one grace after that, unless a heartbeat comes first. A heartbeat that came after the sign has
    /// already answered it. Not to be called for a close that the server began or a session that moved.
    pub fn evidence_of_death(&mut self, node: NodeId, last_sign_ms: u64, now_ms: u64) -> Option<LeaseAlarm> {
        self.now_ms = self.now_ms.max(now_ms);
        let place = self.places.get(&node).copied()?;
        let mut lease = self.leases[place as usize]?;
        // While expiry is held, a node that has not been heard since cannot be told from one that this leader
        // fails to hear.
        if lease.heard_after_hold != self.holds || lease.renewed_ms > last_sign_ms {
            return None;
        }
        lease.deadline_ms = lease.deadline_ms.min(last_sign_ms.saturating_add(lease.grace_ms));
        (lease.has_evidence, lease.evidence_ms) = (true, last_sign_ms);
        self.put(place, lease);
        self.valve.notice(node, self.now_ms, self.grace_ms());
        let alarm = self.valve.many_silent(self.len(), self.now_ms)?;
        self.hold(|lease, holds| lease.heard_after_hold == holds);
        Some(alarm)
    }

    /// The node may have to look for another server: it lives at least until a grace after `until_ms`, or until it is
    /// heard at a later time than now, and all evidence against it is taken back.
    pub fn excuse(&mut self, node: NodeId, now_ms: u64, until_ms: u64) {
        let Some(place) = self.places.get(&node).copied() else {
            return;
        };
        if let Some(mut lease) = self.leases[place as usize] {
            // It is not overdue before that, and does not count as silent.
            lease.due_ms = lease.due_ms.max(until_ms);
            let until_ms = until_ms.saturating_add(lease.grace_ms);
            lease.excused_since_ms = lease.excused_since_ms.max(now_ms);
            lease.excused_until_ms = lease.excused_until_ms.max(until_ms);
            lease.deadline_ms = lease.deadline_ms.max(until_ms);
            (lease.has_evidence, lease.is_overdue) = (false, false);
            self.valve.forget(node);
            self.put(place, lease);
        }
    }

    /// When the node was last heard, where it has a lease; 0 where this leader has not heard it.
    pub fn renewed_ms(&self, node: NodeId) -> Option<u64> {
        self.lease(node).map(|lease| lease.renewed_ms)
    }

    /// Whether the node has a lease and was never heard by this leader.
    pub fn is_unheard(&self, node: NodeId) -> bool {
        self.lease(node).is_some_and(|lease| lease.renewed_ms == 0)
    }

    /// Forgets a node that was removed from the cluster.
    pub fn remove(&mut self, node: NodeId) -> bool {
        self.valve.forget(node);
        self.take(node).is_some()
    }

    /// This server now leads, over these nodes: each lives for the failover time to live and the grace, so
    /// that nobody expires while the new leader warms up. Evidence counts from the first moment on, also
    /// with a last sign from before the election: so the old leader is noticed.
    pub fn after_election(&mut self, now_ms: u64, nodes: impl IntoIterator<Item = NodeId>) {
        let mut fresh = Self::new(self.config);
        fresh.now_ms = self.now_ms.max(now_ms);
        for node in nodes {
            fresh.renew(node, fresh.now_ms, self.config.failover_ttl_secs);
        }
        for lease in fresh.leases.iter_mut().flatten() {
            lease.renewed_ms = 0;
        }
        *self = fresh;
    }

    /// Time has passed: the leases that have run out by `now_ms`. The caller's timer was due at `due_ms`;
    /// where it comes too late the leader itself was away, and nobody expires.
    pub fn advance(&mut self, now_ms: u64, due_ms: u64) -> Ticked {
        if now_ms < self.now_ms {
            return Ticked::default();
        }
        self.now_ms = now_ms;
        let late = Valve::late_timer(due_ms, now_ms, self.grace_ms());
        if late.is_some() && !self.is_empty() {
            self.hold(|_, _| true);
            return Ticked {
                expired: Vec::new(),
                alarm: late,
            };
        }
        let mut expired = self.run_out();
        // They had their hold, and were not heard in it: what befalls the others is no excuse for them.
        let held = expired.extract_if(.., |lease| lease.heard_after_hold != self.holds);
        let mut ended: Vec<NodeId> = held.map(|lease| lease.node).collect();
        for node in &ended {
            self.take(*node);
        }
        let alarm = self.valve.many_silent(self.len(), now_ms);
        if alarm.is_some() {
            self.hold(|lease, holds| lease.heard_after_hold == holds);
        } else {
            for lease in &expired {
                self.valve.end(lease.node);
                self.take(lease.node);
            }
            ended.extend(expired.iter().map(|lease| lease.node));
        }
        ended.sort_unstable();
        Ticked {
            expired: ended,
            alarm,
        }
    }

    /// Lets the timers go off: gives the leases that have run out, which stay in the table, and notes who was not heard
    /// in time.
    fn run_out(&mut self) -> Vec<Lease> {
        let (now_ms, mut places) = (self.now_ms, Vec::new());
        self.wheel.advance(now_ms, |place| places.push(place));
        let mut expired = Vec::new();
        for place in places {
            let Some(mut lease) = self.leases[place as usize] else {
                continue;
            };
            let counts = lease.heard_after_hold == self.holds;
            if counts && now_ms > lease.due_ms && !lease.is_overdue {
                let window_ms = lease.ttl_ms.saturating_add(lease.grace_ms);
                self.valve.notice(lease.node, now_ms, window_ms);
            }
            lease.is_overdue |= now_ms > lease.due_ms;
            // The timer of one that has run out is not set again, unless it is held.
            self.leases[place as usize] = Some(lease);
            match now_ms > lease.deadline_ms {
                true => expired.push(lease),
                false => self.put(place, lease),
            }
        }
        expired
    }

    /// Gives these the failover time to live from now on, and lets silence count only against those who are heard
    /// again.
    fn hold(&mut self, is_meant: impl Fn(&Lease, u64) -> bool) {
        let holds = self.holds;
        self.holds += 1;
        self.valve.clear();
        let (ttl_ms, grace_ms) = (ms(self.config.failover_ttl_secs), self.grace_ms());
        let deadline_ms = self.now_ms.saturating_add(ttl_ms + grace_ms);
        for place in 0..self.leases.len() {
            if let Some(mut lease) = self.leases[place] {
                if is_meant(&lease, holds) {
                    // Whoever was promised more keeps it.
                    lease.deadline_ms = lease.deadline_ms.max(deadline_ms);
                    lease.has_evidence = false;
                }
                self.put(place as u32, lease);
            }
        }
    }

    /// Stores a lease and sets its timer: to the first moment at which its node should have been heard, and then to the
    /// first at which it no longer lives.
    fn put(&mut self, place: u32, lease: Lease) {
        self.leases[place as usize] = Some(lease);
        let next_ms = match lease.is_overdue {
            true => lease.deadline_ms,
            false => lease.due_ms.min(lease.deadline_ms),
        };
        match next_ms.checked_add(1) {
            Some(due_ms) => self.wheel.arm(place, due_ms),
            None => self.wheel.disarm(place),
        }
    }

    fn take(&mut self, node: NodeId) -> Option<Lease> {
        let place = self.places.remove(&node)?;
        self.wheel.disarm(place);
        self.free_places.push(place);
        self.leases[place as usize].take()
    }

    fn lease(&self, node: NodeId) -> Option<&Lease> {
        let place = self.places.get(&node)?;
        self.leases[*place as usize].as_ref()
    }

    fn grace_ms(&self) -> u64 {
        ms(self.config.grace_secs)
    }
}

fn ms(secs: u32) -> u64 {
    u64::from(secs) * 1_000
}

#[cfg(test)]
mod tests;
