//! The service, called as the network would call it: every refusal, and what sessions tell.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command, DeploymentCommand, NodeCommand, Placement, PlanCommand};
use dhow_core::ids::{NodeId, Term};
use dhow_core::mirror::ReportBody;
use dhow_core::replica::Machine;
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_wire::grpc::proto::session_event::Event;
use dhow_wire::grpc::proto::status_report::Body;
use dhow_wire::grpc::proto::{self, SessionEvent, SessionRequest, StatusAck, StatusReport};
use dhow_wire::grpc::{LeaderHint, Nodes, Refusal, to_body, to_node_info};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use super::limits::CALLS_BURST;
use super::{GatewayOptions, HeardStream, LastHeard, LeaderDoor, NodeGateway};
use crate::clock::Clock;
use crate::net::identity::{Identity, Peer};
use crate::plane::leases::tests::support::{OWN, TestServer, info};
use crate::plane::runtime::{InboxError, ReducerInput};
use crate::plane::secrets::SecretBox;

mod ex_leader;
mod held;
mod holders;

struct Door {
    server: TestServer,
    gateway: NodeGateway,
    end: CancellationToken,
    _dir: tempfile::TempDir,
}

type Events = BoxStream<'static, Result<SessionEvent, Status>>;

impl Door {
    async fn open(nodes: &[u64]) -> Self {
        Self::of(TestServer::start(nodes).await)
    }

    /// In a cluster that does not keep ids of servers yet, a node is what it says.
    async fn make_worker(&self, node: u64) {
        let info = Arc::new(info(NodeRole::Worker));
        let register = NodeCommand::Register {
            node: NodeId(node),
            info,
        };
        self.server.write(Command::Node(register)).await;
    }

    fn of(server: TestServer) -> Self {
        Self::with(server, None)
    }

    fn with(server: TestServer, leader_door: Option<Arc<dyn LeaderDoor>>) -> Self {
        let (dir, end) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let gateway = NodeGateway::new(GatewayOptions {
            view: server.handle.view(),
            input: server.handle.input(),
            clock: Arc::new(server.clock.clone()),
            leases: server.leases.clone(),
            secrets: Arc::new(SecretBox::open(dir.path()).unwrap()),
            session_address: Arc::new(|node| Some(format!("server-{node}:3669"))),
            workers: None,
            server_ids: Arc::new(BTreeSet::new),
            members: Arc::new(|| BTreeSet::from([OWN, NodeId(2)])),
            carries_assignments: true,
            tickets: None,
            leader_door,
            tunnels: crate::net::tunnels::Tunnels::default(),
            reach: None,
            move_after_ms: 60_000,
            end: end.clone(),
        });
        Self {
            server,
            gateway,
            end,
            _dir: dir,
        }
    }

    async fn session(&self, peer: Option<Peer>, request: SessionRequest) -> Result<Events, Refusal> {
        let opened = self.gateway.session(from(peer, request)).await;
        opened.map(tonic::Response::into_inner).map_err(refusal)
    }

    async fn report(&self, peer: Option<Peer>, report: StatusReport) -> Result<StatusAck, Refusal> {
        let acknowledged = self.gateway.report_status(from(peer, report)).await;
        acknowledged.map(tonic::Response::into_inner).map_err(refusal)
    }

    async fn want(&self, peer: Option<Peer>, request: proto::WantRequest) -> Result<(), Refusal> {
        self.gateway
            .want(from(peer, request))
            .await
            .map(drop)
            .map_err(refusal)
    }

    fn info_of(&self, node: u64) -> Arc<NodeInfo> {
        Arc::clone(&self.server.state().node(NodeId(node)).unwrap().info)
    }
}

fn refusal(status: Status) -> Refusal {
    Refusal::from_status(&status).unwrap_or_else(|| panic!("no refusal of ours: {status}"))
}

fn from<T>(peer: Option<Peer>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    request
}

fn addr() -> SocketAddr {
    ([10, 0, 0, 7], 40_000).into()
}

fn tls(identity: Identity) -> Option<Peer> {
    Some(Peer::Tls {
        addr: addr(),
        identity: Some(identity),
    })
}

fn member(node: u64) -> Option<Peer> {
    tls(Identity::Member(NodeId(node)))
}

fn worker(node: u64) -> Option<Peer> {
    tls(Identity::Worker(NodeId(node)))
}

fn hello(node_id: u64) -> SessionRequest {
    SessionRequest {
        node_id,
        last_revision: None,
        instance: 1,
        info: Some(to_node_info(&info(NodeRole::Server))),
        ..SessionRequest::default()
    }
}

fn beat(node_id: u64) -> StatusReport {
    StatusReport {
        node_id,
        body: Some(Body::Heartbeat(proto::Heartbeat::default())),
        ..StatusReport::default()
    }
}

fn telling(incarnation: u64, body: &ReportBody) -> StatusReport {
    StatusReport {
        incarnation: Some(incarnation),
        body: Some(to_body(body).unwrap()),
        ..StatusReport::default()
    }
}

async fn next(events: &mut Events) -> Option<Event> {
    let event = events.next().await?;
    event.unwrap().event
}

/// Reads the greeting and the first assignment.
async fn greeted(events: &mut Events) {
    assert!(matches!(next(events).await, Some(Event::Opened(_))));
    assert!(matches!(next(events).await, Some(Event::Assignment(_))));
}

async fn ended(events: &mut Events) -> Refusal {
    let Some(Event::Ended(ended)) = next(events).await else {
        panic!("it does not end");
    };
    assert!(events.next().await.is_none(), "nothing follows");
    Refusal::from_ended(&ended).unwrap()
}

#[tokio::test]
async fn who_shows_no_certificate_is_nobody() {
    let door = Door::open(&[7]).await;
    let loopback = Some(Peer::Tcp(([127, 0, 0, 1], 4_000).into()));
    let unproved = Some(Peer::Tls {
        addr: addr(),
        identity: None,
    });
    for peer in [None, loopback, unproved, Some(Peer::Unix { uid: 0 })] {
        assert!(matches!(
            door.session(peer, hello(7)).await,
            Err(Refusal::Identity(_))
        ));
        assert!(matches!(
            door.report(peer, beat(7)).await,
            Err(Refusal::Identity(_))
        ));
        let mut claims = from(peer, beat(7));
        claims.metadata_mut().insert("x-dhow-node", 7.into());
        let status = door.gateway.report_status(claims).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
    }
}

#[tokio::test]
async fn a_number_in_a_message_is_no_identity() {
    for peer in [member(7), worker(7)] {
        let door = Door::open(&[7, 8]).await;
        if peer == worker(7) {
            door.make_worker(7).await;
        }
        assert!(matches!(
            door.session(peer, hello(8)).await,
            Err(Refusal::Identity(_))
        ));
        assert!(matches!(
            door.report(peer, beat(8)).await,
            Err(Refusal::Identity(_))
        ));
        assert!(door.report(peer, beat(7)).await.is_ok());
        assert!(door.report(peer, beat(0)).await.is_ok());
    }
}

#[tokio::test]
async fn unknown_workers_are_told_to_register_and_members_are_registered() {
    let door = Door::open(&[]).await;
    assert_eq!(
        door.session(worker(7), hello(7)).await.err(),
        Some(Refusal::UnknownNode)
    );
    assert_eq!(
        door.report(worker(7), beat(7)).await.err(),
        Some(Refusal::UnknownNode)
    );
    assert_eq!(
        door.report(member(7), beat(7)).await.err(),
        Some(Refusal::UnknownNode)
    );
    assert!(door.server.leases.is_empty(), "nobody unknown has a lease");
    let silent = SessionRequest {
        info: None,
        ..hello(7)
    };
    assert!(matches!(
        door.session(member(7), silent).await,
        Err(Refusal::Malformed(_))
    ));
    let mut events = door.session(member(7), hello(7)).await.unwrap();
    greeted(&mut events).await;
    assert_eq!(door.info_of(7).role, NodeRole::Server);
    assert!(door.report(member(7), beat(7)).await.is_ok());
}

#[tokio::test]
async fn news_of_a_node_are_written_once_and_a_worker_keeps_its_labels() {
    let door = Door::open(&[7]).await;
    let before = door.server.state().revision;
    drop(door.session(member(7), hello(7)).await.unwrap());
    assert_eq!(door.server.state().revision, before, "nothing new was said");
    let mut larger = info(NodeRole::Worker);
    larger.capacity.cpu_milli = 9_000;
    larger.labels = Arc::new([("zone".to_owned(), "gold".to_owned())].into());
    let request = || SessionRequest {
        info: Some(to_node_info(&larger)),
        ..hello(7)
    };
    drop(door.session(member(7), request()).await.unwrap());
    let known = door.info_of(7);
    assert_eq!(known.labels["zone"], "gold");
    assert_eq!(known.role, NodeRole::Server, "a member is no worker");
    door.make_worker(7).await;
    drop(door.session(worker(7), request()).await.unwrap());
    let known = door.info_of(7);
    assert_eq!(known.capacity.cpu_milli, 9_000);
    assert!(known.labels.is_empty() && known.role == NodeRole::Worker);
}

#[tokio::test]
async fn a_follower_says_who_leads() {
    let door = Door::of(TestServer::start_following(&[7]).await);
    let refused = Refusal::NotLeader {
        leader: Some(LeaderHint {
            node: NodeId(2),
            address: Some("server-2:3669".into()),
        }),
    };
    assert_eq!(
        door.session(member(7), hello(7)).await.err(),
        Some(refused.clone())
    );
    assert_eq!(door.report(member(7), beat(7)).await.err(), Some(refused.clone()));
    let secrets = door
        .gateway
        .secrets(from(member(7), proto::SecretsRequest::default()));
    let status = secrets.await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert_eq!(refusal(status), refused);
}

#[tokio::test]
async fn a_full_inbox_turns_reports_away_and_costs_no_lease() {
    let door = Door::open(&[7]).await;
    door.server.leases.renew(NodeId(7));
    door.server.pass(5_000).await;
    door.server.log.hold();
    let (input, report) = (door.server.handle.input(), |seq| {
        telling(
            1,
            &ReportBody::Inventory {
                seq,
                replicas: Vec::new(),
            },
        )
    });
    // The reducer takes what it may propose; what follows stays in the inbox.
    loop {
        let (reply, _) = tokio::sync::oneshot::channel();
        let write = crate::plane::runtime::WriteRequest {
            command: Command::Node(NodeCommand::Back { node: NodeId(7) }),
            request: None,
            reply,
        };
        match input.try_send(ReducerInput::Write(write)) {
            Ok(()) => {}
            Err(InboxError::Full) if input.load().0 == input.load().1 => {
                tokio::task::yield_now().await;
                if input.load().0 == input.load().1 {
                    break;
                }
            }
            Err(InboxError::Full) => {}
            Err(InboxError::Closed) => panic!("the server runs"),
        }
    }
    assert_eq!(door.report(member(7), report(1)).await.err(), Some(Refusal::Busy));
    let alive_until_ms = door.server.leases.deadline_ms(NodeId(7));
    assert_eq!(alive_until_ms, Some(5_000 + 20_000), "it was heard all the same");
}

#[tokio::test]
async fn a_node_that_asks_too_often_is_slowed_down_and_lives() {
    let door = Door::open(&[7, 8]).await;
    let mut taken = 0;
    let refused = loop {
        match door.report(member(7), beat(7)).await {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((taken, refused), (CALLS_BURST, Refusal::TooOften));
    assert!(door.report(member(8), beat(8)).await.is_ok(), "others are not");
    door.server.pass(1_000).await;
    assert!(door.report(member(7), beat(7)).await.is_ok());
    assert_eq!(door.server.leases.deadline_ms(NodeId(7)), Some(21_000));
}

#[tokio::test]
async fn what_cannot_be_read_is_refused() {
    let door = Door::open(&[7]).await;
    let events = |bytes: &[u8]| StatusReport {
        body: Some(Body::Events(proto::Events {
            first_seq: 1,
            events: bytes.to_vec(),
        })),
        ..StatusReport::default()
    };
    for report in [StatusReport::default(), events(&[9, 9]), events(&[1, 255, 255])] {
        assert!(matches!(
            door.report(member(7), report).await,
            Err(Refusal::Malformed(_))
        ));
    }
    let too_long = vec!["name".to_owned(); super::limits::SECRET_NAMES_MAX + 1];
    let secrets = proto::SecretsRequest { names: too_long };
    let status = door.gateway.secrets(from(member(7), secrets)).await.unwrap_err();
    assert!(matches!(refusal(status), Refusal::Malformed(_)));
}

#[tokio::test]
async fn a_newer_session_ends_the_older_and_that_is_no_evidence() {
    let door = Door::open(&[7]).await;
    let mut first = door.session(member(7), hello(7)).await.unwrap();
    greeted(&mut first).await;
    let mut second = door.session(member(7), hello(7)).await.unwrap();
    greeted(&mut second).await;
    let before = door.server.leases.deadline_ms(NodeId(7));
    assert_eq!(ended(&mut first).await, Refusal::Replaced);
    drop(first);
    assert_eq!(door.server.leases.deadline_ms(NodeId(7)), before);
    assert_eq!(door.gateway.sessions(), 1);
    drop(second);
    assert_eq!(door.gateway.sessions(), 0);
}

#[tokio::test]
async fn a_session_that_breaks_is_evidence_from_its_last_sign_on() {
    let door = Door::open(&[7, OWN.0]).await;
    let (_, stream) = tokio::io::duplex(64);
    let clock: Arc<dyn Clock> = Arc::new(door.server.clock.clone());
    let heard: LastHeard = HeardStream::new(stream, clock).last_heard();
    let mut request = from(member(7), hello(7));
    request.extensions_mut().insert(heard);
    let events = door.gateway.session(request).await.unwrap().into_inner();
    assert_eq!(door.server.leases.deadline_ms(NodeId(7)), Some(20_000));
    door.server.pass(4_000).await;
    drop(events);
    assert_eq!(
        door.server.leases.deadline_ms(NodeId(7)),
        Some(10_000),
        "the grace from its last sign"
    );
    // Where nothing is known of the connection, the break itself is the last sign.
    let events = door.session(member(7), hello(7)).await.unwrap();
    door.server.pass(4_000).await;
    drop(events);
    assert_eq!(door.server.leases.deadline_ms(NodeId(7)), Some(18_000));
}

#[tokio::test]
async fn a_server_that_ends_says_so_and_blames_nobody() {
    let door = Door::open(&[7]).await;
    let mut events = door.session(member(7), hello(7)).await.unwrap();
    greeted(&mut events).await;
    let before = door.server.leases.deadline_ms(NodeId(7));
    door.end.cancel();
    assert_eq!(ended(&mut events).await, Refusal::ShuttingDown);
    drop(events);
    assert_eq!(door.server.leases.deadline_ms(NodeId(7)), before);
}

#[tokio::test]
async fn a_node_that_is_removed_is_told() {
    let door = Door::open(&[7]).await;
    door.make_worker(7).await;
    let mut events = door.session(worker(7), hello(7)).await.unwrap();
    greeted(&mut events).await;
    door.server
        .write(Command::Node(NodeCommand::Remove { node: NodeId(7) }))
        .await;
    assert_eq!(ended(&mut events).await, Refusal::UnknownNode);
    assert_eq!(
        door.session(worker(7), hello(7)).await.err(),
        Some(Refusal::UnknownNode)
    );
}

#[tokio::test]
async fn what_an_older_level_could_not_keep_is_said_again_once_it_is_raised() {
    let door = Door::open(&[7]).await;
    let told = NodeInfo {
        mesh_addr: Some("10.0.0.7:3672".into()),
        ..info(NodeRole::Server)
    };
    let request = || SessionRequest {
        info: Some(to_node_info(&told)),
        ..hello(7)
    };
    let mut events = door.session(member(7), request()).await.unwrap();
    greeted(&mut events).await;
    assert_eq!(door.info_of(7).mesh_addr, None);
    let raise = ClusterCommand::RaiseFeatureLevel {
        level: State::FEATURE_LEVEL,
        nodes_limit: None,
    };
    door.server.write(Command::Cluster(raise)).await;
    assert_eq!(ended(&mut events).await, Refusal::Busy);
    let mut events = door.session(member(7), request()).await.unwrap();
    greeted(&mut events).await;
    assert_eq!(door.info_of(7).mesh_addr.as_deref(), Some("10.0.0.7:3672"));
}

#[tokio::test]
async fn a_node_says_what_it_wants_to_be_told_of() {
    let door = Door::open(&[7]).await;
    let wanted = |deployment: &str| proto::WantRequest {
        node_id: 7,
        services: vec![proto::ServiceName {
            deployment: deployment.into(),
            service: "db".into(),
        }],
        opening: 5,
        number: 1,
    };
    let want = |who, request| door.want(who, request);
    assert_eq!(
        want(member(7), wanted("shop")).await,
        Err(Refusal::Busy),
        "it has no session"
    );
    let request = SessionRequest {
        takes_directory: true,
        by_interest: true,
        wanted: wanted("shop").services,
        opening: 5,
        ..hello(7)
    };
    let mut events = door.session(member(7), request).await.unwrap();
    let absent = async |events: &mut Events| loop {
        if let Some(Event::Directory(told)) = next(events).await
            && let Some(absent) = told.absent
        {
            return absent.deployments;
        }
    };
    assert_eq!(absent(&mut events).await, ["shop"]);
    assert_eq!(want(member(7), wanted("blog")).await, Ok(()));
    assert_eq!(absent(&mut events).await, ["blog"]);
    let of_another = proto::WantRequest {
        opening: 4,
        ..wanted("shop")
    };
    assert_eq!(
        want(member(7), of_another).await,
        Err(Refusal::Busy),
        "it belongs to a session before"
    );
    let unreadable = want(member(7), wanted("No Name")).await;
    assert!(matches!(unreadable, Err(Refusal::Malformed(_))), "{unreadable:?}");
    let another = want(member(8), wanted("shop")).await;
    assert!(matches!(another, Err(Refusal::Identity(_))), "{another:?}");
}

#[tokio::test]
async fn reports_are_answered_as_the_mirror_stands() {
    let door = Door::open(&[7]).await;
    let asking = |seq| {
        telling(
            5,
            &ReportBody::Events {
                first_seq: seq,
                events: Vec::new(),
            },
        )
    };
    let ack = door.report(member(7), asking(1)).await.unwrap();
    assert!(
        ack.inventory_wanted && ack.durable_seq.is_none(),
        "another life of the node"
    );
    assert_eq!(ack.next_ttl_secs, 10);
    let inventory = ReportBody::Inventory {
        seq: 40,
        replicas: Vec::<(_, Machine)>::new(),
    };
    let ack = door.report(member(7), telling(5, &inventory)).await.unwrap();
    assert_eq!((ack.durable_seq, ack.inventory_wanted), (Some(40), false));
    let revision = door.server.state().revision;
    let ack = door.report(member(7), asking(41)).await.unwrap();
    assert_eq!((ack.durable_seq, ack.inventory_wanted), (Some(40), false));
    assert_eq!(
        door.server.state().revision,
        revision,
        "a question writes nothing"
    );
    let ack = door.report(member(7), asking(50)).await.unwrap();
    assert_eq!((ack.durable_seq, ack.replay_from), (None, Some(40)));
}

#[tokio::test]
async fn the_first_report_is_answered_with_the_rollouts_that_are_open() {
    let door = Door::open(&[7]).await;
    let spec = serde_json::json!({
        "version": "v1", "deployment": "shop", "services": { "web": { "image": "web:1" } },
    });
    let deploy = DeploymentCommand::Deploy {
        spec: Arc::new(serde_json::from_value(spec).unwrap()),
        author: "test".into(),
        wall_unix_secs: 0,
        force: false,
    };
    door.server.write(Command::Deployment(deploy)).await;
    let state = door.server.state();
    let service = state.services.values().next().unwrap();
    let placements = service.wanted_slots().map(|slot| Placement {
        slot,
        node: NodeId(7),
        eligibility: state.node(NodeId(7)).unwrap().eligibility,
    });
    let place = PlanCommand::Place {
        service: service.id,
        generation: service.target,
        placements: placements.collect(),
    };
    door.server.write(Command::Plan(place)).await;
    let inventory = ReportBody::Inventory {
        seq: 1,
        replicas: Vec::<(_, Machine)>::new(),
    };
    let ack = door.report(member(7), telling(5, &inventory)).await.unwrap();
    let [open] = &ack.bootstrap[..] else {
        panic!("{ack:?}");
    };
    assert_eq!(
        (open.rollout_id.as_str(), open.service.as_str()),
        ("shop@1", "web")
    );
    assert_eq!(open.spec_json.len(), 1);
    let asking = ReportBody::Events {
        first_seq: 2,
        events: Vec::new(),
    };
    let naming = StatusReport {
        rollouts: vec!["shop@1".into()],
        ..telling(5, &asking)
    };
    let ack = door.report(member(7), naming).await.unwrap();
    assert_eq!((ack.durable_seq, ack.bootstrap), (Some(1), vec![]));
}

#[tokio::test]
async fn a_lost_node_tells_everything_and_is_back() {
    let door = Door::open(&[7]).await;
    let inventory = telling(
        5,
        &ReportBody::Inventory {
            seq: 1,
            replicas: Vec::<(_, Machine)>::new(),
        },
    );
    door.report(member(7), inventory.clone()).await.unwrap();
    door.server
        .write(Command::Node(NodeCommand::Lost { node: NodeId(7) }))
        .await;
    let is_ready = || door.server.state().node(NodeId(7)).unwrap().is_ready();
    let ack = door.report(member(7), beat(7)).await.unwrap();
    assert!(ack.inventory_wanted && !is_ready());
    let asking = telling(
        5,
        &ReportBody::Events {
            first_seq: 2,
            events: Vec::new(),
        },
    );
    let ack = door.report(member(7), asking).await.unwrap();
    assert_eq!(
        (ack.durable_seq, ack.inventory_wanted, is_ready()),
        (Some(1), true, false)
    );
    let ack = door.report(member(7), inventory).await.unwrap();
    assert_eq!(
        (ack.durable_seq, ack.inventory_wanted, is_ready()),
        (Some(1), false, true)
    );
}
