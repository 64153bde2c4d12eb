//! The volumes of this node, for the API.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::{Buf, Bytes};
use dhow_agent::AgentHandle;
use dhow_driver::driver::error_chain;
use dhow_driver::volume::{VolumeError, Volumes};
use dhow_server::net::node_door::{DoorError, NodeVolume, VolumeBytes, VolumeName};
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

/// Parts of an archive that wait for a slow reader: 16 of 64 KiB are 1 MiB.
const PARTS_MAX: usize = 16;
const PART_BYTES: usize = 64 * 1024;
/// Archives that are written or unpacked at a time: each has a thread, and the disk is one.
const ARCHIVES_MAX: usize = 4;

/// The volumes of this node as the API lists, removes, copies and restores them.
#[derive(Clone)]
pub struct VolumeDoor {
    volumes: Volumes,
    agent: AgentHandle,
    archives: Arc<Semaphore>,
}

impl VolumeDoor {
    pub fn new(volumes: Volumes, agent: AgentHandle) -> Self {
        Self {
            volumes,
            agent,
            archives: Arc::new(Semaphore::new(ARCHIVES_MAX)),
        }
    }

    pub async fn list(&self) -> Result<Vec<NodeVolume>, DoorError> {
        let volumes = self.volumes.clone();
        let listed = blocking(move || volumes.list()).await?;
        let told = listed.into_iter().map(|found| NodeVolume {
            volume: VolumeName {
                deployment: found.deployment,
                name: found.name,
            },
            used_bytes: found.used_bytes,
            is_larger: found.is_larger,
            limit_bytes: found.limit_bytes,
            created_unix_secs: found.created_unix_secs,
            used_unix_secs: found.used_unix_secs,
        });
        Ok(told.collect())
    }

    pub async fn remove(&self, volume: VolumeName) -> Result<(), DoorError> {
        let this = self.clone();
        let runtime = Handle::current();
        blocking(move || {
            let is_used = || runtime.block_on(this.users(&volume));
            this.volumes.remove(&volume.deployment, &volume.name, is_used)
        })
        .await
    }

    /// The replicas that use it, or may.
    async fn users(&self, volume: &VolumeName) -> Vec<String> {
        let present = self.agent.present().await.into_iter();
        let uses = present.filter(|replica| {
            let may_mount = match &replica.volumes {
                Some(volumes) => volumes.contains(&volume.name),
                None => true,
            };
            may_mount
                && !replica.machine.state.is_ended()
                && replica.name.deployment.as_str() == volume.deployment
        });
        uses.map(|replica| replica.name.id()).collect()
    }

    pub async fn backup(&self, volume: VolumeName) -> Result<VolumeBytes, DoorError> {
        let permit = self.permit()?;
        let volumes = self.volumes.clone();
        let has = {
            let (volumes, volume) = (volumes.clone(), volume.clone());
            blocking(move || volumes.has(&volume.deployment, &volume.name)).await?
        };
        if !has {
            return Err(failed(VolumeError::NotHere(volume.to_string())));
        }
        let (parts, mut written) = mpsc::channel(PARTS_MAX);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let output = io::BufWriter::with_capacity(PART_BYTES, Parts(parts.clone()));
            if let Err(error) = volumes.archive(&volume.deployment, &volume.name, output) {
                // Whoever reads may have gone.
                let _ = parts.blocking_send(Err(failed(error)));
            }
        });
        Ok(futures_util::stream::poll_fn(move |context| written.poll_recv(context)).boxed())
    }

    pub async fn restore(&self, volume: VolumeName, mut bytes: VolumeBytes) -> Result<(), DoorError> {
        let permit = self.permit()?;
        let (sender, received) = mpsc::channel(PARTS_MAX);
        let this = self.clone();
        let runtime = Handle::current();
        let unpacking = blocking(move || {
            let _permit = permit;
            let is_used = || runtime.block_on(this.users(&volume));
            let input = Received {
                parts: received,
                part: Bytes::new(),
                is_over: false,
            };
            let never = AtomicBool::new(false);
            this.volumes
                .restore(&volume.deployment, &volume.name, input, &never, is_used)
        });
        let sending = async move {
            let mut is_refused = false;
            while let Some(part) = bytes.next().await {
                let is_broken = part.is_err();
                // What was refused is read to its end all the same: whoever sends it then hears why.
                is_refused = is_refused || sender.send(Some(part)).await.is_err();
                if is_broken {
                    return;
                }
            }
            // That all was sent is said, so that a sender that is gone is no end.
            let _ = sender.send(None).await;
        };
        let (unpacked, ()) = tokio::join!(unpacking, sending);
        unpacked
    }

    fn permit(&self) -> Result<tokio::sync::OwnedSemaphorePermit, DoorError> {
        let permit = Arc::clone(&self.archives).try_acquire_owned();
        permit.map_err(|_| {
            DoorError::Refused(format!(
                "{ARCHIVES_MAX} archives of volumes are on their way here already: try again later"
            ))
        })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, DoorError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| DoorError::Failed(error.to_string()))?
        .map_err(failed)
}

fn failed(error: VolumeError) -> DoorError {
    let text = error_chain(&error);
    match error {
        VolumeError::NotHere(_) => DoorError::NotFound(text),
        VolumeError::InUse { .. } => DoorError::Refused(text),
        VolumeError::BadName(_)
        | VolumeError::Entry { .. }
        | VolumeError::TooLarge { .. }
        | VolumeError::CutOff
        | VolumeError::Unpack(_) => DoorError::Invalid(text),
        VolumeError::NoSizes { .. } => DoorError::NotSupported(text),
        VolumeError::File { .. } | VolumeError::Write(_) => DoorError::Failed(text),
    }
}

/// The writing end of an archive: a thread that waits for who reads it.
struct Parts(mpsc::Sender<Result<Bytes, DoorError>>);

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = Bytes::copy_from_slice(bytes);
        let sent = self.0.blocking_send(Ok(part));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reading end of an archive: a thread that waits for who sends it.
struct Received {
    parts: mpsc::Receiver<Option<Result<Bytes, DoorError>>>,
    part: Bytes,
    is_over: bool,
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() && !self.is_over {
            match self.parts.blocking_recv() {
                Some(Some(Ok(part))) => self.part = part,
                Some(None) => self.is_over = true,
                Some(Some(Err(error))) => return Err(io::Error::other(error)),
                None => return Err(io::Error::other("whoever sent the archive is gone")),
            }
        }
        let count = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
