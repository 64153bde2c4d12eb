//! The images of this node, for the API.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dhow_core::spec::PullPolicy;
use dhow_driver::driver::error_chain;
use dhow_driver::image::{
    Digest, ImageError, ImageRef, Images, PortProtocol, PruneOptions, PruneReport, PullPhase,
};
use dhow_server::net::node_door::{DoorError, ImagePort, PullStep, PullSteps};
use dhow_wire::api::{ImageImportRequest, ImageInfo, ImageName, ImagesRemoved, PullProgress, PullState};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;

/// Tells which images replicas of this node use, or why that is not known.
pub type UsedImages = dyn Fn() -> BoxFuture<'static, Result<BTreeSet<Digest>, String>> + Send + Sync;

/// The images of this node as the API lists, pulls, imports and removes them; or the reason why this node has none.
#[derive(Clone)]
pub struct ImageDoor {
    /// Or why this node has none.
    images: Result<Images, String>,
    used: Arc<UsedImages>,
}

impl ImageDoor {
    pub fn new(images: Images, used: Arc<UsedImages>) -> Self {
        Self {
            images: Ok(images),
            used,
        }
    }

    /// For a node that has none, and why.
    pub fn without(why: String) -> Self {
        Self {
            images: Err(why),
            used: Arc::new(|| Box::pin(async { Ok(BTreeSet::new()) })),
        }
    }

    async fn used(&self) -> Result<BTreeSet<Digest>, DoorError> {
        (self.used)().await.map_err(DoorError::Failed)
    }

    fn store(&self) -> Result<&Images, DoorError> {
        self.images
            .as_ref()
            .map_err(|why| DoorError::NotSupported(why.clone()))
    }

    pub async fn list(&self) -> Result<Vec<ImageInfo>, DoorError> {
        let listed = self.store()?.list().await.map_err(failed)?;
        let used = self.used().await?;
        let infos = listed.into_iter().flat_map(|image| {
            let in_use = used.contains(&image.digest);
            let digest = image.digest.to_string();
            let names: Vec<String> = match image.references.is_empty() {
                true => vec!["<none>".to_owned()],
                false => image.references.iter().map(ImageRef::familiar).collect(),
            };
            let (size_bytes, last_used_unix_secs) = (image.size_bytes, unix_secs(image.last_used));
            names.into_iter().map(move |name| ImageInfo {
                name,
                digest: digest.clone(),
                size_bytes,
                last_used_unix_secs,
                in_use,
            })
        });
        Ok(infos.collect())
    }

    pub fn pull(&self, image: &str) -> Result<PullSteps, DoorError> {
        let reference = parse(image)?;
        let pull = self.store()?.pull(&reference);
        let progress = pull.progress();
        let waiting: BoxFuture<'static, _> = Box::pin(pull.wait());
        let name = reference.familiar();
        let steps = futures_util::stream::unfold(Some((progress, waiting)), move |state| {
            let name = name.clone();
            async move {
                let (mut progress, mut waiting) = state?;
                tokio::select! {
                    biased;
                    done = &mut waiting => {
                        let step = done.map_err(failed).map(|image| {
                            let digest = image.digest().to_string();
                            PullStep::Done(ImageName {
                                name,
                                digest,
                                other_names: Vec::new(),
                            })
                        });
                        Some((step, None))
                    }
                    Ok(()) = progress.changed() => {
                        let now = *progress.borrow_and_update();
                        let step = PullStep::Progress(PullProgress {
                            state: match now.phase {
                                PullPhase::Resolving => PullState::Resolving,
                                PullPhase::Transferring => PullState::Pulling,
                                PullPhase::Complete => PullState::Ready,
                            },
                            done_bytes: now.done_bytes,
                            total_bytes: (now.total_bytes > 0).then_some(now.total_bytes),
                        });
                        Some((Ok(step), Some((progress, waiting))))
                    }
                }
            }
        });
        Ok(steps.boxed())
    }

    pub async fn import(&self, request: ImageImportRequest) -> Result<ImageName, DoorError> {
        let name = request.name.as_deref().map(own_name).transpose()?;
        let path = request.path;
        let source = tokio::task::spawn_blocking(move || source_at(&path)).await;
        let source = source.map_err(|error| DoorError::Failed(error.to_string()))?;
        let imported = self
            .store()?
            .import(&parse(&source)?, name)
            .await
            .map_err(failed)?;
        let mut names = imported.names.iter().map(ImageRef::familiar);
        Ok(ImageName {
            name: names.next().unwrap_or(source),
            digest: imported.image.digest().to_string(),
            other_names: names.collect(),
        })
    }

    /// By a name, a whole digest or the beginning of one, as listings show it.
    pub async fn remove(&self, name: &str) -> Result<ImagesRemoved, DoorError> {
        let (images, used) = (self.store()?, self.used().await?);
        let report = match self.by_digest(name).await? {
            Some(image) => images.remove_image(image, &used).await,
            None => images.remove(&parse(name)?, &used).await,
        };
        Ok(removed(report.map_err(failed)?))
    }

    /// The image whose digest begins like this; none where the text is no digest, or a name.
    async fn by_digest(&self, text: &str) -> Result<Option<Digest>, DoorError> {
        const HEX_MIN: usize = 6;
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let is_hex =
            hex.len() >= HEX_MIN && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex {
            return Ok(None);
        }
        let images = self.store()?;
        let is_name = match ImageRef::parse(text) {
            Ok(reference) => images.find(&reference).await.map_err(failed)?.is_some(),
            Err(_) => false,
        };
        let listed = images.list().await.map_err(failed)?;
        let mut found = listed
            .iter()
            .map(|image| image.digest)
            .filter(|digest| digest.hex().starts_with(hex));
        match (is_name, found.next(), found.next()) {
            (true, _, _) | (false, None, _) => Ok(None),
            (false, Some(only), None) => Ok(Some(only)),
            (false, Some(_), Some(_)) => Err(DoorError::Invalid(format!(
                "several images begin with {hex}: write more of the digest"
            ))),
        }
    }

    pub async fn prune(&self) -> Result<ImagesRemoved, DoorError> {
        let options = PruneOptions {
            in_use: self.used().await?,
            ..PruneOptions::default()
        };
        let report = self.store()?.prune(&options).await.map_err(failed)?;
        Ok(removed(report))
    }

    /// What a name means now. With `never` only what is here counts.
    pub async fn resolve(&self, name: &str, policy: PullPolicy) -> Result<String, DoorError> {
        let reference = parse(name)?;
        let images = self.store()?;
        let here = match policy {
            PullPolicy::Always => None,
            PullPolicy::IfNotPresent | PullPolicy::Never => images.find(&reference).await.map_err(failed)?,
        };
        match (here, policy) {
            (Some(image), _) => Ok(image.digest().to_string()),
            (None, PullPolicy::Never) => {
                Err(DoorError::NotFound(format!("image `{name}` is not on this node")))
            }
            (None, PullPolicy::Always | PullPolicy::IfNotPresent) => {
                let digest = images.resolve(&reference).await.map_err(failed)?;
                Ok(digest.to_string())
            }
        }
    }

    /// The ports that an image says it listens on, as far as endpoints can have them.
    pub async fn ports(&self, name: &str) -> Result<Vec<ImagePort>, DoorError> {
        let config = self.store()?.config(&parse(name)?).await.map_err(failed)?;
        let ports = config.exposed_ports.into_iter().filter_map(|exposed| {
            let is_udp = match exposed.protocol {
                PortProtocol::Tcp => false,
                PortProtocol::Udp => true,
                PortProtocol::Sctp => return None,
            };
            let port = exposed.port;
            Some(ImagePort { port, is_udp })
        });
        Ok(ports.collect())
    }
}

/// What people call an image: a reference as for a registry, without a digest.
fn own_name(text: &str) -> Result<ImageRef, DoorError> {
    match parse(text)? {
        name @ ImageRef::Registry(_) if name.digest().is_none() => Ok(name),
        ImageRef::Registry(_) | ImageRef::OciLayout(_) | ImageRef::DockerArchive(_) => {
            Err(DoorError::Invalid(format!(
                "`{text}` cannot be the name of an imported image: write one such as `shop:1`"
            )))
        }
    }
}

/// The reference of a path: a directory is a layout, anything else an archive; behind either a tag may stand.
fn source_at(path: &str) -> String {
    use std::path::Path;
    let layout = |path: &str| Path::new(path).is_dir();
    match path.rsplit_once(':') {
        _ if layout(path) => format!("oci:{path}"),
        Some((dir, tag)) if !tag.contains('/') && layout(dir) => format!("oci:{path}"),
        Some(_) | None => format!("docker-archive:{path}"),
    }
}

fn parse(image: &str) -> Result<ImageRef, DoorError> {
    ImageRef::parse(image).map_err(|error| DoorError::Invalid(error_chain(&error)))
}

fn failed(error: ImageError) -> DoorError {
    let text = error_chain(&error);
    match error {
        ImageError::NotHere { .. } => DoorError::NotFound(text),
        ImageError::InUse { .. } => DoorError::Refused(text),
        _ => DoorError::Failed(text),
    }
}

fn removed(report: PruneReport) -> ImagesRemoved {
    ImagesRemoved {
        removed: report.images.iter().map(ToString::to_string).collect(),
        freed_bytes: report.freed_bytes,
        untagged: report.untagged.iter().map(ImageRef::familiar).collect(),
        kept_as: report.kept_as.iter().map(ImageRef::familiar).collect(),
    }
}

fn unix_secs(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}
