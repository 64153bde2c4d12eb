//! The test is compared with one that simply adds up, and with what it is for.

use super::*;

fn figures(canary: (u64, u64), base: (u64, u64)) -> Figures {
    let counted = |(requests, errors)| Counted { requests, errors };
    Figures {
        canary: counted(canary),
        base: counted(base),
    }
}

fn verdict(canary: (u64, u64), base: (u64, u64)) -> Option<Verdict> {
    judge(&figures(canary, base)).map(|judgement| judgement.verdict)
}

#[test]
fn a_canary_is_judged_from_two_hundred_requests() {
    assert_eq!(verdict((199, 199), (8_000, 0)), None);
    assert_eq!(verdict((200, 40), (8_000, 0)), Some(Verdict::Worse));
}

#[test]
fn when_the_time_is_over_few_requests_can_show_that_it_is_worse() {
    let at_last = |canary, base| judge_at_last(&figures(canary, base)).verdict;
    assert_eq!(at_last((86, 86), (344, 0)), Verdict::Worse);
    assert_eq!(at_last((57, 12), (230, 0)), Verdict::Worse);
    assert_eq!(at_last((5, 5), (20, 0)), Verdict::Worse);
    // What may be chance, or hits both, is left to its health.
    assert_eq!(at_last((3, 3), (12, 0)), Verdict::HealthAlone);
    assert_eq!(at_last((86, 86), (344, 344)), Verdict::HealthAlone);
    assert_eq!(at_last((86, 0), (344, 0)), Verdict::HealthAlone);
    assert_eq!(at_last((0, 0), (344, 90)), Verdict::HealthAlone);
    // Nobody called the other version: that its calls had not failed, nobody knows.
    assert_eq!(at_last((86, 86), (0, 0)), Verdict::HealthAlone);
}

#[test]
fn what_fails_alike_is_no_reason_to_go_back() {
    // The database is down for both.
    assert_eq!(verdict((200, 200), (8_000, 8_000)), Some(Verdict::NotWorse));
    assert_eq!(verdict((200, 40), (8_000, 1_600)), Some(Verdict::NotWorse));
    assert_eq!(verdict((200, 0), (8_000, 1_600)), Some(Verdict::NotWorse));
    // One or two failures are chance, even where the other version has none.
    assert_eq!(verdict((200, 1), (8_000, 0)), Some(Verdict::NotWorse));
    // Sure, and too little to go back for.
    assert_eq!(
        verdict((100_000, 300), (4_000_000, 4_000)),
        Some(Verdict::NotWorse)
    );
}

#[test]
fn what_fails_more_is_found() {
    assert_eq!(verdict((200, 4), (8_000, 0)), Some(Verdict::Worse));
    assert_eq!(verdict((200, 70), (8_000, 1_600)), Some(Verdict::Worse));
    // As many calls for both, as with one replica of each.
    assert_eq!(verdict((200, 10), (200, 0)), Some(Verdict::Worse));
    assert_eq!(verdict((200, 9), (200, 0)), Some(Verdict::NotWorse));
    // Nobody called the other version.
    assert_eq!(verdict((200, 3), (0, 0)), Some(Verdict::Worse));
    let huge = u64::MAX / 4;
    assert_eq!(verdict((huge, huge / 2), (huge, 0)), Some(Verdict::Worse));
}

#[test]
fn the_chance_is_what_adding_up_gives() {
    // All ways in which failures fall, one by one.
    let slowly = |canary: Counted, base: Counted| {
        let all = canary.errors + base.errors;
        let share = canary.requests as f64 / (canary.requests + base.requests) as f64;
        let mut ways = vec![1.0_f64];
        for _ in 0..all {
            let mut next = vec![0.0; ways.len() + 1];
            for (hits, chance) in ways.iter().enumerate() {
                next[hits] += chance * (1.0 - share);
                next[hits + 1] += chance * share;
            }
            ways = next;
        }
        ways.iter().skip(canary.errors as usize).sum::<f64>()
    };
    for (canary, base) in [
        ((200, 4), (8_000, 0)),
        ((200, 9), (200, 0)),
        ((300, 30), (900, 20)),
        ((1_000, 100), (1_000, 60)),
        ((250, 7), (4_000, 9)),
    ] {
        let Figures { canary, base } = figures(canary, base);
        let (quick, slow) = (chance(canary, base), slowly(canary, base));
        let is_same = (quick - slow).abs() <= slow * 1e-9;
        assert!(
            is_same || (quick >= CHANCE_MIN && slow >= CHANCE_MIN),
            "{quick} {slow}"
        );
    }
}

#[test]
fn figures_are_told_in_words() {
    let told = |judgement: Option<Judgement>| judgement.map(|judgement| judgement.to_string());
    assert_eq!(
        told(judge(&figures((200, 41), (8_000, 16)))).as_deref(),
        Some(
            "the canary failed 41 of 200 requests (20.5 %), the version beside it 16 of 8000 requests (0.2 %): that is \
             more, and no chance"
        )
    );
}
