//! Waits for a deployment and shows how it comes along. A daemon that restarts meanwhile is waited for.

use std::time::Duration;

use dhow_core::ids::DeploymentName;
use dhow_wire::api::{Progress, ProgressOutcome, ProgressResult};
use tokio::time::Instant;

use super::ProgressView;
use crate::client::{Client, ClientError, Request, Sse};

/// How long a daemon may be away before waiting for it makes no sense: it restarts within seconds.
const AWAY_MAX: Duration = Duration::from_secs(30);
const AWAY_WAIT: Duration = Duration::from_millis(500);
/// The daemon keeps the time; a result that does not come so long after it never will.
const RESULT_GRACE: Duration = Duration::from_secs(15);

/// What to wait for.
#[derive(Clone, Debug)]
pub struct Watch {
    pub deployment: DeploymentName,
    /// The current one where none is named.
    pub revision: Option<u64>,
    pub timeout: Duration,
}

/// Waits for the result and shows the way there. Dropping it stops watching; the deployment goes on.
pub async fn watch(
    client: &Client,
    watch: &Watch,
    view: &mut ProgressView,
) -> Result<ProgressResult, ClientError> {
    let deadline = Instant::now() + watch.timeout;
    let result = tokio::time::timeout_at(
        deadline + RESULT_GRACE,
        until_result(client, watch, deadline, view),
    )
    .await;
    view.clear();
    result.unwrap_or_else(|_| {
        Err(ClientError::Broke {
            host: client.host().clone(),
            why: format!(
                "no word of `{}` came within {:?}",
                watch.deployment, watch.timeout
            ),
        })
    })
}

async fn until_result(
    client: &Client,
    watch: &Watch,
    deadline: Instant,
    view: &mut ProgressView,
) -> Result<ProgressResult, ClientError> {
    let mut away_since = None;
    loop {
        let error = match one_stream(client, watch, deadline, view, &mut away_since).await {
            Ok(result) => return Ok(result),
            // What was there and is gone has been removed.
            Err(error) if error.is_not_found() => return Ok(removed(watch)),
            Err(error) if error.is_away() => error,
            Err(error) => return Err(error),
        };
        let since = *away_since.get_or_insert_with(|| {
            view.note("the daemon is away; waiting for it");
            Instant::now()
        });
        if since.elapsed() > AWAY_MAX {
            return Err(error);
        }
        tokio::time::sleep(AWAY_WAIT).await;
    }
}

/// Follows one connection until the result or its end.
async fn one_stream(
    client: &Client,
    watch: &Watch,
    deadline: Instant,
    view: &mut ProgressView,
    away_since: &mut Option<Instant>,
) -> Result<ProgressResult, ClientError> {
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, so that a part of a second does not become none.
    let left_secs = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let path = ["deployments", watch.deployment.as_str(), "progress"];
    let request = Request::get(&path)
        .query_if("revision", watch.revision)
        .query("timeout_secs", left_secs);
    let mut events = client.events(request).await?;
    while let Some((name, data)) = next(&mut events).await? {
        *away_since = None;
        match name.as_str() {
            "progress" => view.show(&decode::<Progress>(client, &data)?),
            "result" => return decode(client, &data),
            // A newer daemon may say more.
            _ => {}
        }
    }
    Err(ClientError::Broke {
        host: client.host().clone(),
        why: "it ended before the result came".into(),
    })
}

async fn next(events: &mut Sse) -> Result<Option<(String, String)>, ClientError> {
    Ok(events.next().await?.map(|event| (event.event, event.data)))
}

fn decode<T: serde::de::DeserializeOwned>(client: &Client, data: &str) -> Result<T, ClientError> {
    serde_json::from_str(data).map_err(|error| ClientError::Unreadable {
        host: client.host().clone(),
        why: error.to_string(),
    })
}

fn removed(watch: &Watch) -> ProgressResult {
    ProgressResult {
        outcome: ProgressOutcome::Removed,
        message: format!("`{}` is gone", watch.deployment),
        services: Vec::new(),
        served: Vec::new(),
    }
}
