//! When a worker reports next: once per time to live, at a place in the window that is its own.

/// A report leaves this much before the end of the window, so that it arrives inside it.
const EARLY_MIN_MS: u64 = 100;
/// Reports of one worker move by up to this much, so that workers that fell into step fall out of it again.
const JITTER_MS: u64 = 100;
/// Times to live that are too short for both lose at most this part of the window.
const EARLY_PART_MAX: u64 = 8;

/// How long a worker waits before its report number `seq` since it opened its session, counted from the last
/// report or, for report 0, from the opening. All workers that open at one moment (a new leader, a power cut)
/// are spread evenly over the first window; after that each keeps its place by waiting a whole window. A
/// time to live of 0, which no sound server grants, counts as one second.
pub fn report_delay_ms(node_id: u64, ttl_secs: u32, seq: u64) -> u64 {
    let ttl_ms = u64::from(ttl_secs.max(1)) * 1_000;
    let jitter_ms = mixed(node_id ^ mixed(seq)) % JITTER_MS;
    let early_ms = (EARLY_MIN_MS + jitter_ms).min(ttl_ms / EARLY_PART_MAX);
    let window_ms = ttl_ms - early_ms;
    if seq == 0 {
        place(node_id, window_ms)
    } else {
        window_ms
    }
}

/// The node's own place in a window. Ids are given one after the other, and multiples of the golden ratio
/// fall most evenly into an interval, for any number of them.
fn place(node_id: u64, window_ms: u64) -> u64 {
    /// 2^64 divided by the golden ratio, odd.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let fraction = u128::from(node_id.wrapping_mul(GOLDEN));
    // A fraction of 2^64 times the window, divided by 2^64: always below the window.
    ((fraction * u128::from(window_ms)) >> 64) as u64
}

/// A bijection of 64 bits in which every bit of the input moves every bit of the output.
pub(super) fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delay_is_inside_the_window() {
        for node_id in [0, 1, 2, 77, u64::MAX] {
            for ttl_secs in [0, 1, 10, 20, 600, u32::MAX] {
                for seq in [0, 1, 2, 99, u64::MAX] {
                    let ttl_ms = u64::from(ttl_secs.max(1)) * 1_000;
                    let delay_ms = report_delay_ms(node_id, ttl_secs, seq);
                    assert!(delay_ms < ttl_ms, "{node_id} {ttl_secs} {seq}: {delay_ms}");
                    if seq > 0 {
                        let early_ms = ttl_ms - delay_ms;
                        assert!(early_ms <= (EARLY_MIN_MS + JITTER_MS).min(ttl_ms / EARLY_PART_MAX));
                    }
                    assert_eq!(delay_ms, report_delay_ms(node_id, ttl_secs, seq));
                }
            }
        }
    }

    /// Ten thousand workers that all open at once, reporting every 200 s: no second sees more than the
    /// ceiling of 50 by more than a few, in the first window and in the tenth.
    #[test]
    fn ten_thousand_never_arrive_together() {
        const TTL_SECS: u32 = 200;
        for first_id in [1_u64, 1_000_000, u64::MAX - 10_000] {
            let mut per_second = vec![0_u32; 10 * TTL_SECS as usize];
            for node_id in first_id..first_id + 10_000 {
                let mut at_ms = 0;
                for seq in 0..10 {
                    at_ms += report_delay_ms(node_id, TTL_SECS, seq);
                    per_second[(at_ms / 1_000) as usize] += 1;
                }
            }
            let most = per_second.iter().max().copied().unwrap();
            assert!(most <= 60, "{most} reports in one second");
            let least = per_second[..9 * TTL_SECS as usize].iter().min().copied().unwrap();
            assert!(least >= 40, "{least} reports in one second");
        }
    }
}
