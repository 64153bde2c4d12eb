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
    /// The last moment at which it still lives.
    deadline_ms: u64,
    /// As promised at the last renewal: a later change of the configuration never shortens it.
    grace_ms: u64,
    /// Which hold the node has been heard after, or had no part in.
    heard_after_hold: u64,
    has_evidence: bool,
}

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

    /// Takes a changed configuration for all that comes; what was promised stays.
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

    /// A heartbeat, or a session that opens: the lease lives for the time to live and the grace from now, and
    /// all evidence against the node is answered.
    pub fn renew(&mut self, node: NodeId, now_ms: u64, ttl_secs: u32) -> Renewal {
        self.now_ms = self.now_ms.max(now_ms);
        let grace_ms = self.grace_ms();
        let lease = Lease {
            node,
            renewed_ms: self.now_ms,
            deadline_ms: self.now_ms.saturating_add(ms(ttl_secs) + grace_ms),
            grace_ms,
            heard_after_hold: self.holds,
            has_evidence: false,
        };
        match self.places.get(&node).copied() {
            Some(place) => {
                if self.leases[place as usize].is_some_and(|old| old.has_evidence) {
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
        lease.has_evidence = true;
        self.put(place, lease);
        self.valve.notice(node, self.now_ms);
        let alarm = self.valve.many_silent(self.len(), self.now_ms, self.grace_ms())?;
        self.hold();
        Some(alarm)
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
            self.hold();
            return Ticked {
                expired: Vec::new(),
                alarm: late,
            };
        }
        let mut places = Vec::new();
        self.wheel.advance(now_ms, |place| places.push(place));
        let mut expired: Vec<NodeId> = places
            .into_iter()
            .filter_map(|place| self.leases[place as usize].map(|lease| lease.node))
            .collect();
        expired.sort_unstable();
        for node in &expired {
            self.valve.end(*node);
            self.take(*node);
        }
        Ticked { expired, alarm: None }
    }

    /// Gives everybody the failover time to live from now on, and lets evidence count only against those who
    /// are heard again.
    fn hold(&mut self) {
        self.holds += 1;
        self.valve.clear();
        let grace_ms = self.grace_ms();
        let deadline_ms = self
            .now_ms
            .saturating_add(ms(self.config.failover_ttl_secs) + grace_ms);
        for place in 0..self.leases.len() {
            if let Some(mut lease) = self.leases[place] {
                // Whoever was promised more keeps it.
                lease.deadline_ms = lease.deadline_ms.max(deadline_ms);
                lease.has_evidence = false;
                self.put(place as u32, lease);
            }
        }
    }

    /// Stores a lease and sets its timer to the first moment at which it no longer lives.
    fn put(&mut self, place: u32, lease: Lease) {
        self.leases[place as usize] = Some(lease);
        match lease.deadline_ms.checked_add(1) {
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
