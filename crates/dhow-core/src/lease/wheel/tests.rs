//! The wheel against a plain map from timer to moment.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::lease::testing::config;

fn fired(wheel: &mut Wheel, now_ms: u64) -> Vec<u32> {
    let mut timers = Vec::new();
    wheel.advance(now_ms, |timer| timers.push(timer));
    timers.sort_unstable();
    timers
}

#[test]
fn a_timer_fires_once_at_its_moment() {
    for due_ms in [1, 63, 64, 65, 4_095, 4_096, 1 << 36, u64::MAX - 1, u64::MAX] {
        let mut wheel = Wheel::new();
        wheel.arm(3, due_ms);
        assert_eq!(fired(&mut wheel, due_ms - 1), [0; 0], "{due_ms}");
        assert!(wheel.next_ms().unwrap() <= due_ms);
        assert_eq!(fired(&mut wheel, due_ms), [3], "{due_ms}");
        assert_eq!(wheel.next_ms(), None);
        assert_eq!(fired(&mut wheel, u64::MAX), [0; 0], "{due_ms}");
    }
}

#[test]
fn an_overdue_timer_fires_at_once_even_if_time_stands_still() {
    let mut wheel = Wheel::new();
    assert_eq!(fired(&mut wheel, 1_000), [0; 0]);
    wheel.arm(0, 5);
    wheel.arm(1, 1_000);
    wheel.arm(2, 1_001);
    assert_eq!(wheel.next_ms(), Some(1_000));
    assert_eq!(fired(&mut wheel, 1_000), [0, 1]);
    assert_eq!(fired(&mut wheel, 0), [0; 0]);
    assert_eq!(fired(&mut wheel, 1_001), [2]);
}

/// The number of steps does not grow with the distance: a walk over 2^64 ms would never end.
#[test]
fn sleeping_until_next_reaches_every_timer_in_few_steps() {
    let mut wheel = Wheel::new();
    wheel.arm(0, u64::MAX);
    wheel.arm(1, 600_000);
    let mut steps = 0;
    while let Some(next_ms) = wheel.next_ms() {
        fired(&mut wheel, next_ms);
        steps += 1;
    }
    assert!(steps <= 2 * LEVELS, "{steps}");
}

#[derive(Clone, Debug)]
enum Op {
    Arm(u32, u64),
    Disarm(u32),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let moment = prop_oneof![
        0..300_u64,
        0..1_000_000_u64,
        any::<u64>(),
        (u64::MAX - 100)..=u64::MAX
    ];
    prop_oneof![
        4 => (0..12_u32, moment.clone()).prop_map(|(timer, due_ms)| Op::Arm(timer, due_ms)),
        1 => (0..12_u32).prop_map(Op::Disarm),
        3 => moment.prop_map(Op::Advance),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_wheel_is_a_map(ops in proptest::collection::vec(op(), 1..80)) {
        let mut wheel = Wheel::new();
        let mut model = BTreeMap::new();
        let mut now_ms = 0;
        for op in ops {
            match op {
                Op::Arm(timer, due_ms) => {
                    wheel.arm(timer, due_ms);
                    model.insert(timer, due_ms);
                }
                Op::Disarm(timer) => {
                    wheel.disarm(timer);
                    model.remove(&timer);
                }
                Op::Advance(to_ms) => {
                    now_ms = now_ms.max(to_ms);
                    let due: Vec<u32> =
                        model.iter().filter(|(_, due)| **due <= now_ms).map(|(timer, _)| *timer).collect();
                    model.retain(|_, due_ms| *due_ms > now_ms);
                    prop_assert_eq!(fired(&mut wheel, to_ms), due);
                }
            }
            let first_ms = model.values().min().copied();
            prop_assert_eq!(wheel.next_ms().is_some(), first_ms.is_some());
            prop_assert!(wheel.next_ms().is_none_or(|next_ms| next_ms <= first_ms.unwrap().max(now_ms)));
        }
    }
}
