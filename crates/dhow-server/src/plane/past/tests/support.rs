//! A log with a state beside it, to which things happen, and the past that is written of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::command::{ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, ScaleChange};
use dhow_core::ids::{DeploymentName, NodeId, Revision, ServiceName, Term};
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_wire::log_form::{encode_entry, encode_snapshot};
use serde_json::Value;
use tempfile::TempDir;

use crate::plane::log::Log;
use crate::plane::log::local::LocalLog;
use crate::plane::log::store::{Batch, LogPosition, Op, StoreOptions};
use crate::plane::past::{ChapterSize, Moment, Past, PastOptions};
use crate::plane::services::{ReplicaFilter, ServiceManager};

pub struct World {
    pub state: State,
    pub options: PastOptions,
    pub past: Past,
    pub now_unix_ms: i64,
    /// Every state that there was.
    pub seen: BTreeMap<Revision, State>,
    log: LocalLog,
    time_ms: u64,
    term: u64,
    version: u32,
    _dir: TempDir,
}

impl World {
    /// Short chapters, so that a few entries make several.
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut options = PastOptions::new(dir.path().join("past"));
        options.chapter = ChapterSize {
            entries_min: 2,
            entries_max: 4,
            span_ms: i64::MAX,
        };
        let log = LocalLog::open(&dir.path().join("log"), StoreOptions::default())
            .unwrap()
            .log;
        let mut world = Self {
            state: State::default(),
            past: Past::new(options.clone()),
            options,
            now_unix_ms: 6_000_000,
            seen: BTreeMap::new(),
            log,
            time_ms: 0,
            term: 1,
            version: 0,
            _dir: dir,
        };
        world.apply(Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "c".into(),
            feature_level: State::FEATURE_LEVEL - 1,
            nodes_limit: Some(100),
        }));
        world.begin_term(1_000_000);
        world
    }

    fn apply(&mut self, command: Command) {
        self.time_ms += 1_000;
        let entry = Entry {
            time: ClusterTime(self.time_ms),
            term: Term(self.term),
            request: None,
            command,
        };
        let payload = encode_entry(&entry, self.state.feature_level).unwrap().into();
        let term = self.term;
        let append = Batch::of(Op::AppendNext { term, payload });
        self.log.store().commit(append).unwrap();
        // A refusal is part of the history.
        let _ = step(&mut self.state, &entry, &mut ());
        self.seen.insert(self.state.revision, self.state.clone());
    }

    /// Something that the number chooses happens.
    pub fn act(&mut self, number: u8) {
        match number % 9 {
            0 => self.register(1 + u64::from(number) % 3),
            1 => self.deploy(),
            2 => self.set_secret("token", &[number; 40]),
            3 => self.apply(Command::Cluster(ClusterCommand::RemoveSecret {
                name: "token".into(),
            })),
            4 => self.scale(u32::from(number) % 5),
            5 => self.apply(Command::Node(NodeCommand::Lost {
                node: NodeId(1 + u64::from(number) % 3),
            })),
            6 => self.plan(),
            7 => self.begin_term(1_000_000 + i64::from(number) * 10_000),
            _ => {
                self.register(1);
                self.plan();
            }
        }
    }

    fn deploy(&mut self) {
        self.version += 1;
        let text = format!(
            "version: v1\ndeployment: shop\nservices: {{ web: {{ image: \"shop:{}\", scale: {{ mode: manual }} }} }}\n",
            self.version
        );
        let spec = dhow_wire::parse_deployment(&text, "shop.yaml", &|_| None).unwrap();
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "user ann".into(),
            wall_unix_secs: 1_000,
            force: false,
        }));
    }

    fn scale(&mut self, replicas: u32) {
        self.apply(Command::Deployment(DeploymentCommand::Scale {
            deployment: DeploymentName::new("shop").unwrap(),
            changes: vec![ScaleChange {
                service: ServiceName::new("web").unwrap(),
                role: None,
                replicas,
            }],
        }));
    }

    fn register(&mut self, node: u64) {
        let info = NodeInfo {
            role: NodeRole::Worker,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::default(),
            capacity: Amount {
                cpu_milli: 8_000,
                memory_bytes: 8 << 30,
            },
            runs_replicas: true,
            tries_settings: true,
            mounts_files: true,
            runs_steps: true,
            volumes: dhow_core::spec::VolumeSupport::Sized,
            mesh_addr: None,
        };
        self.apply(Command::Node(NodeCommand::Register {
            node: NodeId(node),
            info: Arc::new(info),
        }));
    }

    fn plan(&mut self) {
        let commands = plan_next(&self.state, &mut PlanCache::default(), self.state.time).commands;
        for command in commands {
            self.apply(Command::Plan(command));
        }
    }

    pub fn set_secret(&mut self, name: &str, sealed: &[u8]) {
        self.apply(Command::Cluster(ClusterCommand::SetSecret {
            name: name.into(),
            sealed: sealed.into(),
        }));
    }

    pub fn begin_term(&mut self, wall_unix_ms: i64) {
        self.term += 1;
        self.apply(Command::Cluster(ClusterCommand::TermBegan {
            leader: NodeId(1),
            wall_unix_ms: Some(wall_unix_ms),
        }));
    }

    pub fn raise_level(&mut self) {
        self.apply(Command::Cluster(ClusterCommand::RaiseFeatureLevel {
            level: State::FEATURE_LEVEL,
            nodes_limit: None,
        }));
    }

    pub fn catch_up(&self) {
        self.past.catch_up(&self.log, &self.state, self.now_unix_ms);
    }

    /// As after a restart of the daemon.
    pub fn reopen(&mut self) {
        self.past = Past::new(self.options.clone());
    }

    /// The log makes a snapshot, and forgets what the one before it covers.
    pub fn snapshot(&self) {
        let index = self.log.status().committed_index;
        let mut snapshot = self
            .log
            .begin_snapshot(LogPosition {
                index,
                term: self.term,
            })
            .unwrap();
        encode_snapshot(&self.state, &mut snapshot).unwrap();
        self.log.compact(snapshot).unwrap();
    }
}

/// What people are told of a state.
pub fn answers(state: State) -> Value {
    let moment = Moment::of(state);
    ServiceManager::listed_at(&moment, |listings| {
        let filter = ReplicaFilter {
            all: true,
            ..ReplicaFilter::default()
        };
        serde_json::json!({
            "status": listings.deployments(),
            "ps": listings.replicas(&filter).ok(),
            "explain": listings.explain("shop", "web").ok(),
        })
    })
}
