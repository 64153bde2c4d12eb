//! The leader's side: one task per other node. One that does not read its work off its own copy of the state is of an
//! older version: its desk is brought in line with the state, again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::{DeploymentName, NodeId, ServiceKey, ServiceName};
use dhow_core::state::State;
use dhow_wire::InternalScaleRequest;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::held::{HeldListing, digest_of};
use super::wanted::{nothing, wanted};
use crate::plane::runtime::RuntimeView;

/// Requests to one node that are on their way at a time, one for each service.
const AT_A_TIME: usize = 8;
/// How long a node may take for one request: it only writes it down.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause after a failure; it doubles up to the poll's period.
const PAUSE_MS: u64 = 200;

/// The way to another node's desk.
pub trait ScaleTarget: Send + Sync + 'static {
    /// What the node has been told.
    fn held(&self, node: NodeId) -> BoxFuture<'_, Result<HeldListing, String>>;
    fn scale(&self, node: NodeId, request: InternalScaleRequest) -> BoxFuture<'_, Result<(), String>>;
}

/// What a dispatcher is made with.
#[derive(Clone)]
pub struct DispatcherOptions {
    /// All nodes but the own one.
    pub nodes: Vec<NodeId>,
    pub target: Arc<dyn ScaleTarget>,
    pub view: RuntimeView,
    /// How often a node is asked what it has been told although nothing has changed.
    pub every: Duration,
}

/// The tasks of a static leader that bring the desks of nodes of an older version in line with the state.
pub struct Dispatcher {
    options: DispatcherOptions,
}

impl Dispatcher {
    pub fn new(options: DispatcherOptions) -> Self {
        Self { options }
    }

    /// Dispatches while this server leads, until `end`.
    pub async fn run(self, end: CancellationToken) {
        let tasks = TaskTracker::new();
        for node in &self.options.nodes {
            let (line, end) = (Line::new(*node, self.options.clone()), end.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = line.keep() => {}
                }
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

/// What the desk of a node has of each service: of which epoch, and its digest.
type DeskListing = BTreeMap<ServiceKey, (Option<u64>, String)>;

/// The way of assignments to one node.
struct Line {
    node: NodeId,
    options: DispatcherOptions,
    /// What the node has, as it said and as it took since; none where it has to be asked.
    held: Option<DeskListing>,
    /// It has said that it has to be told nothing.
    derives: bool,
    failures: u32,
}

impl Line {
    fn new(node: NodeId, options: DispatcherOptions) -> Self {
        Self {
            node,
            options,
            held: None,
            derives: false,
            failures: 0,
        }
    }

    async fn keep(mut self) {
        let mut changes = self.options.view.node_changes(self.node);
        let mut leaderships = self.options.view.leaderships();
        loop {
            changes.borrow_and_update();
            let leadership = *leaderships.borrow_and_update();
            let state = self.options.view.state();
            let leads = leadership.is_here && state.term.0 == leadership.term;
            let pause = match leads {
                true => self.turn(&state, leadership.term).await,
                false => {
                    self.held = None;
                    // The beginning of a term is in the state soon after it is led.
                    match leadership.is_here {
                        true => Duration::from_millis(50),
                        false => self.options.every,
                    }
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                changed = leaderships.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => if pause >= self.options.every {
                    (self.held, self.derives) = (None, false);
                },
            }
        }
    }

    /// Sends what differs; gives the pause until the next look.
    async fn turn(&mut self, state: &State, epoch: u64) -> Duration {
        let done = self.bring_in_line(state, epoch).await;
        match done {
            Ok(()) => {
                self.failures = 0;
                self.options.every
            }
            Err(error) => {
                tracing::debug!(node = %self.node, error, "a node could not be told what to run");
                self.held = None;
                self.failures = self.failures.saturating_add(1);
                let doubled = PAUSE_MS << self.failures.min(10);
                let most = u64::try_from(self.options.every.as_millis()).unwrap_or(u64::MAX);
                // Between half and all of it, so that nodes that came back together do not stay together.
                let pause_ms = doubled.min(most.max(2));
                let jitter_ms = rand::random::<u64>() % (pause_ms / 2 + 1);
                Duration::from_millis((pause_ms / 2 + jitter_ms).min(most.saturating_sub(1)).max(1))
            }
        }
    }

    async fn bring_in_line(&mut self, state: &State, epoch: u64) -> Result<(), String> {
        if self.derives {
            return Ok(());
        }
        let mut held = match self.held.take() {
            Some(held) => held,
            None => match self.ask().await? {
                Some(held) => held,
                None => {
                    self.derives = true;
                    return Ok(());
                }
            },
        };
        let wanted = wanted(state, self.node, epoch);
        let mut requests = Vec::new();
        for (key, request) in &wanted {
            let digest = digest_of(request);
            if held.get(key).is_none_or(|(_, has)| *has != digest) {
                requests.push((key.clone(), digest, request.clone()));
            }
        }
        let empty = digest_of(&InternalScaleRequest::default());
        for (key, (told_in, has)) in &held {
            // A service that a person asked for by hand and that the cluster does not know stays as it is.
            let is_ours = told_in.is_some() || state.service_ids.contains_key(key);
            if !wanted.contains_key(key) && *has != empty && is_ours {
                requests.push((key.clone(), empty.clone(), nothing(key, epoch)));
            }
        }
        let (node, target) = (self.node, &self.options.target);
        let sent = requests.into_iter().map(|(key, digest, request)| async move {
            let sent = tokio::time::timeout(REQUEST_TIMEOUT, target.scale(node, request)).await;
            let sent = sent.unwrap_or_else(|_| Err("it does not answer".into()));
            (key, digest, sent)
        });
        let mut sent = futures_util::stream::iter(sent).buffer_unordered(AT_A_TIME);
        let mut failed = None;
        while let Some((key, digest, outcome)) = sent.next().await {
            match outcome {
                Ok(()) => {
                    tracing::debug!(%node, service = %key, epoch, "a node was told what to run");
                    held.insert(key, (Some(epoch), digest));
                }
                // The others are told all the same.
                Err(error) => failed = Some(error),
            }
        }
        drop(sent);
        self.held = Some(held);
        failed.map_or(Ok(()), Err)
    }

    /// What the node has been told; none where it has to be told nothing.
    async fn ask(&self) -> Result<Option<DeskListing>, String> {
        let asked = tokio::time::timeout(REQUEST_TIMEOUT, self.options.target.held(self.node)).await;
        let listing = asked.unwrap_or_else(|_| Err("it does not answer".into()))?;
        if listing.derives {
            return Ok(None);
        }
        let mut held = BTreeMap::new();
        for service in listing.services {
            let key = ServiceKey {
                deployment: DeploymentName::new(&service.deployment).map_err(|error| error.to_string())?,
                service: ServiceName::new(&service.service).map_err(|error| error.to_string())?,
            };
            held.insert(key, (service.epoch, service.digest));
        }
        Ok(Some(held))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use dhow_core::command::{Command, DeploymentCommand, Placement, PlanCommand};

    use super::*;
    use crate::plane::leases::tests::support::TestServer;

    const NODE: NodeId = NodeId(7);

    #[derive(Default)]
    struct Node {
        derives: bool,
        requests: Mutex<Vec<InternalScaleRequest>>,
    }

    impl ScaleTarget for Node {
        fn held(&self, _: NodeId) -> BoxFuture<'_, Result<HeldListing, String>> {
            let listing = HeldListing {
                derives: self.derives,
                ..HeldListing::default()
            };
            Box::pin(std::future::ready(Ok(listing)))
        }

        fn scale(&self, _: NodeId, request: InternalScaleRequest) -> BoxFuture<'_, Result<(), String>> {
            self.requests.lock().unwrap().push(request);
            Box::pin(std::future::ready(Ok(())))
        }
    }

    async fn told(derives: bool) -> Vec<InternalScaleRequest> {
        let server = TestServer::start(&[NODE.0]).await;
        let spec = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"nginx:1.27",
            "replica_groups":[{"role":"a","count":2},{"role":"b","count":1,"image":"other:1"}]}}}"#;
        let deploy = DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(spec).unwrap()),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        };
        server.write(Command::Deployment(deploy)).await;
        let state = server.state();
        let service = state.services.values().next().unwrap();
        let placements = service.wanted_slots().map(|slot| Placement {
            slot,
            node: NODE,
            eligibility: state.node(NODE).unwrap().eligibility,
        });
        let place = PlanCommand::Place {
            service: service.id,
            generation: service.target,
            placements: placements.collect(),
        };
        server.write(Command::Plan(place)).await;
        let node = Arc::new(Node {
            derives,
            ..Node::default()
        });
        let options = DispatcherOptions {
            nodes: vec![NODE],
            target: Arc::clone(&node) as Arc<dyn ScaleTarget>,
            view: server.handle.view(),
            every: Duration::from_secs(5),
        };
        let mut line = Line::new(NODE, options);
        for _ in 0..2 {
            line.bring_in_line(&server.state(), 4).await.unwrap();
        }
        let requests = node.requests.lock().unwrap();
        requests.clone()
    }

    #[tokio::test]
    async fn only_a_node_of_an_older_version_is_told_and_once() {
        assert_eq!(told(true).await, []);
        let requests = told(false).await;
        let [request] = requests.as_slice() else {
            panic!("{requests:?}");
        };
        let roles: Vec<_> = request
            .assignments
            .iter()
            .map(|assignment| (assignment.role.as_str(), assignment.indices.as_slice()))
            .collect();
        assert_eq!(roles, [("a", [0, 1].as_slice()), ("b", [0].as_slice())]);
        assert_eq!(
            (request.epoch, request.deployment.as_deref()),
            (Some(4), Some("shop"))
        );
        let spec = request.spec.as_ref().unwrap();
        assert_eq!(
            spec.replica_groups.len(),
            2,
            "the node takes each role's part by itself"
        );
    }
}
