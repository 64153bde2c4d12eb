//! A directory of signed deployment files is followed, and nothing else gets in that way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dhow_core::command::{Command, DeploymentCommand, PlanCommand};
use dhow_core::ids::{DeploymentRevision, Revision};
use dhow_core::plan::Plan;
use dhow_core::state::State;
use dhow_wire::SourceConfig;
use dhow_wire::manifest::{ManifestSigner, ReceivedSet, Verdict, WrittenSource};
use tempfile::TempDir;

use super::support::{Gate, Server, WALL_UNIX_MS, shop};
use crate::plane::runtime::limits::MANIFEST_POLL_MS;
use crate::plane::runtime::{EventId, EventKind, ManifestSources, Purpose, RuntimeOptions};

const NOW_UNIX_SECS: i64 = WALL_UNIX_MS / 1_000;

fn taken(state: &State) -> Option<u64> {
    let source = state.sources.get("shop")?;
    source.taken.map(|taken| taken.version)
}

fn key() -> ManifestSigner {
    ManifestSigner::from_seed([5; 32])
}

fn shop_yaml(replicas: u32) -> String {
    format!(
        "version: v1\ndeployment: shop\nservices:\n  web:\n    image: nginx:1.27\n    scale: {{ mode: fixed, replicas: {replicas} }}\n"
    )
}

fn set(version: u64, created_unix_secs: i64, files: &[(&str, String)]) -> ReceivedSet {
    let files: BTreeMap<String, Vec<u8>> = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.clone().into_bytes()))
        .collect();
    key().sign(version, created_unix_secs, files).unwrap()
}

fn put(dir: &Path, set: &ReceivedSet) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
    for (path, bytes) in &set.files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::write(dir.join("index.json"), &set.index).unwrap();
    std::fs::write(dir.join("index.json.sig"), &set.signature).unwrap();
}

/// A server that follows a directory, and the polls of it.
struct Followed {
    server: Server,
    dir: TempDir,
}

impl Followed {
    fn start(first: &ReceivedSet) -> Self {
        Self::start_at(first, State::FEATURE_LEVEL)
    }

    /// The same in a cluster of that level.
    fn start_at(first: &ReceivedSet, feature_level: u32) -> Self {
        let dir = TempDir::new().unwrap();
        put(dir.path(), first);
        let configured = [SourceConfig {
            name: "shop".into(),
            written: WrittenSource::of_dir(dir.path().to_str().unwrap()),
            keys: vec![key().public()],
        }];
        let sources = ManifestSources::new(&configured, None);
        let options = RuntimeOptions {
            planner: Arc::new(|_, _, _| Plan::default()),
            plan_debounce_ms: 0,
            sources: Arc::new(sources),
            // Only the poll falls asleep again and again.
            plan_tick_ms: u64::MAX,
            directory_quiet_ms: 0,
            ..RuntimeOptions::default()
        };
        let state = State {
            feature_level,
            ..State::default()
        };
        let server = Server::run(state, options, Gate::default());
        Self { server, dir }
    }

    /// Lets the task look once more, and waits until it has and what it sent is applied.
    async fn poll(&self) {
        let clock = &self.server.clock;
        clock.wait_for_sleepers(2).await;
        let begun = clock.sleeps_begun();
        clock.advance(MANIFEST_POLL_MS);
        clock.wait_for_sleeps_begun(begun + 1).await;
        // Behind what the poll sent; and what is in the log is applied before the inbox is looked at again.
        self.server.handle.input().read().await.unwrap();
    }

    /// Everything that people were told, once it is shown.
    async fn alarms(&self) -> Vec<String> {
        self.server.handle.event_log().flush().await;
        let events = self.server.handle.view().events().clone();
        let records = events.since(EventId::behind(Revision(0)), usize::MAX).unwrap();
        let alarms = records
            .iter()
            .filter(|record| record.event.kind == EventKind::Alarm);
        alarms.filter_map(|record| record.event.message.clone()).collect()
    }

    fn version(&self) -> Option<u64> {
        taken(&self.server.state())
    }
}

#[tokio::test]
async fn a_good_set_is_put_in_force_and_an_unchanged_one_is_left_alone() {
    let first = set(1, NOW_UNIX_SECS, &[("a/shop.yaml", shop_yaml(2))]);
    let followed = Followed::start(&first);
    // The first look comes before this server leads.
    followed.poll().await;
    let state = followed.server.state();
    let deployment = state.deployment(&shop()).unwrap();
    assert!(deployment.from_manifests);
    assert_eq!(followed.version(), Some(1));

    let revision = followed.server.state().revision;
    followed.poll().await;
    followed.poll().await;
    assert_eq!(followed.server.state().revision, revision, "nothing is proposed");

    put(
        followed.dir.path(),
        &set(2, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(3))]),
    );
    followed.poll().await;
    let state = followed.server.state();
    let revision = state.deployment(&shop()).unwrap().revision;
    assert_eq!(revision, DeploymentRevision(2));
    assert!(followed.server.stop().await.is_clean());
}

#[tokio::test]
async fn refused_sets_change_nothing() {
    let good = set(5, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(2))]);
    let followed = Followed::start(&good);
    followed.poll().await;
    followed.server.wait_for(|state| taken(state).is_some()).await;
    let hash = followed.server.state().hash();

    let mut tampered = set(6, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(3))]);
    tampered
        .files
        .insert("shop.yaml".into(), shop_yaml(9).into_bytes());
    let mut unsigned = set(6, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(3))]);
    unsigned.signature = vec![b'0'; 128];
    let mut extra = set(6, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(3))]);
    extra.files.insert("more.yaml".into(), shop_yaml(1).into_bytes());
    let refused = [
        tampered,
        unsigned,
        extra,
        set(4, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(1))]),
        set(5, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(1))]),
        set(6, NOW_UNIX_SECS + 3_600, &[("shop.yaml", shop_yaml(3))]),
        set(6, NOW_UNIX_SECS - 3_600, &[("shop.yaml", shop_yaml(3))]),
        set(
            6,
            NOW_UNIX_SECS,
            &[("shop.yaml", "version: v1\nwrong: true\n".to_owned())],
        ),
    ];
    for set in refused {
        put(followed.dir.path(), &set);
        // A reason is told once, however often the directory is looked at.
        followed.poll().await;
        followed.poll().await;
        assert_eq!(followed.server.state().hash(), hash);
    }
    std::fs::remove_file(followed.dir.path().join("index.json")).unwrap();
    followed.poll().await;
    let alarms = followed.alarms().await;
    let told = [
        "other content than the index says",
        "not signed with a key",
        "not in the index",
        "older than version 5",
        "but other content",
        "s in the future",
        "before version 5",
        "not a valid deployment file",
        "cannot be read",
    ];
    assert_eq!(alarms.len(), told.len(), "{alarms:#?}");
    for (alarm, told) in alarms.iter().zip(told) {
        assert!(alarm.contains(told), "{alarm} does not say {told:?}");
    }
    assert_eq!(followed.version(), Some(5));
    assert!(followed.server.stop().await.is_clean());
}

#[tokio::test]
async fn a_link_is_never_followed() {
    let outside = TempDir::new().unwrap();
    std::fs::write(outside.path().join("shop.yaml"), shop_yaml(2)).unwrap();
    let signed = set(1, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(2))]);
    let followed = Followed::start(&signed);
    std::fs::remove_file(followed.dir.path().join("shop.yaml")).unwrap();
    std::os::unix::fs::symlink(
        outside.path().join("shop.yaml"),
        followed.dir.path().join("shop.yaml"),
    )
    .unwrap();
    followed.poll().await;
    followed.poll().await;
    assert_eq!(followed.version(), None);
    assert!(followed.server.stop().await.is_clean());
}

#[tokio::test]
async fn a_set_that_the_state_refuses_is_told_once_and_tried_again() {
    // Where what a source has brought can be removed by hand.
    let first = set(1, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(2))]);
    let followed = Followed::start_at(&first, 5);
    followed.poll().await;
    followed.server.wait_for(|state| taken(state).is_some()).await;
    let remove = Command::Deployment(DeploymentCommand::Remove { deployment: shop() });
    followed.server.write(remove).await.unwrap();
    put(
        followed.dir.path(),
        &set(2, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(3))]),
    );
    for _ in 0..3 {
        followed.poll().await;
    }
    let alarms = followed.alarms().await;
    assert_eq!(
        alarms,
        [
            "version 2 of shop was not taken: deployment `shop` is being removed; deploy it again once it is gone"
        ]
    );
    let id = followed
        .server
        .state()
        .service_ids
        .values()
        .next()
        .copied()
        .unwrap();
    let gone = Command::Plan(PlanCommand::ForgetService { service: id });
    followed.server.write(gone).await.unwrap();
    followed.poll().await;
    let is_two = |state: &State| taken(state) == Some(2);
    followed.server.wait_for(is_two).await;
    assert!(followed.server.stop().await.is_clean());
}

/// What was signed is in force still, but what lies there is something else.
#[tokio::test]
async fn files_that_are_changed_under_the_version_in_force_are_told() {
    let good = set(1, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(2))]);
    let followed = Followed::start(&good);
    followed.poll().await;
    followed.server.wait_for(|state| taken(state).is_some()).await;
    followed.poll().await;
    let hash = followed.server.state().hash();
    assert_eq!(followed.alarms().await, [""; 0]);

    std::fs::write(followed.dir.path().join("shop.yaml"), shop_yaml(9)).unwrap();
    followed.poll().await;
    followed.poll().await;
    put(followed.dir.path(), &good);
    followed.poll().await;
    std::fs::write(followed.dir.path().join("more.yaml"), shop_yaml(1)).unwrap();
    followed.poll().await;
    let alarms = followed.alarms().await;
    let told = ["other content than the index says", "not in the index"];
    assert_eq!(alarms.len(), told.len(), "{alarms:#?}");
    for (alarm, told) in alarms.iter().zip(told) {
        assert!(alarm.contains(told), "{alarm} does not say {told:?}");
    }
    assert_eq!(followed.server.state().hash(), hash, "nothing is changed by it");
    assert!(followed.server.stop().await.is_clean());
}

/// What waits for a person is shown until somebody says yes, and what is said yes to is what was shown.
#[tokio::test]
async fn a_set_that_would_remove_most_waits() {
    let file = |name: &str| {
        (
            format!("{name}.yaml"),
            shop_yaml(1).replace("deployment: shop", &format!("deployment: {name}")),
        )
    };
    let of = |version: u64, names: &[&str]| {
        let files: Vec<(String, String)> = names.iter().map(|name| file(name)).collect();
        let files: Vec<(&str, String)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.clone()))
            .collect();
        set(version, NOW_UNIX_SECS, &files)
    };
    let followed = Followed::start(&of(1, &["blog", "shop", "wiki"]));
    followed.poll().await;
    followed.server.wait_for(|state| taken(state) == Some(1)).await;
    put(followed.dir.path(), &of(2, &["shop"]));
    followed.poll().await;
    followed.poll().await;
    assert_eq!(followed.version(), Some(1));
    let view = followed.server.handle.view();
    let look = view.sources().last_look("shop");
    assert_eq!(look.waiting.unwrap().version, 2);
    let problem = look.problem.unwrap();
    assert!(
        problem.contains("would remove 2 of 3 deployments (blog, wiki)"),
        "{problem}"
    );
    assert_eq!(followed.alarms().await, [problem], "it is told once");

    let state = followed.server.state();
    let source = view.sources().all(&state).remove(0);
    let accepted = view
        .sources()
        .look(&state, source, Purpose::Accept, NOW_UNIX_SECS)
        .await;
    let Ok(Verdict::Newer(accepted)) = accepted else {
        panic!("{accepted:?}")
    };
    followed
        .server
        .write(accepted.into_command(NOW_UNIX_SECS))
        .await
        .unwrap();
    assert_eq!(followed.version(), Some(2));
    assert!(view.sources().last_look("shop").waiting.is_none());
    assert!(followed.server.stop().await.is_clean());
}

/// When the time of a suspension is over, the poll reads the set in force once more, without anybody asking.
#[tokio::test]
async fn a_suspension_ends_by_itself() {
    let followed = Followed::start(&set(1, NOW_UNIX_SECS, &[("shop.yaml", shop_yaml(2))]));
    followed.poll().await;
    followed.server.wait_for(|state| taken(state).is_some()).await;
    let by_hand = |replicas: u32| DeploymentCommand::Deploy {
        spec: Arc::new(dhow_wire::parse_deployment(&shop_yaml(replicas), "shop.yaml", &|_| None).unwrap()),
        author: "ann".into(),
        wall_unix_secs: NOW_UNIX_SECS,
        force: false,
    };
    let refused = followed.server.write(Command::Deployment(by_hand(3))).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("comes from the source `shop`")));
    let suspending = DeploymentCommand::Suspending {
        for_ms: 2 * MANIFEST_POLL_MS,
        until_unix_secs: NOW_UNIX_SECS + 2 * MANIFEST_POLL_MS as i64 / 1_000,
        author: "ann".into(),
        command: Box::new(by_hand(3)),
    };
    followed
        .server
        .write(Command::Deployment(suspending))
        .await
        .unwrap();
    let of = |state: &State| {
        let shop = state.deployment(&shop()).unwrap();
        (shop.revision, shop.suspended.is_some())
    };
    assert_eq!(of(&followed.server.state()), (DeploymentRevision(2), true));
    followed.poll().await;
    assert_eq!(of(&followed.server.state()), (DeploymentRevision(2), true));
    for _ in 0..3 {
        followed.poll().await;
    }
    followed.server.wait_for(|state| !of(state).1).await;
    assert_eq!(of(&followed.server.state()), (DeploymentRevision(3), false));
    assert_eq!(followed.version(), Some(1));
    assert!(followed.server.stop().await.is_clean());
}
