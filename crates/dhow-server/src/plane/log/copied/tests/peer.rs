//! One peer: a runtime on a copied log in a folder of its own.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_core::spec::{DeploymentSpec, ImageSpec, ServiceSpec, SpecVersion};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::net::Net;
use crate::clock::SystemClock;
use crate::plane::log::copied::{CopiedLog, CopiedOptions, CopiedTimings};
use crate::plane::log::store::StoreOptions;
use crate::plane::runtime::{self, InputSender, RuntimeHandle, RuntimeView, WriteError, drain};
use crate::plane::storage::Storage;

pub const THRESHOLD_MS: u64 = 1_000;

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Peer {
    ended: Ended,
    pub log: CopiedLog,
    pub storage: Storage,
    pub view: RuntimeView,
    input: InputSender,
    runtime: RuntimeHandle,
    cancel: CancellationToken,
    end: CancellationToken,
    task: JoinHandle<()>,
    net: Net,
}

/// A peer that does not run.
pub struct Ended {
    node: u64,
    all: Vec<u64>,
    dir: tempfile::TempDir,
}

impl Ended {
    pub fn start_again(self, net: &Net) -> Peer {
        let storage = Storage::default();
        let options = CopiedOptions {
            node: self.node,
            peers: self.all.clone(),
            dir: self.dir.path().join("log"),
            lost_file: self.dir.path().join("conflicted.json"),
            store: StoreOptions {
                segment_size_bytes: 1024 * 1024,
                max_record_bytes: 256 * 1024,
                ..StoreOptions::default()
            },
            timings: CopiedTimings {
                heartbeat_ms: 50,
                threshold_ms: THRESHOLD_MS,
                copy_timeout_ms: 2_000,
            },
            network: net.of(self.node),
            clock: Arc::new(SystemClock::new()),
            storage: storage.clone(),
        };
        let opened = runtime::open_copied(self.dir.path(), options).unwrap();
        let (cancel, end) = (CancellationToken::new(), CancellationToken::new());
        let clock = Arc::new(SystemClock::new());
        let runtime = runtime::spawn_with(
            cancel.clone(),
            opened.runtime.state,
            clock,
            opened.runtime.options,
        );
        net.join(self.node, opened.log.clone());
        Peer {
            ended: self,
            view: runtime.view(),
            input: runtime.input(),
            task: tokio::spawn(opened.task.run(end.clone())),
            log: opened.log,
            storage,
            runtime,
            cancel,
            end,
            net: net.clone(),
        }
    }
}

impl Peer {
    pub fn start(node: u64, all: &[u64], net: &Net) -> Self {
        let ended = Ended {
            node,
            all: all.to_vec(),
            dir: tempfile::tempdir().unwrap(),
        };
        ended.start_again(net)
    }

    pub fn leads(&self) -> bool {
        let (leadership, state) = (self.view.leadership(), self.view.state());
        leadership.is_here && state.term.0 == leadership.term
    }

    pub fn leader(&self) -> Option<u64> {
        self.view.leadership().leader
    }

    pub async fn deploy(&self, name: &str, image: &str) -> Result<(), WriteError> {
        let service = ServiceSpec {
            image: Some(ImageSpec::named(image)),
            ..ServiceSpec::default()
        };
        let spec = DeploymentSpec {
            version: SpecVersion::V1,
            deployment: DeploymentName::new(name).unwrap(),
            services: [(ServiceName::new("web").unwrap(), Arc::new(service))].into(),
            scaled: Default::default(),
            configs: Default::default(),
        };
        let deploy = DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "ann".into(),
            wall_unix_secs: 1,
            force: false,
        };
        self.input
            .write(Command::Deployment(deploy), None)
            .await
            .map(drop)
    }

    /// Whether the deployment's current revision has this image.
    pub fn has(&self, name: &str, image: &str) -> bool {
        let state = self.view.state();
        let deployment = state.deployment(&DeploymentName::new(name).unwrap());
        let record = deployment.and_then(|deployment| deployment.current().cloned());
        record.is_some_and(|record| {
            let mut services = record.spec.services.values();
            services.any(|service| service.image.as_ref().is_some_and(|known| known.name == image))
        })
    }

    /// As when its process dies: nobody is told.
    pub async fn end(self) -> Ended {
        let Self {
            ended,
            log,
            view,
            input,
            runtime,
            cancel,
            end,
            task,
            net,
            storage: _,
        } = self;
        net.part(ended.node);
        cancel.cancel();
        drop((input, view));
        let clock = SystemClock::new();
        drain(runtime.into_join_handles(), &clock, 10_000).await;
        end.cancel();
        task.await.unwrap();
        drop(log);
        ended
    }

    pub async fn end_all(peers: Vec<Peer>) {
        for peer in peers {
            peer.end().await;
        }
    }
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
