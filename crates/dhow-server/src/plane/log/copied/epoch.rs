//! Numbers of epochs. Peers count in steps of their number, each from its own place, so that two halves of a divided
//! cluster never give the same number to two leaderships.

/// How far an epoch can be above everything that a peer knows: a cluster that is begun anew goes up by 2^20, or to the
/// second that its clock shows, and each new leader by some more. Going further up in one step would soon leave no
/// numbers to go on with.
const JUMP_MAX: u64 = 1 << 32;

/// The highest epoch that a peer believes in, which has promised this one and whose clock shows this second.
pub(super) fn limit(promised: u64, now_unix_secs: i64) -> u64 {
    let now = u64::try_from(now_unix_secs).unwrap_or(0);
    promised.max(now).saturating_add(JUMP_MAX)
}

/// How one peer numbers its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochRule {
    /// The peer's place among all, by id, from 0.
    place: u64,
    count: u64,
}

impl EpochRule {
    /// `peers` are all ids, the own one among them.
    pub fn new(own: u64, peers: &[u64]) -> Self {
        let place = peers.iter().filter(|peer| **peer < own).count() as u64;
        let count = (peers.len() as u64).max(1);
        Self { place, count }
    }

    /// The first epoch of this peer above the one given.
    pub fn after(self, seen: u64) -> u64 {
        // Epochs begin at 1: the one at place 0 has 1, 1 + count, …
        let round = seen.saturating_sub(self.place).div_ceil(self.count);
        let epoch = round
            .saturating_mul(self.count)
            .saturating_add(self.place)
            .saturating_add(1);
        debug_assert!(epoch > seen || seen == u64::MAX, "{epoch} is not above {seen}");
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_rise_and_belong_to_one_peer() {
        let peers = [3, 7, 9];
        for own in peers {
            let rule = EpochRule::new(own, &peers);
            let others: Vec<_> = peers.iter().filter(|peer| **peer != own).collect();
            for seen in 0..100 {
                let epoch = rule.after(seen);
                assert!(epoch > seen && epoch <= seen + 3, "{own} {seen} {epoch}");
                for other in &others {
                    let theirs = (0..100).map(|seen| EpochRule::new(**other, &peers).after(seen));
                    assert!(!theirs.into_iter().any(|theirs| theirs == epoch));
                }
            }
        }
    }
}
