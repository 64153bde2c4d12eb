//! Pulling from registries over HTTP: the distribution protocol, authentication, retries.
//!
//! Called by [`super::source`]. It speaks the protocol through `reqwest` itself: what matters here, downloads
//! that resume, are hashed as a whole and are retried with patience, is just what a client library leaves to
//! its caller. It never sends credentials to a registry they are not for, never speaks plain HTTP to a
//! registry that is not on this machine or marked insecure, and never logs a token.

mod auth;
mod blob_writer;
mod challenge;
mod client;
mod credentials;
mod download;
mod endpoint;
mod logins;
mod pace;
mod repository;
mod retry;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub(crate) use client::RegistryClient;
pub use logins::{Login, LoginSource, Logins};
pub(crate) use repository::Repository;
pub use retry::RetryPolicy;

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// Registries (`host` or `host:port`) that may be spoken to over plain HTTP or with any certificate.
    /// Those on loopback always may.
    pub insecure: Vec<String>,
    /// Files with certificates of authorities to trust besides the host's own.
    pub authority_files: Vec<PathBuf>,
    /// Docker's configuration file with credentials; none means `$DOCKER_CONFIG/config.json` or
    /// `~/.docker/config.json`. It is read at every pull, so that a login takes effect at once.
    pub docker_config_file: Option<PathBuf>,
    /// What the cluster keeps; it is asked first.
    pub logins: Logins,
    pub retry: RetryPolicy,
}
