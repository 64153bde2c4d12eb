//! A file that `docker save` wrote. Newer ones hold an OCI layout and are read as one; for older ones a
//! manifest is made from what they say, always the same for the same archive, so that it has a digest.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::archive_files::ArchiveFiles;
use super::layout::{LayoutSource, is_named};
use super::layout_files::LayoutFiles;
use crate::image::config;
use crate::image::digest::Digest;
use crate::image::error::{ImageError, Subject};
use crate::image::manifest::{
    Descriptor, MAX_CONFIG_BYTES, MAX_MANIFEST_BYTES, Manifest, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST,
};
use crate::image::reference::ArchiveRef;
use crate::image::room::Room;
use crate::image::store::{Store, StoreError};
use crate::image::unpack::{Decompressed, LayerInput};
use crate::image::work::Work;
use crate::regular_file;

const MANIFEST_FILE: &str = "manifest.json";
const LAYOUT_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";
/// A compressed archive is unpacked beside the store first; no image is larger than this.
const MAX_ARCHIVE_BYTES: u64 = 512 << 30;

const COPY_BUFFER_BYTES: usize = 128 << 10;
/// How much of it is written before the disk is looked at again.
const LOOK_AGAIN_BYTES: u64 = 1 << 20;

/// An archive of images, in either of its forms.
pub(crate) enum ArchiveSource {
    Layout(LayoutSource),
    Classic(ClassicArchive),
}

/// The older form: `manifest.json` names a configuration and layers for each image.
pub(crate) struct ClassicArchive {
    files: ArchiveFiles,
    images: Vec<ClassicImage>,
    tag: Option<String>,
    digest: Option<Digest>,
    subject: Subject,
}

struct ClassicImage {
    digest: Digest,
    manifest: Vec<u8>,
    config: Vec<u8>,
    /// Diff id and file of each layer.
    layers: Vec<(Digest, String)>,
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestEntry {
    config: String,
    #[serde(default)]
    layers: Vec<String>,
    /// Null where an image has none.
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
}

impl ArchiveSource {
    pub fn open(reference: &ArchiveRef, store: &Store, subject: Subject) -> Result<Self, ImageError> {
        let (path, tag) = place(reference);
        let path = &path;
        let file = regular_file::open(path).map_err(|error| subject.unreadable(path, error))?;
        let file = plain(file, store, &subject)?;
        let files = ArchiveFiles::scan(path, file)
            .map_err(|error| subject.bad_source(format!("it is no readable tar file ({error})")))?;
        if files.has(LAYOUT_FILE) && files.has(INDEX_FILE) {
            let files = LayoutFiles::Archive(files);
            return LayoutSource::in_files(files, tag, reference.digest, subject).map(Self::Layout);
        }
        ClassicArchive::open(files, tag, reference.digest, subject).map(Self::Classic)
    }

    /// The names that the archive has for an image.
    pub fn names(&self, digest: Digest) -> Vec<String> {
        match self {
            Self::Layout(layout) => layout.names(digest),
            Self::Classic(classic) => {
                let named = classic.images.iter().filter(|image| image.digest == digest);
                named.flat_map(|image| image.tags.clone()).collect()
            }
        }
    }

    pub fn resolve(&self) -> Result<Digest, ImageError> {
        match self {
            Self::Layout(layout) => layout.resolve(),
            Self::Classic(classic) => classic.resolve(),
        }
    }

    pub fn manifest(&self, digest: Digest) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Layout(layout) => layout.manifest(digest),
            Self::Classic(classic) => classic.image(digest).map(|image| image.manifest.clone()),
        }
    }

    pub fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Layout(layout) => layout.config(descriptor),
            Self::Classic(classic) => classic.config(descriptor.digest),
        }
    }

    pub fn layer(&self, descriptor: &Descriptor, work: &Work) -> Result<LayerInput, ImageError> {
        match self {
            Self::Layout(layout) => layout.layer(descriptor, work),
            Self::Classic(classic) => classic.layer(descriptor.digest),
        }
    }
}

impl ClassicArchive {
    fn open(
        files: ArchiveFiles,
        tag: Option<String>,
        digest: Option<Digest>,
        subject: Subject,
    ) -> Result<Self, ImageError> {
        let bytes = read(&files, MANIFEST_FILE, MAX_MANIFEST_BYTES, &subject)?;
        let entries: Vec<ManifestEntry> = serde_json::from_slice(&bytes)
            .map_err(|error| subject.bad_source(format!("its {MANIFEST_FILE} is malformed ({error})")))?;
        let images = entries
            .into_iter()
            .map(|entry| ClassicImage::read(&files, entry, &subject));
        let images = images.collect::<Result<_, _>>()?;
        Ok(Self {
            files,
            images,
            tag,
            digest,
            subject,
        })
    }

    fn resolve(&self) -> Result<Digest, ImageError> {
        if let Some(digest) = self.digest {
            return Ok(digest);
        }
        let wanted = |image: &&ClassicImage| {
            let tag = self.tag.as_deref();
            tag.is_none_or(|tag| image.tags.iter().any(|name| is_named(name, tag)))
        };
        let found: Vec<&ClassicImage> = self.images.iter().filter(wanted).collect();
        match found.as_slice() {
            [] => Err(self.subject.not_found()),
            [only] => Ok(only.digest),
            several => {
                let of = |image: &&ClassicImage| match image.tags.first() {
                    Some(tag) => format!(":{tag}"),
                    None => format!("@{}", image.digest),
                };
                let choices: Vec<_> = several.iter().map(of).collect();
                let detail = format!(
                    "it holds {} images; save one alone, or add one of these: {}",
                    several.len(),
                    choices.join(", ")
                );
                Err(self.subject.bad_source(detail))
            }
        }
    }

    fn image(&self, digest: Digest) -> Result<&ClassicImage, ImageError> {
        let found = self.images.iter().find(|image| image.digest == digest);
        found.ok_or_else(|| self.subject.not_found())
    }

    fn config(&self, digest: Digest) -> Result<Vec<u8>, ImageError> {
        let found = self
            .images
            .iter()
            .find(|image| Digest::of(&image.config) == digest);
        found
            .map(|image| image.config.clone())
            .ok_or_else(|| self.subject.not_found())
    }

    /// A layer by its diff id, which unpacking checks.
    fn layer(&self, diff_id: Digest) -> Result<LayerInput, ImageError> {
        let mut layers = self.images.iter().flat_map(|image| &image.layers);
        let (_, name) = layers
            .find(|(id, _)| *id == diff_id)
            .ok_or_else(|| self.subject.not_found())?;
        let opened = self.files.open(name).map(|(reader, _)| reader);
        opened.map_err(|error| self.subject.unreadable(&self.files.path().join(name), error))
    }
}

impl ClassicImage {
    fn read(files: &ArchiveFiles, entry: ManifestEntry, subject: &Subject) -> Result<Self, ImageError> {
        let config = read(files, &entry.config, MAX_CONFIG_BYTES, subject)?;
        let (_, diff_ids) = config::parse(&config)
            .map_err(|error| subject.bad_source(format!("its {} is malformed ({error})", entry.config)))?;
        if diff_ids.len() != entry.layers.len() {
            return Err(subject.bad_source(format!("its {MANIFEST_FILE} and {} disagree", entry.config)));
        }
        let describe = |media_type: &str, digest, size| Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            platform: None,
            annotations: Default::default(),
        };
        let mut layers = Vec::new();
        let mut described = Vec::new();
        for (diff_id, name) in diff_ids.into_iter().zip(entry.layers) {
            let opened = files.open(&name);
            let (_, size_bytes) =
                opened.map_err(|error| subject.unreadable(&files.path().join(&name), error))?;
            described.push(describe(OCI_LAYER, diff_id, size_bytes));
            layers.push((diff_id, name));
        }
        let manifest = Manifest {
            schema_version: 2,
            media_type: OCI_MANIFEST.to_owned(),
            config: describe(OCI_CONFIG, Digest::of(&config), config.len() as u64),
            layers: described,
        };
        let manifest = serde_json::to_vec(&manifest)
            .map_err(|error| subject.bad_source(format!("no manifest can be made for it ({error})")))?;
        Ok(Self {
            digest: Digest::of(&manifest),
            manifest,
            config,
            layers,
            tags: entry.repo_tags.unwrap_or_default(),
        })
    }
}

/// The file and the name of an image in it. A colon may belong to the file's own name: the longest that is there counts.
fn place(reference: &ArchiveRef) -> (PathBuf, Option<String>) {
    let parsed = (reference.file.clone(), reference.tag.clone());
    let (Some(file), Some(tag)) = (reference.file.to_str(), &reference.tag) else {
        return parsed;
    };
    let whole = format!("{file}:{tag}");
    if Path::new(&whole).is_file() {
        return (whole.into(), None);
    }
    let splits = whole
        .rmatch_indices(':')
        .map(|(position, _)| whole.split_at(position));
    let mut there = splits.filter(|(file, _)| Path::new(file).is_file());
    match there.next() {
        Some((file, tag)) => (file.into(), Some(tag.trim_start_matches(':').to_owned())),
        None => parsed,
    }
}

fn read(files: &ArchiveFiles, name: &str, max_bytes: u64, subject: &Subject) -> Result<Vec<u8>, ImageError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            subject.bad_source(format!("it has no {name}; was it made by `docker save`?"))
        }
        _ => subject.unreadable(&files.path().join(name), error),
    };
    let (reader, size_bytes) = files.open(name).map_err(unreadable)?;
    if size_bytes > max_bytes {
        return Err(subject.bad_source(format!("its {name} is larger than {max_bytes} bytes")));
    }
    let mut bytes = Vec::new();
    reader
        .take(max_bytes)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

/// The archive uncompressed: the file itself, or a nameless copy in the store's temporary directory.
fn plain(file: File, store: &Store, subject: &Subject) -> Result<File, ImageError> {
    let bad = |error: io::Error| subject.bad_source(format!("it cannot be read ({error})"));
    let again = file.try_clone().map_err(bad)?;
    let stream = Decompressed::new(Box::new(file)).map_err(bad)?;
    if stream.is_plain() {
        return Ok(again);
    }
    let path = store
        .tmp_dir()
        .join(format!("archive-{:016x}", rand::random::<u64>()));
    let failed = |error| subject.store(StoreError::io("write", &path, error));
    let mut copy = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    let mut limited = stream.take(MAX_ARCHIVE_BYTES);
    let room = Room::of(store.tmp_dir());
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    let mut left = 0;
    loop {
        // How large it becomes is seen at its end only: it is looked at the disk again and again.
        if left < COPY_BUFFER_BYTES as u64 {
            room.check(LOOK_AGAIN_BYTES)
                .map_err(|error| subject.store(error))?;
            left = LOOK_AGAIN_BYTES;
        }
        match limited.read(&mut buffer).map_err(bad)? {
            0 => break,
            count => {
                copy.write_all(&buffer[..count]).map_err(failed)?;
                left -= count as u64;
            }
        }
    }
    copy.rewind().map_err(failed)?;
    Ok(copy)
}
