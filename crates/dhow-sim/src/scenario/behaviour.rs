//! How images behave, in the words of a scenario.

use dhow_core::spec::TimeSpan;

use crate::lab::Behaviour;

/// The exit code of everything that crashes: any but 0 would do.
const CRASH_CODE: i32 = 1;
/// From running to a crash at once.
const CRASH_AT_ONCE: TimeSpan = TimeSpan::from_millis(100);

pub(super) const USAGE: &str = "an image `crashes`, `crashes after 5s`, `cannot start`, `cannot be pulled`, is \
     `never healthy`, `turns unhealthy after 5s`, `exits 0 after 3s`, `ignores TERM for 10s`, \
     `listens on 80` or `works`; with `on node 2` behind it, on that node";

/// None where the words say nothing that an image can do.
pub(super) fn parse(words: &[&str]) -> Option<Behaviour> {
    let plain = Behaviour::default();
    let span = |text: &str| text.parse::<TimeSpan>().ok();
    let behaviour = match words {
        ["crashes"] => Behaviour {
            exit_after: Some(CRASH_AT_ONCE),
            exit_code: CRASH_CODE,
            ..plain
        },
        ["crashes", "after", after] => Behaviour {
            exit_after: Some(span(after)?),
            exit_code: CRASH_CODE,
            ..plain
        },
        ["cannot", "start"] => Behaviour {
            cannot_start: true,
            ..plain
        },
        ["cannot", "be", "pulled"] => Behaviour {
            cannot_pull: true,
            ..plain
        },
        ["works"] => plain,
        ["never", "healthy"] => Behaviour {
            healthy_after: None,
            ..plain
        },
        ["turns", "unhealthy", "after", after] => Behaviour {
            unhealthy_after: Some(span(after)?),
            ..plain
        },
        ["exits", code, "after", after] => Behaviour {
            exit_after: Some(span(after)?),
            exit_code: code.parse().ok()?,
            ..plain
        },
        ["ignores", "TERM", "for", stop] => Behaviour {
            stop: span(stop)?,
            ..plain
        },
        ["listens", "on", port] => Behaviour {
            port: Some(port.parse().ok()?),
            ..plain
        },
        _ => return None,
    };
    Some(behaviour)
}
