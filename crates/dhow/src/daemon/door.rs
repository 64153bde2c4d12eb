//! The API's door to this very node: its agent, its images.

use dhow_agent::AgentHandle;
use dhow_core::ids::NodeId;
use dhow_core::spec::PullPolicy;
use dhow_core::usage::{EndpointFigures, RelayFigures};
use dhow_driver::driver::{DriverError, error_chain};
use dhow_driver::volume::Volumes;
use dhow_server::net::node_door::{
    Answer, DoorError, ExecRequest, ExecSession, ImagePort, LogItems, LogQuery, NetCheckRequest, NodeDoor,
    NodeVolume, PresentReplica, PullSteps, ReplicaPull, VolumeBytes, VolumeName,
};
use dhow_wire::api::{ImageImportRequest, ImageInfo, ImageName, ImagesRemoved, NetCheck};
use futures_util::StreamExt;

use super::door_exec;
use super::door_images::ImageDoor;
use super::door_volumes::VolumeDoor;

/// The door through which the API reaches the agent and the images of its own process. It refuses requests for any
/// other node.
pub struct LocalDoor {
    node: NodeId,
    agent: AgentHandle,
    images: ImageDoor,
    volumes: VolumeDoor,
}

impl LocalDoor {
    pub fn new(node: NodeId, agent: AgentHandle, images: ImageDoor, volumes: Volumes) -> Self {
        let volumes = VolumeDoor::new(volumes, agent.clone());
        Self {
            node,
            agent,
            images,
            volumes,
        }
    }

    fn check(&self, node: NodeId) -> Result<(), DoorError> {
        if node == self.node {
            return Ok(());
        }
        let why = format!("this is a cluster of one node, {}", self.node);
        Err(DoorError::Unreachable { node, why })
    }

    fn log_items(&self, query: LogQuery) -> LogItems {
        let items = futures_util::stream::unfold(self.agent.logs(query), |mut items| async move {
            let item = items.recv().await?;
            Some((Ok(item), items))
        });
        items.boxed()
    }
}

/// What a driver's failure is for the one who asked.
pub fn door_error(error: &DriverError) -> DoorError {
    use dhow_driver::driver::Cause;
    let text = error_chain(error);
    match &*error.cause {
        Cause::NoSuchReplica => DoorError::NotFound(text),
        Cause::NotRunning | Cause::Busy | Cause::AlreadyRuns { .. } => DoorError::Refused(text),
        Cause::Unsupported { .. } => DoorError::NotSupported(text),
        _ => DoorError::Failed(text),
    }
}

impl NodeDoor for LocalDoor {
    fn logs(&self, node: NodeId, query: LogQuery) -> Answer<'_, LogItems> {
        Box::pin(async move {
            self.check(node)?;
            Ok(self.log_items(query))
        })
    }

    fn exec(&self, node: NodeId, request: ExecRequest) -> Answer<'_, ExecSession> {
        Box::pin(async move {
            self.check(node)?;
            door_exec::begin(&self.agent, request).await
        })
    }

    fn pulls(&self, node: NodeId) -> Answer<'_, Vec<ReplicaPull>> {
        Box::pin(async move {
            self.check(node)?;
            Ok(self.agent.pulls())
        })
    }

    fn replicas(&self, node: NodeId) -> Answer<'_, Vec<PresentReplica>> {
        Box::pin(async move {
            self.check(node)?;
            Ok(self.agent.present().await)
        })
    }

    fn images(&self, node: NodeId) -> Answer<'_, Vec<ImageInfo>> {
        Box::pin(async move {
            self.check(node)?;
            self.images.list().await
        })
    }

    fn pull_image(&self, node: NodeId, image: String) -> Answer<'_, PullSteps> {
        Box::pin(async move {
            self.check(node)?;
            self.images.pull(&image)
        })
    }

    fn import_image(&self, node: NodeId, request: ImageImportRequest) -> Answer<'_, ImageName> {
        Box::pin(async move {
            self.check(node)?;
            self.images.import(request).await
        })
    }

    fn remove_image(&self, node: NodeId, name: String) -> Answer<'_, ImagesRemoved> {
        Box::pin(async move {
            self.check(node)?;
            self.images.remove(&name).await
        })
    }

    fn prune_images(&self, node: NodeId) -> Answer<'_, ImagesRemoved> {
        Box::pin(async move {
            self.check(node)?;
            self.images.prune().await
        })
    }

    fn volumes(&self, node: NodeId) -> Answer<'_, Vec<NodeVolume>> {
        Box::pin(async move {
            self.check(node)?;
            self.volumes.list().await
        })
    }

    fn remove_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, ()> {
        Box::pin(async move {
            self.check(node)?;
            self.volumes.remove(volume).await
        })
    }

    fn backup_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, VolumeBytes> {
        Box::pin(async move {
            self.check(node)?;
            self.volumes.backup(volume).await
        })
    }

    fn restore_volume(&self, node: NodeId, volume: VolumeName, bytes: VolumeBytes) -> Answer<'_, ()> {
        Box::pin(async move {
            self.check(node)?;
            self.volumes.restore(volume, bytes).await
        })
    }

    fn resolve_image(&self, name: String, pull_policy: PullPolicy) -> Answer<'_, String> {
        Box::pin(async move { self.images.resolve(&name, pull_policy).await })
    }

    fn net_check(&self, node: NodeId, request: NetCheckRequest) -> Answer<'_, NetCheck> {
        Box::pin(async move {
            self.check(node)?;
            let checked = self.agent.net_check(&request).await;
            checked.map_err(|error| door_error(&error))
        })
    }

    fn figures(&self) -> Answer<'_, Vec<EndpointFigures>> {
        Box::pin(async move { Ok(self.agent.figures().await) })
    }

    fn relayed(&self) -> Answer<'_, RelayFigures> {
        Box::pin(async move { Ok(self.agent.relayed().await) })
    }

    fn image_ports(&self, name: String) -> Answer<'_, Vec<ImagePort>> {
        Box::pin(async move { self.images.ports(&name).await })
    }
}
