//! Tells the server of an open session which services this node wants to be told of, whenever that changes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::ServiceKey;
use dhow_wire::grpc::proto::WantRequest;
use dhow_wire::grpc::to_service_names;
use tokio::time::{sleep, timeout};
use tonic::{Code, Request};

use super::link::SessionState;
use super::wire::Client;
use crate::limits::CALL_TIMEOUT;

/// The least time between two calls: a replica that starts asks for several names at once.
const GAP: Duration = Duration::from_millis(20);
/// The pause after a call that failed. One that fails for good ends with its session.
const RETRY: Duration = Duration::from_millis(500);

/// Runs for as long as the session does; the server has been told `told` with its opening.
pub(super) async fn keep_told(
    state: Arc<SessionState>,
    mut client: Client,
    mut told: BTreeSet<ServiceKey>,
) -> Infallible {
    let mut wanted = state.wanted.subscribe();
    loop {
        let next = wanted.wait_for(|wanted| *wanted != told).await;
        let Ok(next) = next.map(|next| next.clone()) else {
            return std::future::pending().await;
        };
        let request = Request::new(WantRequest {
            node_id: state.options.node.0,
            services: to_service_names(&next),
        });
        match timeout(CALL_TIMEOUT, client.want(request)).await {
            Ok(Ok(_)) => {
                told = next;
                sleep(GAP).await;
            }
            // An older server has told of everything.
            Ok(Err(status)) if status.code() == Code::Unimplemented => return std::future::pending().await,
            Ok(Err(status)) => {
                tracing::debug!(%status, "the server does not take what this node wants to be told of");
                sleep(RETRY).await;
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}
