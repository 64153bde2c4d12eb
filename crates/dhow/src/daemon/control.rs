//! The control plane of a single node: its log, its runtime, and the first entries of a new cluster.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_core::command::{ClusterCommand, Command, NodeCommand};
use dhow_core::state::{Liveness, NodeInfo, NodeRole, State};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::log::store::StoreOptions;
use dhow_server::runtime::{self, InputSender, OpenedRuntime, RuntimeHandle, RuntimeView};
use dhow_wire::DaemonConfig;
use tokio_util::sync::CancellationToken;

use super::NODE;
use crate::host;

/// A local log leads as soon as it is open.
const LEAD_WITHIN: Duration = Duration::from_secs(10);

/// What the rest of the daemon needs of the control plane.
pub struct Control {
    pub input: InputSender,
    pub view: RuntimeView,
    pub clock: Arc<dyn Clock>,
    pub cancel: CancellationToken,
}

impl Control {
    pub async fn start(
        config: &DaemonConfig,
        clock: Arc<SystemClock>,
    ) -> anyhow::Result<(Self, RuntimeHandle)> {
        let opened = open(&config.data_dir).await?;
        let cancel = CancellationToken::new();
        let clock: Arc<dyn Clock> = clock;
        let handle = runtime::spawn_with(cancel.clone(), opened.state, Arc::clone(&clock), opened.options);
        let control = Self {
            input: handle.input(),
            view: handle.view(),
            clock,
            cancel,
        };
        control.lead().await?;
        control
            .write_first(config)
            .await
            .context("the cluster cannot be set up")?;
        Ok((control, handle))
    }

    async fn lead(&self) -> anyhow::Result<()> {
        let mut leaderships = self.view.leaderships();
        let leads = leaderships.wait_for(|leadership| leadership.is_here);
        let waited = tokio::time::timeout(LEAD_WITHIN, leads).await;
        waited.context("the control plane does not come up")??;
        Ok(())
    }

    /// A new cluster gets its id; the node says what it is and has.
    async fn write_first(&self, config: &DaemonConfig) -> anyhow::Result<()> {
        let state = self.view.state();
        if state.cluster_id.is_none() {
            let bootstrap = ClusterCommand::Bootstrap {
                cluster_id: format!("{:032x}", rand::random::<u128>()).into(),
                feature_level: State::FEATURE_LEVEL,
            };
            self.input.write(Command::Cluster(bootstrap), None).await?;
        }
        let info = Arc::new(node_info(config));
        let known = state.node(NODE);
        if known.is_none_or(|node| node.info != info) {
            let register = NodeCommand::Register { node: NODE, info };
            self.input.write(Command::Node(register), None).await?;
        }
        if known.is_some_and(|node| node.liveness != Liveness::Ready) {
            let back = NodeCommand::Back { node: NODE };
            self.input.write(Command::Node(back), None).await?;
        }
        Ok(())
    }
}

async fn open(data_dir: &Path) -> anyhow::Result<OpenedRuntime> {
    let dir = data_dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || runtime::open_local(&dir, StoreOptions::default()));
    opened
        .await?
        .with_context(|| format!("the state in {} cannot be opened", data_dir.display()))
}

fn node_info(config: &DaemonConfig) -> NodeInfo {
    let mut capacity = host::capacity();
    if let Some(cpu) = config.resources.cpu {
        capacity.cpu_milli = cpu.0;
    }
    if let Some(memory) = config.resources.memory {
        capacity.memory_bytes = memory.0;
    }
    NodeInfo {
        role: NodeRole::Peer,
        api_addr: Some(config.api_addr.to_string().into()),
        os: host::OS.into(),
        arch: host::ARCH.into(),
        labels: Arc::new(config.labels.clone()),
        capacity,
        runs_replicas: true,
    }
}
