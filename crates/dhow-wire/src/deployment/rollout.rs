//! The rollout block.

use dhow_core::spec::{OnFailure, Promote, RolloutSpec};

use crate::document::{Decoder, Fields, Node, choice, duration, integer, percent};

fn count(decoder: &mut Decoder, node: &Node) -> Option<u32> {
    integer(decoder, node, 0, u64::from(u32::MAX)).map(|count| count as u32)
}

pub(super) fn rollout(decoder: &mut Decoder, node: &Node) -> Option<RolloutSpec> {
    let plain = RolloutSpec::default();
    let mut fields = Fields::open(
        decoder,
        node,
        "`rollout`",
        "`{ max_surge: 1, max_unavailable: 0 }`",
    )?;
    fields.elsewhere(&[
        (
            "max_parallel",
            "write `max_surge`, or `max_unavailable` to stop the old one first",
        ),
        (
            "parallelism",
            "write `max_surge`, or `max_unavailable` to stop the old one first",
        ),
        ("maxSurge", "write `max_surge`"),
        ("maxUnavailable", "write `max_unavailable`"),
        ("min_healthy_time", "write `min_healthy`"),
        ("auto_revert", "write `on_failure: revert`, which is the default"),
        ("failure_action", "write `on_failure`"),
        ("monitor", "write `min_healthy`"),
        ("max_failure_ratio", "write `failure_ratio: 5%`"),
        (
            "order",
            "`max_surge: 1` starts the new one first, `max_unavailable: 1` stops the old one first",
        ),
    ]);
    let rollout = RolloutSpec {
        max_surge: fields.optional("max_surge", count),
        max_unavailable: fields.optional("max_unavailable", count),
        canary: fields.or("canary", plain.canary, count),
        promote: fields.or("promote", plain.promote, |decoder, node| {
            choice(
                decoder,
                node,
                &[("auto", Promote::Auto), ("manual", Promote::Manual)],
                &[],
            )
        }),
        min_healthy: fields.or("min_healthy", plain.min_healthy, duration),
        healthy_deadline: fields.or("healthy_deadline", plain.healthy_deadline, duration),
        progress_deadline: fields.or("progress_deadline", plain.progress_deadline, duration),
        on_failure: fields.or("on_failure", plain.on_failure, |decoder, node| {
            let allowed = [("revert", OnFailure::Revert), ("pause", OnFailure::Pause)];
            choice(
                decoder,
                node,
                &allowed,
                &[("rollback", "revert"), ("stop", "pause"), ("halt", "pause")],
            )
        }),
        observe: fields.or("observe", plain.observe, duration),
        failure_ratio: fields.or("failure_ratio", plain.failure_ratio, percent),
    };
    fields.close();
    Some(rollout)
}
