//! Where an image comes from, as messages name it.

use std::fmt;
use std::path::PathBuf;

/// A registry, an OCI layout directory or an archive file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    Registry(String),
    Layout(PathBuf),
    Archive(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(host) => write!(f, "registry {host}"),
            Self::Layout(dir) => write!(f, "OCI layout {}", dir.display()),
            Self::Archive(file) => write!(f, "docker archive {}", file.display()),
        }
    }
}
