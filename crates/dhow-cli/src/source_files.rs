//! Which file a verb reads: a deployment file, or compose files with what goes with them.

use std::path::PathBuf;

/// What verbs that take a deployment are told of its file.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FileArgs {
    /// The deployment file or the compose file; `-` is the standard input. Without it the only `*.dhow.yaml` of the folder,
    /// else `dhow.yaml`, `compose.yaml`, `compose.yml`, `docker-compose.yaml` or `docker-compose.yml` with its override file
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// A compose file; given again, each is put over those before
    #[arg(long = "file", short = 'f', value_name = "FILE", conflicts_with = "file")]
    pub files: Vec<PathBuf>,

    /// The deployment's name, of a compose file
    #[arg(long = "project-name", short = 'p', value_name = "NAME")]
    pub project: Option<String>,

    /// Run services of this profile too, of a compose file
    #[arg(long = "profile", value_name = "NAME")]
    pub profiles: Vec<String>,

    /// Variables for a compose file, in place of `.env` beside it
    #[arg(long = "env-file", value_name = "FILE")]
    pub env_files: Vec<PathBuf>,
}
