//! Where heartbeats come in. Called by the gateway, which has renewed the lease before, whatever the inbox's state: a full
//! inbox never costs a lease. It must never wait for the reducer for long.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_core::mirror::RolloutId;
use tokio::sync::oneshot;

use super::inbox::InputSender;
use super::input::{HeartbeatReply, ReducerInput};
use crate::clock::Clock;

/// How long a heartbeat's answer may take. A worker's report has a time-out of several seconds; after this the server
/// answers the node that all is well, and compares again with its next heartbeat.
const ANSWER_MAX_MS: u64 = 2_000;

/// Takes the heartbeats that the gateway hears: it asks the reducer whether the mirror agrees with the node.
#[derive(Clone)]
pub struct HeartbeatIngest {
    input: InputSender,
    clock: Arc<dyn Clock>,
}

impl HeartbeatIngest {
    pub fn new(input: InputSender, clock: Arc<dyn Clock>) -> Self {
        Self { input, clock }
    }

    /// A node is alive.
    pub async fn beat(
        &self,
        host: NodeId,
        rollout_id: Option<RolloutId>,
        current_digest: Option<String>,
    ) -> HeartbeatReply {
        let at = self.clock.monotonic_ms();
        self.input.count_heartbeat();
        let (reply, answer) = oneshot::channel();
        let sent = self.input.try_send(ReducerInput::HeartbeatReceived {
            host,
            rollout_id,
            current_digest,
            at,
            reply,
        });
        if sent.is_err() {
            return HeartbeatReply::default();
        }
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_default(),
            () = self.clock.sleep_until_monotonic(at.saturating_add(ANSWER_MAX_MS)) => HeartbeatReply::default(),
        }
    }
}
