//! The waves of a large service: how many replicas a rollout may begin before those so far have proved themselves.

/// Replicas from which on a rollout goes in waves: below, a tenth is less than two.
const WAVES_FROM: u32 = 20;

/// The ends of all waves but the last one, in percent of the replicas.
const ENDS_PERCENT: [u64; 2] = [10, 50];

/// The wave that a rollout is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wave {
    /// From 1.
    pub number: u32,
    /// How many replicas may be begun until it has ended.
    pub end: u32,
}

/// The wave of a rollout with so many replicas, of which so many have been replaced and proved themselves.
pub fn wave(replicas: u32, done: u32) -> Wave {
    let is_large = replicas >= WAVES_FROM;
    let ends = ENDS_PERCENT.iter().filter(|_| is_large);
    let ends = ends.map(|percent| (u64::from(replicas) * percent).div_ceil(100));
    for (end, number) in ends.zip(1..) {
        if u64::from(done) < end {
            let end = u32::try_from(end).unwrap_or(replicas);
            return Wave { number, end };
        }
    }
    let number = if is_large { 3 } else { 1 };
    Wave {
        number,
        end: replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_then_half_then_the_rest() {
        let at = |replicas, done| {
            let Wave { number, end } = wave(replicas, done);
            (number, end)
        };
        assert_eq!(at(19, 0), (1, 19), "a small one goes in one");
        assert_eq!(at(20, 0), (1, 2));
        assert_eq!(at(20, 1), (1, 2));
        assert_eq!(at(20, 2), (2, 10));
        assert_eq!(at(20, 10), (3, 20));
        assert_eq!(at(1_001, 100), (1, 101), "rounded up");
        assert_eq!(at(u32::MAX, u32::MAX), (3, u32::MAX));
    }
}
