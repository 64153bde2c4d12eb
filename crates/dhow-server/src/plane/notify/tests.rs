//! A receiver on loopback, and what reaches it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use dhow_core::amount::Amount;
use dhow_core::command::NodeCommand;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::{NodeInfo, NodeRole, Notice, NotifySettings, State};
use dhow_core::time::ClusterTime;
use tempfile::TempDir;
use tokio::sync::watch;

use super::line::{Line, Next};
use super::*;
use crate::clock::SystemClock;
use crate::plane::runtime::{Event, EventKind, EventStore, RuntimeHandle, RuntimeOptions, spawn_with};

const KEY: &str = "0123456789abcdef";

/// Takes notices, and refuses as many before as it is told to.
#[derive(Clone)]
struct Receiver {
    took: watch::Sender<Vec<(HeaderMap, Bytes)>>,
    refusals: Arc<Mutex<Vec<StatusCode>>>,
    url: String,
}

impl Receiver {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            took: watch::Sender::default(),
            refusals: Arc::default(),
            url: format!("http://{}/hook?token=t0ken", listener.local_addr().unwrap()),
        };
        let router = Router::new()
            .route("/hook", post(take))
            .with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    fn refuse(&self, status: StatusCode, times: usize) {
        self.refusals.lock().unwrap().extend(vec![status; times]);
    }

    async fn after(&self, count: usize) -> Vec<NoticeDocument> {
        let mut took = self.took.subscribe();
        let all = took.wait_for(|all| all.len() >= count).await.unwrap().clone();
        all.iter()
            .map(|(_, body)| serde_json::from_slice(body).unwrap())
            .collect()
    }
}

async fn take(Shared(receiver): Shared<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if let Some(status) = receiver.refusals.lock().unwrap().pop() {
        return status;
    }
    receiver.took.send_modify(|took| took.push((headers, body)));
    StatusCode::NO_CONTENT
}

fn record(revision: u64, kind: EventKind) -> Arc<EventRecord> {
    Arc::new(EventRecord {
        revision: Revision(revision),
        part: 0,
        time_ms: ClusterTime(0),
        wall_unix_ms: None,
        event: Event::new(kind).with_node(NodeId(7)),
    })
}

fn target(on: &[Notice], sealed: Vec<u8>) -> NotifyTarget {
    NotifyTarget {
        settings: NotifySettings {
            shown: "https://ops.example".into(),
            sealed: sealed.into(),
            on: BTreeSet::from_iter(on.iter().copied()),
        },
        done: EventPlace::default(),
    }
}

#[tokio::test]
async fn a_notice_is_signed_over_time_and_body_and_follows_no_redirect() {
    let receiver = Receiver::start().await;
    let address = Address::new(&receiver.url, KEY, false).unwrap();
    let document = NoticeDocument::of("c", "ops", &record(41, EventKind::NodeLost));
    let post = Post::default();
    post.send(&address, &document, 1_800_000_000).await.unwrap();
    let (headers, body) = receiver.took.borrow()[0].clone();
    assert_eq!(headers["dhow-notice-id"], "c/41.0");
    assert_eq!(headers["dhow-notice-time"], "1800000000");
    let text = [b"1800000000.".as_slice(), &body].concat();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY.as_bytes());
    let signed: String = ring::hmac::sign(&key, &text)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(headers["dhow-notice-signature"], format!("v1={signed}"));
    let read: NoticeDocument = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (read.notice.as_str(), read.text.as_str()),
        ("node-lost", "node 7 is lost")
    );
    for (status, refuses) in [(500, false), (422, true), (302, false), (429, false)] {
        receiver.refuse(StatusCode::from_u16(status).unwrap(), 1);
        let error = post.send(&address, &document, 1).await.unwrap_err();
        assert_eq!(error.refuses_content(), refuses, "{error}");
    }
    let closed = Address::new("http://127.0.0.1:9/x?token=t0ken", KEY, false).unwrap();
    let error = post.send(&closed, &document, 1).await.unwrap_err();
    assert!(
        error.told().starts_with("it does not answer: ") && !error.told().contains("t0ken"),
        "{}",
        error.told()
    );
}

#[test]
fn addresses_are_safe_ones_and_shown_without_what_may_be_a_credential() {
    let new = |url, any_http| Address::new(url, KEY, any_http);
    for url in [
        "ftp://a.example",
        "a.example",
        "http://a.example/x",
        "https://ann:pw@a.example/",
        "https://",
    ] {
        assert!(new(url, false).is_err(), "{url}");
    }
    assert!(new("http://a.example/x", true).is_ok());
    for (url, shown) in [
        (
            "https://hooks.example/services/T0/B0/x?y=1",
            "https://hooks.example/…",
        ),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://localhost/", "http://localhost"),
    ] {
        assert_eq!(new(url, false).unwrap().shown(), shown);
    }
    let dir = TempDir::new().unwrap();
    let secrets = SecretBox::open(dir.path()).unwrap();
    let sealed = new("https://a.example/x", false)
        .unwrap()
        .seal(&secrets, "ops")
        .unwrap();
    assert_eq!(Address::unseal(&secrets, "ops", &sealed).unwrap().key, KEY);
    assert!(Address::unseal(&secrets, "other", &sealed).is_err());
}

#[test]
fn a_line_goes_on_in_order_and_waits_longer_each_time() {
    let mut line = Line::new(EventPlace::default());
    line.settings = Some(Arc::new(target(&[Notice::NodeLost], Vec::new())));
    assert!(line.wants_events(0));
    line.look(
        vec![record(1, EventKind::NodeBack), record(2, EventKind::Alarm)],
        0,
    );
    assert!(line.start(0).is_none());
    assert_eq!(
        line.place().revision,
        Revision(2),
        "what it does not want is passed over"
    );
    line.look(
        vec![record(3, EventKind::NodeLost), record(4, EventKind::NodeLost)],
        0,
    );
    let failed = || Err(PostError::Status(StatusCode::BAD_GATEWAY));
    let mut now_ms = 0;
    for pause_ms in [1_000, 2_000, 4_000, 8_000] {
        assert_eq!(line.start(now_ms).unwrap().revision, Revision(3));
        assert!(line.start(now_ms).is_none(), "one at a time");
        assert_eq!(line.ended(&failed(), now_ms), Next::Again);
        assert!(line.start(now_ms + pause_ms - 1).is_none());
        now_ms += pause_ms;
    }
    line.start(now_ms).unwrap();
    assert_eq!(line.ended(&Ok(()), now_ms), Next::Told);
    assert_eq!(line.place().revision, Revision(3));
    assert_eq!(line.start(now_ms).unwrap().revision, Revision(4));
    let day_ms = 24 * 60 * 60 * 1_000;
    assert_eq!(line.ended(&failed(), now_ms + day_ms), Next::GivenUp);
    assert_eq!(line.place().revision, Revision(4));
    line.look(vec![record(5, EventKind::NodeLost)], 0);
    let refused = Err(PostError::Status(StatusCode::UNPROCESSABLE_ENTITY));
    for attempt in 1..=5 {
        line.start(attempt * 1_000_000).unwrap();
        let next = line.ended(&refused, attempt * 1_000_000);
        assert_eq!(next, if attempt < 5 { Next::Again } else { Next::GivenUp });
    }
}

struct World {
    handle: RuntimeHandle,
    secrets: Arc<SecretBox>,
    desk: NotifyDesk,
    cancel: CancellationToken,
    _dir: TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let options = RuntimeOptions {
            event_store: Some(EventStore::open(&dir.path().join("events")).unwrap()),
            ..RuntimeOptions::default()
        };
        let state = State {
            feature_level: State::FEATURE_LEVEL,
            cluster_id: Some("c".into()),
            ..State::default()
        };
        let cancel = CancellationToken::new();
        let handle = spawn_with(cancel.clone(), state, Arc::new(SystemClock::new()), options);
        let mut leads = handle.view().leaderships();
        leads.wait_for(|now| now.is_here).await.unwrap();
        Self {
            handle,
            secrets: Arc::new(SecretBox::open(dir.path()).unwrap()),
            desk: NotifyDesk::default(),
            cancel,
            _dir: dir,
        }
    }

    async fn write(&self, command: Command) {
        self.handle.input().write(command, None).await.unwrap();
    }

    async fn tell(&self, name: &str, url: &str) {
        let address = Address::new(url, KEY, false).unwrap();
        let sealed = address.seal(&self.secrets, name).unwrap();
        let settings = target(&[Notice::NodeLost], sealed).settings;
        let name = name.into();
        self.write(Command::Cluster(ClusterCommand::SetNotify { name, settings }))
            .await;
    }

    async fn lose(&self, node: u64) {
        let info = NodeInfo {
            role: NodeRole::Worker,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::default(),
            capacity: Amount {
                cpu_milli: 1_000,
                memory_bytes: 1 << 30,
            },
            runs_replicas: true,
            tries_settings: true,
            mounts_files: true,
            runs_steps: true,
            mesh_addr: None,
            volumes: Default::default(),
        };
        let (node, info) = (NodeId(node), Arc::new(info));
        self.write(Command::Node(NodeCommand::Register { node, info }))
            .await;
        self.write(Command::Node(NodeCommand::Lost { node })).await;
    }

    fn start(&self) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let cancel = CancellationToken::new();
        let notifier = Notifier {
            view: self.handle.view(),
            input: self.handle.input(),
            secrets: Arc::clone(&self.secrets),
            clock: Arc::new(SystemClock::new()),
            desk: self.desk.clone(),
        };
        (cancel.clone(), tokio::spawn(notifier.run(cancel)))
    }

    /// Waits until the state says that a target was told of so many losses of nodes.
    async fn told_up_to(&self, name: &str, revision: u64) {
        let mut states = self.handle.view().states();
        let told = |state: &Arc<State>| state.notify[name].done.revision >= Revision(revision);
        states.wait_for(told).await.unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[tokio::test]
async fn what_happens_is_told_once_also_after_another_start() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    world.lose(5).await;
    world.tell("ops", &receiver.url).await;
    receiver.refuse(StatusCode::SERVICE_UNAVAILABLE, 1);
    let (cancel, running) = world.start();
    world.lose(6).await;
    world.lose(7).await;
    let lost_at = world.handle.view().state().revision.0;
    let texts = |all: Vec<NoticeDocument>| all.into_iter().map(|one| one.text).collect::<Vec<_>>();
    assert_eq!(
        texts(receiver.after(2).await),
        ["node 6 is lost", "node 7 is lost"],
        "in order, and nothing from before it was to be told"
    );
    world.told_up_to("ops", lost_at).await;
    let figures = world.desk.board.of("ops");
    assert_eq!(
        (figures.sent, figures.failed_attempts, figures.given_up),
        (2, 1, 0)
    );
    cancel.cancel();
    running.await.unwrap();
    // What happened while nobody sent is told by whoever sends next.
    world.lose(8).await;
    let (cancel, running) = world.start();
    assert_eq!(texts(receiver.after(3).await)[2], "node 8 is lost");
    cancel.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn one_that_does_not_answer_holds_up_nobody_else() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    world.tell("dead", "http://127.0.0.1:9/").await;
    world.tell("ops", &receiver.url).await;
    let (cancel, running) = world.start();
    for node in 1..4 {
        world.lose(node).await;
    }
    receiver.after(3).await;
    world
        .told_up_to("ops", world.handle.view().state().revision.0 - 3)
        .await;
    let dead = world.handle.view().state().notify["dead"].done;
    let begun = world.handle.view().state().notify["ops"].done;
    assert!(dead < begun);
    cancel.cancel();
    running.await.unwrap();
}
