//! How full a node is, as an exact fraction.

use std::cmp::Ordering;

use crate::amount::Amount;

/// `part / whole`, compared exactly. Never zero over zero; anything else over zero is above all numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    part: u64,
    whole: u64,
}

impl Share {
    /// The share of one resource. A node that offers none of it counts as full, so that it comes after the
    /// nodes that do; one that uses what it does not have comes last of all.
    fn of(used: u64, capacity: u64) -> Self {
        match (used, capacity) {
            (0, 0) => Self { part: 1, whole: 1 },
            (part, whole) => Self { part, whole },
        }
    }

    /// The larger of the shares of CPU and memory.
    pub(super) fn dominant(used: Amount, capacity: Amount) -> Self {
        let cpu = Self::of(used.cpu_milli, capacity.cpu_milli);
        cpu.max(Self::of(used.memory_bytes, capacity.memory_bytes))
    }

    /// Whether it is nine tenths of the other one at most.
    pub(super) fn is_below_by_a_tenth(self, other: Self) -> bool {
        // Below 2^64 each, and the factor below 2^4: saturating only where both are beyond all nodes.
        let (own, others) = (
            u128::from(self.part) * u128::from(other.whole),
            u128::from(other.part) * u128::from(self.whole),
        );
        own.saturating_mul(10) <= others.saturating_mul(9)
    }

    /// Orders the other way round: the fullest first.
    pub(super) fn reversed(self) -> Self {
        Self {
            part: self.whole,
            whole: self.part,
        }
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |part: u64, whole: u64| u128::from(part) * u128::from(whole);
        cross(self.part, other.whole).cmp(&cross(other.part, self.whole))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(part: u64, whole: u64) -> Share {
        Share { part, whole }
    }

    #[test]
    fn fractions_compare_exactly() {
        assert_eq!(share(1, 2), share(2, 4));
        assert!(share(1, 3) < share(334, 1000));
        assert!(share(333, 1000) < share(1, 3));
        // One part in 2^64 apart: a float would call them equal.
        assert!(share(u64::MAX - 1, u64::MAX) < share(1, 1));
        assert!(share(u64::MAX - 2, u64::MAX - 1) < share(u64::MAX - 1, u64::MAX));
        assert!(share(u64::MAX, 1) < share(1, 0));
        assert_eq!(share(1, 0), share(7, 0));
        assert!(share(0, 5) < share(1, u64::MAX));
    }

    #[test]
    fn a_resource_that_a_node_lacks_counts_as_used_up() {
        let amount = |cpu_milli, memory_bytes| Amount {
            cpu_milli,
            memory_bytes,
        };
        let bare = Share::dominant(Amount::ZERO, amount(0, 100));
        assert_eq!(bare, share(1, 1));
        assert!(Share::dominant(amount(0, 99), amount(1, 100)) < bare);
        assert!(bare < Share::dominant(amount(1, 0), amount(0, 100)));
    }

    #[test]
    fn reversing_turns_the_order_round() {
        let ascending = [
            share(0, 9),
            share(1, 3),
            share(1, 2),
            share(1, 1),
            share(3, 1),
            share(1, 0),
        ];
        for pair in ascending.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
            assert!(pair[1].reversed() < pair[0].reversed(), "{pair:?}");
        }
    }
}
