//! Image references as people write them: `nginx:1.27`, `registry:5000/a/b:tag`, `name@sha256:…`,
//! `oci:<layout dir>[:tag]`, `docker-archive:<file>[:name]`. Parsing follows Docker's defaults (Docker Hub,
//! `library/`, `latest`). Called wherever a reference enters; it looks nothing up and touches no file.

mod error;
mod registry_ref;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::digest::Digest;
use super::origin::Origin;
pub use error::ReferenceError;
pub use registry_ref::RegistryRef;

const OCI_PREFIX: &str = "oci:";
const ARCHIVE_PREFIX: &str = "docker-archive:";

/// The longest reference accepted: a path of 4,096 bytes, a tag of 128 and a digest fit with room to spare.
const MAX_REFERENCE_BYTES: usize = 4_608;

/// A parsed reference; [`fmt::Display`] writes it in full, in the form that parses back to the same value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageRef {
    Registry(RegistryRef),
    OciLayout(LayoutRef),
    DockerArchive(ArchiveRef),
}

/// An image in an OCI layout directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutRef {
    pub dir: PathBuf,
    /// Without one the layout must hold a single image.
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

/// An image in a file that `docker save` wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArchiveRef {
    pub file: PathBuf,
    /// A name that the archive has for the image; without one, and without a digest, it must hold a single image.
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

impl ImageRef {
    /// Reads a reference; the error says what is wrong and what was probably meant.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() > MAX_REFERENCE_BYTES {
            return Err(ReferenceError::TooLong {
                length_bytes: text.len(),
                max_bytes: MAX_REFERENCE_BYTES,
            });
        }
        if let Some(bad) = text.chars().find(|c| c.is_control() || c.is_whitespace()) {
            return Err(ReferenceError::Character {
                text: text.to_owned(),
                character: bad,
            });
        }
        if let Some(rest) = text.strip_prefix(OCI_PREFIX) {
            return LayoutRef::parse(text, rest).map(Self::OciLayout);
        }
        if let Some(rest) = text.strip_prefix(ARCHIVE_PREFIX) {
            return ArchiveRef::parse(text, rest).map(Self::DockerArchive);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(ReferenceError::Scheme {
                scheme: scheme.to_owned(),
                rest: rest.to_owned(),
            });
        }
        RegistryRef::parse(text).map(Self::Registry)
    }

    /// The digest that the reference names, if it is pinned.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::Registry(reference) => reference.digest,
            Self::OciLayout(reference) => reference.digest,
            Self::DockerArchive(reference) => reference.digest,
        }
    }

    /// The same reference, pinned to this digest. Pulling it gives these bytes or an error, on any node.
    pub fn pinned(&self, digest: Digest) -> Self {
        let mut pinned = self.clone();
        match &mut pinned {
            Self::Registry(reference) => reference.digest = Some(digest),
            Self::OciLayout(reference) => reference.digest = Some(digest),
            Self::DockerArchive(reference) => reference.digest = Some(digest),
        }
        pinned
    }

    /// The same reference without a digest: the name as people type it.
    pub fn unpinned(&self) -> Self {
        let mut unpinned = self.clone();
        match &mut unpinned {
            Self::Registry(reference) => reference.digest = None,
            Self::OciLayout(reference) => reference.digest = None,
            Self::DockerArchive(reference) => reference.digest = None,
        }
        unpinned
    }

    /// Where the image comes from.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Registry(reference) => Origin::Registry(reference.registry.clone()),
            Self::OciLayout(reference) => Origin::Layout(reference.dir.clone()),
            Self::DockerArchive(reference) => Origin::Archive(reference.file.clone()),
        }
    }

    /// The short form that people write: `nginx:1.27` rather than `docker.io/library/nginx:1.27`.
    pub fn familiar(&self) -> String {
        match self {
            Self::Registry(reference) => reference.familiar(),
            Self::OciLayout(_) | Self::DockerArchive(_) => self.to_string(),
        }
    }
}

impl LayoutRef {
    fn parse(text: &str, rest: &str) -> Result<Self, ReferenceError> {
        let (rest, digest) = split_digest(rest)?;
        // A colon after the last slash separates the tag; a tag never holds a slash.
        let (dir, tag) = match rest.rsplit_once(':') {
            Some((dir, tag)) if !tag.contains('/') => (dir, Some(tag)),
            Some(_) | None => (rest, None),
        };
        if dir.is_empty() {
            return Err(ReferenceError::NoPath {
                text: text.to_owned(),
                what: "the layout directory",
            });
        }
        if let Some(tag) = tag {
            registry_ref::check_tag(text, tag)?;
        }
        Ok(Self {
            dir: PathBuf::from(dir),
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

impl ArchiveRef {
    fn parse(text: &str, rest: &str) -> Result<Self, ReferenceError> {
        let (rest, digest) = split_digest(rest)?;
        // What follows the first colon is a name, which may hold more of them. Where the file's own name has one, it
        // is found when the file is opened.
        let (file, tag) = match rest.split_once(':') {
            Some((file, tag)) if !tag.is_empty() => (file, Some(tag.to_owned())),
            Some(_) | None => (rest, None),
        };
        if file.is_empty() {
            return Err(ReferenceError::NoPath {
                text: text.to_owned(),
                what: "the archive file",
            });
        }
        Ok(Self {
            file: PathBuf::from(file),
            tag,
            digest,
        })
    }
}

/// Takes a digest off the end. Only `@sha256:` starts one in a path, since a path may hold other `@`.
fn split_digest(text: &str) -> Result<(&str, Option<Digest>), ReferenceError> {
    match text.rsplit_once("@sha256:") {
        Some((rest, _)) => Ok((rest, Some(text[rest.len() + 1..].parse()?))),
        None => Ok((text, None)),
    }
}

impl FromStr for ImageRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Self::parse(text)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = match self {
            Self::Registry(reference) => return reference.fmt(f),
            Self::OciLayout(reference) => {
                write!(f, "{OCI_PREFIX}{}", reference.dir.display())?;
                if let Some(tag) = &reference.tag {
                    write!(f, ":{tag}")?;
                }
                reference.digest
            }
            Self::DockerArchive(reference) => {
                write!(f, "{ARCHIVE_PREFIX}{}", reference.file.display())?;
                if let Some(tag) = &reference.tag {
                    write!(f, ":{tag}")?;
                }
                reference.digest
            }
        };
        match digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl Serialize for ImageRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
