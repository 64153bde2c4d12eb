//! What is asked of this crate and what it gives: a compose file, with what is around it, becomes a deployment.

use std::path::{Path, PathBuf};

use dhow_core::spec::DeploymentSpec;
use dhow_wire::{FileProblem, Findings};

use crate::load::load;
use crate::project;
use crate::report::{Note, Report};

/// What of the machine a compose file may ask for.
pub struct Around<'a> {
    /// The environment of whoever reads it.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The bytes of a file, by its whole path.
    pub file: &'a dyn Fn(&Path) -> Result<Vec<u8>, FileProblem>,
    /// What stands at a path.
    pub kind: &'a dyn Fn(&Path) -> PathKind,
    pub nodes: Nodes,
}

/// What stands at a path of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    File,
    Folder,
    /// A socket, a device or a pipe.
    Other,
    Nothing,
}

/// Where replicas will run, as far as it decides what can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// On this machine alone.
    Here,
    /// On another machine, or on several.
    Elsewhere,
}

/// What is to be read.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The files, of which a later one has the last word.
    pub files: Vec<PathBuf>,
    /// The folder of the first file, as a whole path.
    pub folder: PathBuf,
    pub project: Option<String>,
    pub profiles: Vec<String>,
    pub env_files: Vec<PathBuf>,
}

/// What was read.
#[derive(Debug)]
pub struct Converted {
    pub deployment: DeploymentSpec,
    pub notes: Vec<Note>,
    /// What is bound and not there yet.
    pub missing_folders: Vec<PathBuf>,
    /// Secrets that have to be set before.
    pub secrets: Vec<SecretValue>,
}

/// A secret of the cluster that the compose file has the value of.
pub struct SecretValue {
    pub name: String,
    pub value: Vec<u8>,
}

/// No message shows the value.
impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretValue({}, {} bytes)", self.name, self.value.len())
    }
}

/// Reads compose files. Where something is wrong, all of it is told, by file.
pub fn convert(asked: &Asked, around: &Around<'_>) -> Result<Converted, Vec<Findings>> {
    let mut report = Report::default();
    let converted = load(asked, around, &mut report)
        .and_then(|loaded| project::convert(loaded, asked, around, &mut report));
    report.into_result(converted)
}
