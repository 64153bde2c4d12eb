//! A door that does as it is told: for tests of whatever stands in front of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::NodeId;
use dhow_core::spec::PullPolicy;
use dhow_core::usage::EndpointFigures;
use dhow_wire::api::{
    ExecClientFrame, ExecExit, ExecServerFrame, ImageImportRequest, ImageInfo, ImageName, ImagesRemoved,
    LogRecord, NetCheck, PullProgress, PullState,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::{broadcast, mpsc};

use super::{
    Answer, DoorError, EXEC_FRAMES_MAX, ExecRequest, ExecSession, ImagePort, LogItem, LogItems, LogQuery,
    NetCheckRequest, NodeDoor, NodeVolume, PresentReplica, PullStep, PullSteps, ReplicaPull, VolumeBytes,
    VolumeName,
};

/// Lines that may wait for one who follows; a test writes fewer.
const FOLLOWED_LINES_MAX: usize = 1_024;

/// What a command in a replica does: it says this, repeats what comes in, and ends so.
#[derive(Clone, Debug)]
pub struct ScriptedExec {
    pub stdout: Vec<u8>,
    pub exit: ExecExit,
}

#[derive(Default)]
struct Script {
    logs: Vec<LogRecord>,
    pulls: Vec<ReplicaPull>,
    replicas: Vec<PresentReplica>,
    images: Vec<ImageInfo>,
    volumes: BTreeMap<VolumeName, Vec<u8>>,
    digests: BTreeMap<String, String>,
    ports: BTreeMap<String, Vec<ImagePort>>,
    figures: Vec<EndpointFigures>,
    net_check: Option<NetCheck>,
    exec: Option<ScriptedExec>,
    unreachable: Vec<NodeId>,
    resolved: Vec<String>,
}

/// A node door for tests, which answers as the test has set it; clones are the same door.
#[derive(Clone)]
pub struct ScriptedDoor {
    script: Arc<Mutex<Script>>,
    lines: broadcast::Sender<LogRecord>,
}

impl Default for ScriptedDoor {
    fn default() -> Self {
        Self {
            script: Arc::default(),
            lines: broadcast::Sender::new(FOLLOWED_LINES_MAX),
        }
    }
}

impl ScriptedDoor {
    fn script(&self) -> MutexGuard<'_, Script> {
        // Every change is one assignment, so a holder that panicked left a script that can be read.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A replica writes a line.
    pub fn write(&self, record: LogRecord) {
        self.script().logs.push(record.clone());
        // Nobody may be following.
        let _ = self.lines.send(record);
    }

    pub fn set_volume(&self, deployment: &str, name: &str, content: &[u8]) {
        let volume = VolumeName {
            deployment: deployment.to_owned(),
            name: name.to_owned(),
        };
        self.script().volumes.insert(volume, content.to_owned());
    }

    pub fn set_pulls(&self, pulls: Vec<ReplicaPull>) {
        self.script().pulls = pulls;
    }

    pub fn set_replicas(&self, replicas: Vec<PresentReplica>) {
        self.script().replicas = replicas;
    }

    pub fn add_image(&self, image: ImageInfo) {
        self.script().images.push(image);
    }

    /// From now on the name means this digest; names without one cannot be resolved.
    pub fn set_digest(&self, name: &str, digest: &str) {
        self.script().digests.insert(name.into(), digest.into());
    }

    /// From now on the image says that it listens there; others listen nowhere.
    pub fn set_ports(&self, name: &str, ports: &[ImagePort]) {
        self.script().ports.insert(name.into(), ports.to_vec());
    }

    /// What the next calls that are tried come to.
    pub fn set_net_check(&self, check: NetCheck) {
        self.script().net_check = Some(check);
    }

    pub fn set_figures(&self, figures: Vec<EndpointFigures>) {
        self.script().figures = figures;
    }

    /// From now on no name can be resolved.
    pub fn forget_digests(&self) {
        self.script().digests.clear();
    }

    /// The names that were asked for, in order.
    pub fn resolved(&self) -> Vec<String> {
        self.script().resolved.clone()
    }

    pub fn set_exec(&self, exec: ScriptedExec) {
        self.script().exec = Some(exec);
    }

    pub fn cut_off(&self, node: NodeId) {
        self.script().unreachable.push(node);
    }

    fn reach(&self, node: NodeId) -> Result<(), DoorError> {
        match self.script().unreachable.contains(&node) {
            true => Err(DoorError::Unreachable {
                node,
                why: "the connection was refused".into(),
            }),
            false => Ok(()),
        }
    }

    fn answer<T: Send + 'static>(
        &self,
        node: NodeId,
        make: impl FnOnce(&mut Script) -> Result<T, DoorError>,
    ) -> Answer<'static, T> {
        let made = self.reach(node).and_then(|()| make(&mut self.script()));
        Box::pin(async move { made })
    }
}

fn is_of(record: &LogRecord, node: NodeId, query: &LogQuery) -> bool {
    record.node_id == node.0
        && query
            .replicas
            .iter()
            .any(|name| name.deployment.as_str() == record.deployment && name.id() == record.replica)
}

impl NodeDoor for ScriptedDoor {
    fn logs(&self, node: NodeId, query: LogQuery) -> Answer<'_, LogItems> {
        let lines = self.lines.subscribe();
        self.answer(node, move |script| {
            let mut kept: Vec<LogRecord> = Vec::new();
            for name in &query.replicas {
                let one = LogQuery {
                    replicas: vec![name.clone()],
                    ..query.clone()
                };
                let own: Vec<_> = script
                    .logs
                    .iter()
                    .filter(|record| is_of(record, node, &one))
                    .filter(|record| query.lines.wants(record.time_unix_us, &record.text))
                    .collect();
                let first = query.tail.map_or(0, |tail| own.len().saturating_sub(tail));
                kept.extend(own.into_iter().skip(first).cloned());
            }
            let kept = stream::iter(kept).map(|record| Ok(LogItem::Record(record)));
            if !query.follow {
                return Ok(kept.boxed());
            }
            let fresh = stream::unfold((lines, query), move |(mut lines, query)| async move {
                loop {
                    let record = lines.recv().await.ok()?;
                    if is_of(&record, node, &query) {
                        return Some((Ok(LogItem::Record(record)), (lines, query)));
                    }
                }
            });
            let caught_up = stream::iter([Ok(LogItem::CaughtUp)]);
            Ok(kept.chain(caught_up).chain(fresh).boxed())
        })
    }

    fn exec(&self, node: NodeId, request: ExecRequest) -> Answer<'_, ExecSession> {
        self.answer(node, |script| {
            let exec = script.exec.clone();
            let exec = exec.ok_or_else(|| {
                DoorError::NotFound(format!("`{}` is not in the image", request.command[0]))
            })?;
            let (input, mut typed) = mpsc::channel(EXEC_FRAMES_MAX);
            let (says, output) = mpsc::channel(EXEC_FRAMES_MAX);
            tokio::spawn(async move {
                let _ = says.send(ExecServerFrame::Stdout(exec.stdout)).await;
                while request.stdin
                    && let Some(ExecClientFrame::Stdin(bytes)) = typed.recv().await
                {
                    let _ = says.send(ExecServerFrame::Stderr(bytes)).await;
                }
                let _ = says.send(ExecServerFrame::Exit(exec.exit)).await;
            });
            Ok(ExecSession { input, output })
        })
    }

    fn pulls(&self, node: NodeId) -> Answer<'_, Vec<ReplicaPull>> {
        self.answer(node, |script| Ok(script.pulls.clone()))
    }

    fn replicas(&self, node: NodeId) -> Answer<'_, Vec<PresentReplica>> {
        self.answer(node, |script| Ok(script.replicas.clone()))
    }

    fn images(&self, node: NodeId) -> Answer<'_, Vec<ImageInfo>> {
        self.answer(node, |script| Ok(script.images.clone()))
    }

    fn pull_image(&self, node: NodeId, image: String) -> Answer<'_, PullSteps> {
        self.answer(node, |script| {
            let step = |state, done_bytes, total_bytes| {
                Ok(PullStep::Progress(PullProgress {
                    state,
                    done_bytes,
                    total_bytes,
                }))
            };
            let end = match script.digests.get(&image) {
                Some(digest) => Ok(PullStep::Done(ImageName {
                    name: image,
                    digest: digest.clone(),
                    other_names: Vec::new(),
                })),
                None => Err(DoorError::NotFound(format!("the registry has no `{image}`"))),
            };
            let steps = [
                step(PullState::Resolving, 0, None),
                step(PullState::Pulling, 10, Some(10)),
                end,
            ];
            Ok(stream::iter(steps).boxed())
        })
    }

    fn import_image(&self, node: NodeId, request: ImageImportRequest) -> Answer<'_, ImageName> {
        self.answer(node, |_| {
            Ok(ImageName {
                name: request.name.unwrap_or_else(|| "imported:latest".into()),
                digest: format!("sha256:{}", "a".repeat(64)),
                other_names: Vec::new(),
            })
        })
    }

    fn remove_image(&self, node: NodeId, name: String) -> Answer<'_, ImagesRemoved> {
        self.answer(node, |script| {
            let place = script.images.iter().position(|image| image.name == name);
            let place = place.ok_or_else(|| DoorError::NotFound(format!("there is no image `{name}`")))?;
            if script.images[place].in_use {
                return Err(DoorError::Refused(format!("a replica uses `{name}`")));
            }
            let image = script.images.remove(place);
            Ok(ImagesRemoved {
                removed: vec![image.name],
                freed_bytes: image.size_bytes,
                ..ImagesRemoved::default()
            })
        })
    }

    fn prune_images(&self, node: NodeId) -> Answer<'_, ImagesRemoved> {
        self.answer(node, |script| {
            let (kept, gone): (Vec<_>, Vec<_>) = script.images.drain(..).partition(|image| image.in_use);
            script.images = kept;
            Ok(ImagesRemoved {
                freed_bytes: gone.iter().map(|image| image.size_bytes).sum(),
                removed: gone.into_iter().map(|image| image.name).collect(),
                ..ImagesRemoved::default()
            })
        })
    }

    fn volumes(&self, node: NodeId) -> Answer<'_, Vec<NodeVolume>> {
        self.answer(node, |script| {
            let volumes = script.volumes.iter().map(|(volume, content)| NodeVolume {
                volume: volume.clone(),
                used_bytes: content.len() as u64,
                is_larger: false,
                limit_bytes: None,
                created_unix_secs: Some(0),
                used_unix_secs: Some(60),
            });
            Ok(volumes.collect())
        })
    }

    fn remove_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, ()> {
        self.answer(node, |script| match script.volumes.remove(&volume) {
            Some(_) => Ok(()),
            None => Err(DoorError::NotFound(format!("there is no volume `{volume}` here"))),
        })
    }

    fn backup_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, VolumeBytes> {
        self.answer(node, |script| match script.volumes.get(&volume) {
            Some(content) => Ok(stream::iter([Ok(content.clone().into())]).boxed()),
            None => Err(DoorError::NotFound(format!("there is no volume `{volume}` here"))),
        })
    }

    fn restore_volume(&self, _node: NodeId, volume: VolumeName, bytes: VolumeBytes) -> Answer<'_, ()> {
        Box::pin(async move {
            let parts: Vec<bytes::Bytes> = bytes.try_collect().await?;
            self.script().volumes.insert(volume, parts.concat());
            Ok(())
        })
    }

    fn resolve_image(&self, name: String, _pull_policy: PullPolicy) -> Answer<'_, String> {
        let mut script = self.script();
        script.resolved.push(name.clone());
        let digest = script.digests.get(&name).cloned();
        let failed = || DoorError::Failed(format!("the registry of `{name}` does not answer"));
        let digest = digest.ok_or_else(failed);
        Box::pin(async move { digest })
    }

    fn net_check(&self, node: NodeId, _request: NetCheckRequest) -> Answer<'_, NetCheck> {
        self.answer(node, |script| {
            let failed = || DoorError::NotFound("no check is scripted".into());
            script.net_check.clone().ok_or_else(failed)
        })
    }

    fn figures(&self) -> Answer<'_, Vec<EndpointFigures>> {
        let figures = self.script().figures.clone();
        Box::pin(async move { Ok(figures) })
    }

    fn image_ports(&self, name: String) -> Answer<'_, Vec<ImagePort>> {
        let script = self.script();
        let tag = name.split('@').next().unwrap_or_default();
        let ports = script.ports.get(tag).cloned().unwrap_or_default();
        let failed = || DoorError::Failed(format!("the registry of `{name}` does not answer"));
        let ports = match script.digests.contains_key(tag) {
            true => Ok(ports),
            false => Err(failed()),
        };
        Box::pin(async move { ports })
    }
}
