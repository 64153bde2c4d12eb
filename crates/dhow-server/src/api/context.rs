//! What every handler works with.

use std::path::PathBuf;
use std::sync::Arc;

use dhow_core::command::{Command, RequestId};
use dhow_core::spec::policy::FilePolicy;
use dhow_wire::token::CaFingerprint;
use ed25519_dalek::SigningKey;
use tokio_util::sync::CancellationToken;

use super::limits::WRITE_TIMEOUT;
use super::problem::{Answer, ApiProblem};
use crate::net::peer_http::PeerHttp;
use crate::net::refused_log::RefusedLog;
use crate::plane::cluster::Cluster;
use crate::plane::notify::NotifyDesk;
use crate::plane::runtime::{Applied, EventLogSender, InputSender, WriteError};
use crate::plane::secrets::SecretBox;
use crate::plane::services::ServiceManager;

/// Signs the tokens with which workers join.
pub type WorkerTokenKey = SigningKey;

/// What the API stands on; the daemon makes one.
#[derive(Clone)]
pub struct Api {
    pub manager: ServiceManager,
    pub input: InputSender,
    /// Takes the events of what handlers do without an entry of the log.
    pub event_log: EventLogSender,
    pub secrets: Arc<SecretBox>,
    pub cluster: Arc<dyn Cluster>,
    /// The way to other servers.
    pub peers: PeerHttp,
    /// Signs the tokens with which workers join; none where there is no worker tier.
    pub worker_tokens: Option<WorkerTokenKey>,
    /// For so long expired certificates of workers can still be renewed.
    pub renew_expired_secs: i64,
    /// Whether certificates are ordered: the configuration names an ACME server.
    pub orders_certificates: bool,
    /// Where everything durable goes: its disk must have room. None where nothing is kept.
    pub data_dir: Option<PathBuf>,
    /// Takes a line for each caller that the API refuses.
    pub refused: RefusedLog,
    /// What files must not ask for here.
    pub policy: Arc<FilePolicy>,
    /// How notices fare, and the way to send one.
    pub notify: NotifyDesk,
}

/// The API and when it ends: open streams end with the token.
#[derive(Clone)]
pub(super) struct Context {
    pub api: Api,
    pub end: CancellationToken,
    /// Of the cluster's CA, where there is a cluster key.
    pub ca: Option<CaFingerprint>,
}

impl Context {
    pub fn manager(&self) -> &ServiceManager {
        &self.api.manager
    }

    /// Asks for a change and waits until it is durable.
    pub async fn write(&self, command: Command, request: Option<RequestId>) -> Answer<Applied> {
        let write = self.api.input.write(command, request);
        match tokio::time::timeout(WRITE_TIMEOUT, write).await {
            Ok(result) => result.map_err(ApiProblem::from),
            Err(_) => Err(WriteError::Unknown.into()),
        }
    }

    pub fn monotonic_ms(&self) -> u64 {
        self.manager().clock().monotonic_ms()
    }

    pub fn wall_unix_secs(&self) -> i64 {
        self.manager().clock().wall_unix_ms().div_euclid(1_000)
    }
}
