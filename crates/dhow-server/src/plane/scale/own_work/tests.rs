//! When a node is told what of its own work.

use std::sync::Arc;

use dhow_core::command::{Command, DeploymentCommand, NodeCommand, Placement, PlanCommand};
use dhow_core::ids::{DeploymentName, ServiceKey, ServiceName};
use dhow_core::spec::{ImageSpec, ServiceSpec};
use dhow_core::state::Drain;
use dhow_core::time::ClusterTime;
use dhow_wire::InternalScaleRequest;
use futures_util::FutureExt;

use super::*;
use crate::plane::leases::tests::support::TestServer;
use crate::plane::scale::DeskOptions;
use crate::plane::storage::Storage;

const NODE: NodeId = NodeId(7);

struct Bench {
    server: TestServer,
    desk: ScaleDesk,
    in_line: watch::Sender<Option<u64>>,
    work: OwnWork,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// A node that is to run `shop/web`.
    async fn new() -> Self {
        let (server, dir) = (TestServer::start(&[NODE.0]).await, tempfile::tempdir().unwrap());
        let desk = ScaleDesk::open(DeskOptions {
            path: dir.path().join("desk.json"),
            known_spec: Arc::new(|_| None),
            promised: Arc::new(|| 0),
            storage: Storage::default(),
        });
        let (desk, in_line) = (desk.unwrap(), watch::Sender::new(None));
        let work = OwnWork::new(OwnWorkOptions {
            node: NODE,
            view: server.handle.view(),
            desk: desk.clone(),
            in_line: in_line.subscribe(),
            put_right_after: Duration::from_secs(5),
        });
        let spec = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"nginx:1.27"}}}"#;
        let deploy = DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(spec).unwrap()),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        };
        server.write(Command::Deployment(deploy)).await;
        Self {
            server,
            desk,
            in_line,
            work,
            _dir: dir,
        }
    }

    async fn place(&self) {
        let state = self.server.state();
        let service = state.service(*state.service_ids.get(&key("shop", "web")).unwrap());
        let service = service.unwrap();
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
        self.server.write(Command::Plan(place)).await;
    }

    async fn ask(&self, request: InternalScaleRequest) {
        let image = ImageSpec::named("by-hand:1");
        let spec = ServiceSpec {
            image: Some(image),
            ..ServiceSpec::default()
        };
        self.desk.take(request.with_spec(spec)).await.unwrap();
    }
}

fn key(deployment: &str, service: &str) -> ServiceKey {
    ServiceKey {
        deployment: DeploymentName::new(deployment).unwrap(),
        service: ServiceName::new(service).unwrap(),
    }
}

fn images(assignment: &Assignment) -> Vec<String> {
    let replicas = assignment.replicas();
    let images = replicas.map(|(name, alike)| {
        let image = alike.spec.image.as_ref().unwrap();
        format!("{}/{}={}", name.deployment, name.id(), image.name)
    });
    images.collect()
}

#[tokio::test]
async fn a_node_is_told_nothing_by_a_copy_that_may_be_old() {
    let bench = Bench::new().await;
    bench.place().await;
    assert!(bench.work.next(None).now_or_never().is_none());
    let ahead = bench.server.handle.view().applied_index() + 1;
    bench.in_line.send_replace(Some(ahead));
    assert!(bench.work.next(None).now_or_never().is_none(), "not applied yet");
    let drain = NodeCommand::SetDrain {
        node: NODE,
        drain: Drain::No,
    };
    let one_more = bench.server.write(Command::Node(drain));
    let (told, ()) = tokio::join!(bench.work.next(None), one_more);
    assert!(told.whole);
    assert_eq!(told.term, Some(bench.server.state().term));
    assert_eq!(images(&told), ["shop/web-default-0=nginx:1.27"]);
}

#[tokio::test]
async fn changes_follow_the_whole_and_a_new_epoch_is_whole_again() {
    let bench = Bench::new().await;
    bench.in_line.send_replace(Some(0));
    let first = bench.work.next(None).await;
    assert!(first.whole && first.services.is_empty());
    let (change, ()) = tokio::join!(bench.work.next(Some(first.revision)), bench.place());
    assert!(!change.whole);
    assert_eq!(images(&change), ["shop/web-default-0=nginx:1.27"]);
    let mut state = bench.server.state().as_ref().clone();
    let last = Some(change.revision);
    assert_eq!(bench.work.news(&state, last), None);
    // The copy of another half: its numbers say nothing about what this node was told.
    state.branch.begin(Term(9), ClusterTime(0));
    assert_eq!(bench.work.news(&state, last), None, "the epoch has not begun yet");
    state.term = Term(9);
    let whole = bench.work.news(&state, last).unwrap();
    assert!(whole.whole);
    assert_eq!((whole.term, &whole.services), (Some(Term(9)), &change.services));
    assert_eq!(bench.work.news(&state, last), None);
    // An agent that has not taken it is told again.
    assert!(bench.work.news(&state, first.revision.into()).unwrap().whole);
}

#[tokio::test]
async fn what_the_cluster_does_not_know_stays_and_the_rest_is_put_right() {
    let bench = Bench::new().await;
    bench.place().await;
    let state = bench.server.state();
    let web = "shop/web-default-0=nginx:1.27";
    let told = bench.work.news(&state, None).unwrap();
    assert_eq!(images(&told), [web]);
    let last = Some(told.revision);
    bench.ask(InternalScaleRequest::new("tool", 1)).await;
    bench
        .ask(InternalScaleRequest::new("late", 1).with_epoch(3))
        .await;
    let other = InternalScaleRequest::new("web", 2).with_deployment("shop");
    bench.ask(other).await;
    let told = bench.work.news(&state, last).unwrap();
    let (late, tool) = (
        "default/late-default-0=by-hand:1",
        "default/tool-default-0=by-hand:1",
    );
    let asked = ["shop/web-default-0=by-hand:1", "shop/web-default-1=by-hand:1"];
    assert!(told.whole);
    assert_eq!(images(&told), [late, tool, asked[0], asked[1]]);
    assert_eq!(bench.work.news(&state, last), None);
    assert!(bench.desk.news_since().is_some());
    bench
        .desk
        .put_right(|service| state.service_ids.contains_key(service));
    let told = bench.work.news(&state, last).unwrap();
    assert_eq!(
        images(&told),
        [tool, web],
        "an epoch is a leader's word, which the copy knows better"
    );
    assert!(bench.desk.news_since().is_none());
    // What somebody takes back is gone.
    bench.ask(InternalScaleRequest::new("tool", 0)).await;
    assert_eq!(images(&bench.work.news(&state, last).unwrap()), [web]);
}

#[tokio::test(start_paused = true)]
async fn a_request_about_a_known_service_counts_for_a_while() {
    let bench = Bench::new().await;
    bench.in_line.send_replace(Some(0));
    bench.place().await;
    let told = bench.work.next(None).await;
    bench
        .ask(InternalScaleRequest::new("web", 0).with_deployment("shop"))
        .await;
    let told = bench.work.next(Some(told.revision)).await;
    assert!(told.whole && told.services.is_empty());
    let told = bench.work.next(Some(told.revision)).await;
    assert_eq!(images(&told), ["shop/web-default-0=nginx:1.27"]);
}
