//! The last log lines of what failed, so that the real cause is on the screen. A failed fetch is told in words and
//! hides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::state::State;
use dhow_wire::ServiceHealthSummary;
use dhow_wire::api::LogRecord;
use dhow_wire::stabilization::{LOG_LINES_SHOWN_MAX, ServiceLogs};
use futures_util::StreamExt;

use crate::net::node_door::{DoorError, LineFilter, LogItem, LogQuery, NodeDoor};
use crate::plane::services::{SelectedReplica, ServiceManager, select};

/// Nobody waits longer than this for logs: the message is due.
const LOGS_TIMEOUT: Duration = Duration::from_secs(3);
/// Replicas of one service whose logs are asked for.
const REPLICAS_ASKED_MAX: usize = 4;

/// The last words of each failing service, by its name.
pub(super) async fn of_services(
    manager: &ServiceManager,
    state: &State,
    deployment: &str,
    failing: &[&ServiceHealthSummary],
) -> BTreeMap<String, ServiceLogs> {
    let asked = failing.iter().map(|service| async {
        let name = service.name.clone();
        let Ok(mut replicas) = select(state, deployment, Some(&name)) else {
            return (name, Ok(Vec::new()));
        };
        // What an earlier revision says is not why the current one is not stable, and who is well says less than who is not.
        replicas.retain(|replica| is_current(state, replica));
        if replicas.iter().any(|replica| !is_well(state, replica)) {
            replicas.retain(|replica| !is_well(state, replica));
        }
        let replicas = replicas.into_iter().map(|replica| (replica.name, replica.node));
        let logs = of_replicas(manager.door().as_ref(), replicas.collect()).await;
        (name, logs)
    });
    let answers = futures_util::future::join_all(asked).await;
    answers.into_iter().collect()
}

fn is_current(state: &State, replica: &SelectedReplica) -> bool {
    let service = state.service(replica.key.service);
    service.is_some_and(|service| service.is_current(replica.key.generation))
}

fn is_well(state: &State, replica: &SelectedReplica) -> bool {
    let found = state.replicas.get(&replica.key);
    found.is_some_and(|replica| replica.is_healthy())
}

/// The last lines over these replicas, in the order of time; each with its replica's id where there are several.
pub(super) async fn of_replicas(door: &dyn NodeDoor, replicas: Vec<(ReplicaName, NodeId)>) -> ServiceLogs {
    let count = replicas.len().min(REPLICAS_ASKED_MAX);
    let asked = replicas
        .into_iter()
        .take(REPLICAS_ASKED_MAX)
        .map(|(name, node)| fetch(door, name, node));
    let answers = futures_util::future::join_all(asked).await;
    let mut records = Vec::new();
    let mut failure = None;
    for answer in answers {
        match answer {
            Ok(lines) => records.extend(lines),
            Err(reason) => failure = Some(reason),
        }
    }
    if let (true, Some(reason)) = (records.is_empty(), failure) {
        return Err(reason);
    }
    records.sort_by_key(|record: &LogRecord| record.time_unix_us);
    let first = records.len().saturating_sub(LOG_LINES_SHOWN_MAX);
    let line = |record: LogRecord| match count {
        0 | 1 => record.text,
        _ => format!("{}: {}", record.replica, record.text),
    };
    Ok(records.into_iter().skip(first).map(line).collect())
}

async fn fetch(door: &dyn NodeDoor, name: ReplicaName, node: NodeId) -> Result<Vec<LogRecord>, String> {
    let query = LogQuery {
        replicas: vec![name],
        tail: Some(LOG_LINES_SHOWN_MAX),
        follow: false,
        lines: LineFilter::default(),
    };
    let read = async {
        let mut items = door.logs(node, query).await?;
        let mut records = Vec::new();
        while let Some(item) = items.next().await {
            match item? {
                // What the supervisor adds, such as a hint at what it kept from the program, is among them.
                LogItem::Record(record) => records.push(record),
                LogItem::CaughtUp => {}
            }
            if records.len() >= LOG_LINES_SHOWN_MAX {
                break;
            }
        }
        Ok::<_, DoorError>(records)
    };
    match tokio::time::timeout(LOGS_TIMEOUT, read).await {
        Ok(Ok(records)) => Ok(records),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("node {node} did not send them in time")),
    }
}
