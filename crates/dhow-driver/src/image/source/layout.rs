//! An OCI image layout: `index.json` and blobs by digest.

use std::io::Read;

use super::layout_files::{LayoutFiles, blob_name};
use crate::image::digest::{Digest, DigestHasher};
use crate::image::error::{ImageError, Subject};
use crate::image::manifest::{Descriptor, Index, MAX_CONFIG_BYTES, MAX_MANIFEST_BYTES};
use crate::image::reference::{ImageRef, LayoutRef};
use crate::image::unpack::LayerInput;
use crate::image::work::Work;

const INDEX_FILE: &str = "index.json";
/// Where layouts keep an image's tag.
const TAG_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Where newer ones keep its whole name.
const NAME_ANNOTATION: &str = "io.containerd.image.name";
const HASH_BUFFER_BYTES: usize = 128 << 10;

/// An OCI layout, in a directory or in an archive, and the image of it that is meant.
pub(crate) struct LayoutSource {
    files: LayoutFiles,
    tag: Option<String>,
    digest: Option<Digest>,
    index: Index,
    subject: Subject,
}

impl LayoutSource {
    pub fn open(reference: &LayoutRef, subject: Subject) -> Result<Self, ImageError> {
        let files = LayoutFiles::Dir(reference.dir.clone());
        Self::in_files(files, reference.tag.clone(), reference.digest, subject)
    }

    pub(super) fn in_files(
        files: LayoutFiles,
        tag: Option<String>,
        digest: Option<Digest>,
        subject: Subject,
    ) -> Result<Self, ImageError> {
        let bytes = files.read(INDEX_FILE, MAX_MANIFEST_BYTES);
        let bytes = bytes.map_err(|error| subject.unreadable(&files.place(INDEX_FILE), error))?;
        let index = serde_json::from_slice(&bytes)
            .map_err(|error| subject.bad_source(format!("its {INDEX_FILE} is malformed ({error})")))?;
        Ok(Self {
            files,
            tag,
            digest,
            index,
            subject,
        })
    }

    pub fn resolve(&self) -> Result<Digest, ImageError> {
        if let Some(digest) = self.digest {
            return Ok(digest);
        }
        let entries: Vec<_> = match &self.tag {
            Some(tag) => self
                .index
                .manifests
                .iter()
                .filter(|entry| is_tagged(entry, tag))
                .collect(),
            None => self.index.manifests.iter().collect(),
        };
        match entries.as_slice() {
            [] => Err(self.subject.not_found()),
            [first, rest @ ..] if rest.iter().all(|entry| entry.digest == first.digest) => Ok(first.digest),
            // One image for several platforms may be spread over the index itself.
            several if several.iter().all(|entry| entry.platform.is_some()) => self.by_platform(),
            several => {
                let tags: Vec<_> = several.iter().filter_map(|entry| tag_of(entry)).collect();
                let detail = format!(
                    "it holds several images ({}); name one by its tag",
                    tags.join(", ")
                );
                Err(self.subject.bad_source(detail))
            }
        }
    }

    /// The whole names that the layout has for an image; a bare tag is none.
    pub fn names(&self, digest: Digest) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let entries = self.index.manifests.iter();
        for name in entries.filter(|entry| entry.digest == digest).flat_map(names_of) {
            if name.contains([':', '/']) && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn by_platform(&self) -> Result<Digest, ImageError> {
        let wanted = crate::image::Platform::host();
        let tagged = |entry: &&Descriptor| self.tag.as_ref().is_none_or(|tag| is_tagged(entry, tag));
        let manifests = self.index.manifests.iter().filter(tagged).cloned().collect();
        let index = Index {
            manifests,
            ..self.index.clone()
        };
        let chosen = index.choose(&wanted).map(|entry| entry.digest);
        chosen.map_err(|offered| ImageError::NoPlatform {
            image: self.subject.image.clone(),
            origin: self.subject.origin.clone(),
            wanted: Box::new(wanted),
            offered,
        })
    }

    pub fn manifest(&self, digest: Digest) -> Result<Vec<u8>, ImageError> {
        self.blob("the manifest", digest, MAX_MANIFEST_BYTES)
    }

    pub fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.blob("the configuration", descriptor.digest, MAX_CONFIG_BYTES)
    }

    fn blob(&self, what: &'static str, digest: Digest, max_bytes: u64) -> Result<Vec<u8>, ImageError> {
        let name = blob_name(&digest);
        let bytes = self.files.read(&name, max_bytes);
        let bytes = bytes.map_err(|error| self.subject.unreadable(&self.files.place(&name), error))?;
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(self.subject.wrong_digest(what, digest, found));
        }
        Ok(bytes)
    }

    /// The layer's file, after its whole content was checked.
    pub fn layer(&self, descriptor: &Descriptor, work: &Work) -> Result<LayerInput, ImageError> {
        let name = blob_name(&descriptor.digest);
        let unreadable = |error| self.subject.unreadable(&self.files.place(&name), error);
        let (mut reader, size_bytes) = self.files.open(&name).map_err(unreadable)?;
        if size_bytes != descriptor.size {
            return Err(self.subject.wrong_size("a layer", descriptor.size, size_bytes));
        }
        let mut hasher = DigestHasher::default();
        let mut buffer = vec![0; HASH_BUFFER_BYTES];
        loop {
            if work.is_cancelled() {
                return Err(self.subject.cancelled());
            }
            match reader.read(&mut buffer).map_err(unreadable)? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        let found = hasher.finish();
        if found != descriptor.digest {
            return Err(self.subject.wrong_digest("a layer", descriptor.digest, found));
        }
        self.files
            .open(&name)
            .map(|(reader, _)| reader)
            .map_err(unreadable)
    }
}

fn tag_of(entry: &Descriptor) -> Option<&str> {
    entry.annotations.get(TAG_ANNOTATION).map(String::as_str)
}

/// The names that an entry has: some tools write the bare tag, others the whole reference, or both in two places.
fn names_of(entry: &Descriptor) -> impl Iterator<Item = &str> {
    let places = [NAME_ANNOTATION, TAG_ANNOTATION];
    let found = places
        .into_iter()
        .filter_map(|place| entry.annotations.get(place));
    found.map(String::as_str)
}

fn is_tagged(entry: &Descriptor, tag: &str) -> bool {
    names_of(entry).any(|name| is_named(name, tag))
}

/// Whether a name that a source gives is the one that was asked for: the same text, the same image in short and in
/// full, or the tag alone.
pub(super) fn is_named(name: &str, wanted: &str) -> bool {
    let in_full = |text: &str| ImageRef::parse(text).ok().map(|reference| reference.to_string());
    name == wanted
        || name.rsplit_once(':').is_some_and(|(_, tag)| tag == wanted)
        || (wanted.contains([':', '/']) && in_full(name).is_some_and(|full| in_full(wanted) == Some(full)))
}
