//! The registry form of a reference, with Docker's defaults.

use std::fmt;

use super::super::digest::Digest;
use super::ReferenceError;

/// Docker Hub's name in references, and the host that speaks its API.
const HUB: &str = "docker.io";
const HUB_API: &str = "registry-1.docker.io";
const HUB_ALIASES: [&str; 2] = ["index.docker.io", HUB_API];
const HUB_NAMESPACE: &str = "library/";
const DEFAULT_TAG: &str = "latest";
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryRef {
    /// Host and optional port as the user knows it; Docker Hub is `docker.io`.
    pub registry: String,
    /// The full path, `library/` included.
    pub repository: String,
    /// None only where a digest stands alone.
    pub tag: Option<String>,
    /// Decides when both are given; the tag then is for people.
    pub digest: Option<Digest>,
}

impl RegistryRef {
    pub(super) fn parse(text: &str) -> Result<Self, ReferenceError> {
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest.parse()?)),
            None => (text, None),
        };
        let (name, tag) = match named.rsplit_once(':') {
            // A colon before a slash is a port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            Some(_) | None => (named, None),
        };
        if let Some(tag) = tag {
            check_tag(text, tag)?;
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if is_host(first) => (first.to_ascii_lowercase(), rest),
            Some(_) | None => (HUB.to_owned(), name),
        };
        check_host(text, &registry)?;
        let registry = if HUB_ALIASES.contains(&registry.as_str()) {
            HUB.to_owned()
        } else {
            registry
        };
        let repository = if registry == HUB && !path.contains('/') {
            format!("{HUB_NAMESPACE}{path}")
        } else {
            path.to_owned()
        };
        check_repository(text, path, &repository)?;
        let tag = match (tag, digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (None, Some(_)) => None,
        };
        Ok(Self {
            registry,
            repository,
            tag,
            digest,
        })
    }

    /// Host and port that the registry's API is asked at.
    pub fn api_host(&self) -> &str {
        if self.registry == HUB {
            HUB_API
        } else {
            &self.registry
        }
    }

    pub(super) fn familiar(&self) -> String {
        let full = self.to_string();
        let Some(rest) = full.strip_prefix("docker.io/") else {
            return full;
        };
        rest.strip_prefix(HUB_NAMESPACE).unwrap_or(rest).to_owned()
    }
}

impl fmt::Display for RegistryRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Docker's rule for the first part of a name: a host has a dot, a port or upper case, or is `localhost`.
fn is_host(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn check_host(text: &str, registry: &str) -> Result<(), ReferenceError> {
    let refused = || ReferenceError::Registry {
        text: text.to_owned(),
        registry: registry.to_owned(),
    };
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or_else(refused)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| refused())?;
            match after {
                "" => return Ok(()),
                after => (None, Some(after.strip_prefix(':').ok_or_else(refused)?)),
            }
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), None),
        },
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err() || port.starts_with('+')) {
        return Err(refused());
    }
    let Some(host) = host else { return Ok(()) };
    let well_formed = host.split('.').all(|label| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    });
    if well_formed { Ok(()) } else { Err(refused()) }
}

fn check_repository(text: &str, written: &str, repository: &str) -> Result<(), ReferenceError> {
    if repository.len() > MAX_REPOSITORY_BYTES {
        return Err(ReferenceError::RepositoryTooLong {
            text: text.to_owned(),
            max_bytes: MAX_REPOSITORY_BYTES,
        });
    }
    if written.bytes().any(|b| b.is_ascii_uppercase()) {
        let suggestion = text.replacen(written, &written.to_ascii_lowercase(), 1);
        return Err(ReferenceError::UpperCase {
            text: text.to_owned(),
            suggestion,
        });
    }
    if repository.split('/').all(is_path_part) {
        return Ok(());
    }
    Err(ReferenceError::Repository {
        text: text.to_owned(),
        repository: written.to_owned(),
    })
}

/// Letters and digits, with single `.`, one or two `_`, or any number of `-` between them.
fn is_path_part(part: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !is_letter(*first) || !is_letter(*last) {
        return false;
    }
    bytes.split(|b| is_letter(*b)).all(|separator| {
        matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|b| *b == b'-')
    })
}

pub(super) fn check_tag(text: &str, tag: &str) -> Result<(), ReferenceError> {
    let well_formed = !tag.is_empty()
        && tag.len() <= MAX_TAG_BYTES
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        && !tag.starts_with(['.', '-']);
    if well_formed {
        return Ok(());
    }
    Err(ReferenceError::Tag {
        text: text.to_owned(),
        tag: tag.to_owned(),
    })
}
