//! The door to a node: how the API reaches what only a node has, its logs, its images and its workloads' insides.
//!
//! The API calls it; the daemon hands in an implementation that speaks with its own agent and, over HTTP, with other
//! nodes. Wire types only: this crate never sees an agent or a driver. An implementation must never block a thread and
//! must bound what it buffers.

mod cluster;
mod error;
mod scripted;

use bytes::Bytes;
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::replica::ReplicaState;
use dhow_core::spec::PullPolicy;
use dhow_core::usage::{EndpointFigures, RelayFigures};
use dhow_wire::api::{
    ExecClientFrame, ExecServerFrame, ImageImportRequest, ImageInfo, ImageName, ImagesRemoved, LogRecord,
    NetCheck, PullProgress,
};
use dhow_wire::names::deployment_on_wire;
use dhow_wire::{ClusterContainerSummary, NodeServiceState};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use cluster::ClusterDoor;
pub use dhow_wire::door::{
    ExecRequest, LineFilter, LogItem, LogQuery, NetCheckRequest, NodeVolume, PresentReplica, ReplicaPull,
    VolumeName,
};
pub use error::DoorError;
pub use scripted::{ScriptedDoor, ScriptedExec};

/// What a question to a node is answered with.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, DoorError>>;

/// A [`LogItem`], or what became of the stream, between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLine {
    Record(LogRecord),
    CaughtUp,
    Failed(String),
}

pub type LogItems = BoxStream<'static, Result<LogItem, DoorError>>;

/// A command that runs inside a replica. Dropping both ends of it ends the command.
#[derive(Debug)]
pub struct ExecSession {
    pub input: mpsc::Sender<ExecClientFrame>,
    /// Ends after [`ExecServerFrame::Exit`].
    pub output: mpsc::Receiver<ExecServerFrame>,
}

/// Frames that may wait in either direction of a session: 16 of at most 64 KiB are 1 MiB.
pub const EXEC_FRAMES_MAX: usize = 16;

/// A pull that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullStep {
    Progress(PullProgress),
    /// The last one.
    Done(ImageName),
}

pub type PullSteps = BoxStream<'static, Result<PullStep, DoorError>>;

/// The bytes of a volume's archive, on their way to a node or from it. One that breaks off ends with an error.
pub type VolumeBytes = BoxStream<'static, Result<Bytes, DoorError>>;

/// What the API asks of a node: logs, commands in replicas, pulls, images, and what it runs. The daemon gives the API
/// an implementation for its mode.
pub trait NodeDoor: Send + Sync {
    /// The lines of one replica come in their order; those of several as they come.
    fn logs(&self, node: NodeId, query: LogQuery) -> Answer<'_, LogItems>;

    /// Runs a command in a replica.
    fn exec(&self, node: NodeId, request: ExecRequest) -> Answer<'_, ExecSession>;

    /// How far the pulls have come that replicas of this node wait for.
    fn pulls(&self, node: NodeId) -> Answer<'_, Vec<ReplicaPull>>;

    /// What is on this node now, as it knows itself.
    fn replicas(&self, node: NodeId) -> Answer<'_, Vec<PresentReplica>>;

    /// What a node runs of a service, as it knows itself.
    fn service_state(&self, node: NodeId, service: ServiceKey) -> Answer<'_, NodeServiceState> {
        Box::pin(async move {
            let present = self.replicas(node).await?.into_iter();
            let of_service = present.filter(|replica| replica.name.service_key() == service);
            Ok(service_state(node, &of_service.collect::<Vec<_>>()))
        })
    }

    fn images(&self, node: NodeId) -> Answer<'_, Vec<ImageInfo>>;

    fn pull_image(&self, node: NodeId, image: String) -> Answer<'_, PullSteps>;

    fn import_image(&self, node: NodeId, request: ImageImportRequest) -> Answer<'_, ImageName>;

    fn remove_image(&self, node: NodeId, name: String) -> Answer<'_, ImagesRemoved>;

    /// Removes every image that nothing uses.
    fn prune_images(&self, node: NodeId) -> Answer<'_, ImagesRemoved>;

    /// The volumes that the node has, and how large they are.
    fn volumes(&self, node: NodeId) -> Answer<'_, Vec<NodeVolume>>;

    /// Removes a volume that no replica there uses.
    fn remove_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, ()>;

    /// What is in a volume, as a tar stream.
    fn backup_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, VolumeBytes>;

    /// Gives a volume that no replica there uses the content of a tar stream, whole or not at all.
    fn restore_volume(&self, node: NodeId, volume: VolumeName, bytes: VolumeBytes) -> Answer<'_, ()>;

    /// The digest that an image's name means now, as `sha256:…`.
    fn resolve_image(&self, name: String, pull_policy: PullPolicy) -> Answer<'_, String>;

    /// Tries a call from inside a replica of the node.
    fn net_check(&self, node: NodeId, request: NetCheckRequest) -> Answer<'_, NetCheck>;

    /// What has passed each endpoint that was called on the node of this very process.
    fn figures(&self) -> Answer<'_, Vec<EndpointFigures>>;

    /// What the node of this very process has passed on for others that nobody can dial.
    fn relayed(&self) -> Answer<'_, RelayFigures> {
        Box::pin(async { Ok(RelayFigures::default()) })
    }

    /// The ports that an image says it listens on. The name may have a digest behind it.
    fn image_ports(&self, name: String) -> Answer<'_, Vec<ImagePort>>;
}

/// A port that an image says it listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePort {
    pub port: u16,
    pub is_udp: bool,
}

/// The replicas of one service on a node, summed.
fn service_state(node: NodeId, replicas: &[PresentReplica]) -> NodeServiceState {
    let runs = |replica: &&PresentReplica| replica.machine.state == ReplicaState::Running;
    let running = replicas.iter().filter(runs);
    NodeServiceState {
        node_id: node.0,
        running: u32::try_from(running.clone().count()).unwrap_or(u32::MAX),
        healthy: running.clone().all(|replica| replica.machine.healthy),
        containers: replicas.iter().map(|replica| summary(node, replica)).collect(),
    }
}

fn summary(node: NodeId, replica: &PresentReplica) -> ClusterContainerSummary {
    let name = &replica.name;
    ClusterContainerSummary {
        node_id: node.0,
        id: name.id(),
        service: name.service.to_string(),
        replica: name.index,
        image: replica.image.clone().unwrap_or_default(),
        state: replica.machine.state.word().to_owned(),
        pid: replica.machine.pid,
        overlay_ip: None,
        deployment: deployment_on_wire(&name.deployment),
    }
}
