//! Whole control planes on raft logs: the same state everywhere, whatever happens to the servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command};
use dhow_server::clock::SystemClock;
use dhow_server::plane::log::raft::RaftLog;
use dhow_server::plane::runtime::{
    OpenedRaft, RuntimeHandle, RuntimeOptions, SnapshotPolicy, WriteError, drain, open_raft, spawn_with,
};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, until};
use crate::node::dir_of;

struct Server {
    cancel: CancellationToken,
    handle: RuntimeHandle,
    log: RaftLog,
}

/// Three servers; the cluster that is inside lends its network and directories.
struct Servers {
    cluster: Cluster,
    running: BTreeMap<u64, Server>,
}

fn secret(number: u64) -> Command {
    Command::Cluster(ClusterCommand::SetSecret {
        name: format!("secret-{number}").into(),
        sealed: vec![7; 100].into(),
    })
}

impl Servers {
    async fn start() -> Servers {
        let mut servers = Servers {
            cluster: Cluster::prepare(3),
            running: BTreeMap::new(),
        };
        for id in 1..=3 {
            servers.open(id).await;
        }
        servers
    }

    async fn open(&mut self, id: u64) {
        let data_dir = dir_of(self.cluster.dir.path(), id);
        let mut options = self.cluster.options(id);
        options.dir = data_dir.join("raft");
        let OpenedRaft { runtime, log } = open_raft(&data_dir, options).await.unwrap();
        self.cluster.network.plug(id, log.handler());
        let cancel = CancellationToken::new();
        let options = RuntimeOptions {
            snapshots: SnapshotPolicy {
                entries: 20,
                log_bytes: 1024 * 1024,
            },
            ..runtime.options
        };
        let handle = spawn_with(
            cancel.clone(),
            runtime.state,
            Arc::new(SystemClock::new()),
            options,
        );
        self.running.insert(id, Server { cancel, handle, log });
    }

    async fn stop(&mut self, id: u64) {
        self.cluster.network.unplug(id);
        let server = self.running.remove(&id).unwrap();
        server.cancel.cancel();
        drain(server.handle.into_join_handles(), &SystemClock::new(), 10_000).await;
    }

    fn leader(&self) -> Option<u64> {
        let leads = |server: &Server| server.handle.view().leadership().is_here;
        self.running
            .iter()
            .find(|(_, server)| leads(server))
            .map(|(id, _)| *id)
    }

    async fn led(&self) -> u64 {
        until("somebody leads", || self.leader().is_some()).await;
        match self.leader() {
            Some(leader) => leader,
            None => Box::pin(self.led()).await,
        }
    }

    async fn write(&self, number: u64) {
        loop {
            let input = self.running[&self.led().await].handle.input();
            match input.write(secret(number), None).await {
                Ok(_) => return,
                Err(WriteError::NotLeader { .. } | WriteError::Unknown) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until all servers have the same state with so many secrets.
    async fn agree(&self, secrets: usize) {
        let states = || self.running.values().map(|server| server.handle.view().state());
        until("all servers agree", || {
            let first = states().next().unwrap();
            first.secrets.len() == secrets && states().all(|state| state.hash() == first.hash())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_planes_have_the_same_state_through_restarts_and_snapshots() {
    let mut servers = Servers::start().await;
    for number in 0..30 {
        servers.write(number).await;
    }
    servers.agree(30).await;
    let old = servers.led().await;
    let latest = servers.running[&old].handle.view().latest().await.unwrap();
    assert_eq!(latest.secrets.len(), 30);
    let follower = servers.running.keys().copied().find(|id| *id != old).unwrap();
    match servers.running[&follower].handle.view().latest().await {
        Err(WriteError::NotLeader { leader }) => assert_eq!(leader.map(|id| id.0), Some(old)),
        other => panic!("{other:?}"),
    }
    servers.stop(old).await;
    for number in 30..100 {
        servers.write(number).await;
    }
    servers.open(old).await;
    servers.agree(100).await;
    for id in 1..=3 {
        servers.stop(id).await;
    }
    for id in 1..=3 {
        servers.open(id).await;
    }
    servers.write(100).await;
    servers.agree(101).await;
    let handed = servers.running[&servers.led().await]
        .log
        .transfer(None)
        .await
        .unwrap();
    until("it leads", || servers.leader() == Some(handed)).await;
    servers.write(101).await;
    servers.agree(102).await;
    for id in 1..=3 {
        servers.stop(id).await;
    }
}
