//! What a mode of the cluster gives the rest of the daemon. One file beside this one makes it for each mode.

use std::sync::Arc;

use dhow_agent::{Orders, Session};
use dhow_core::ids::NodeId;
use dhow_server::api::{Beside, WorkerTokenKey};
use dhow_server::clock::Clock;
use dhow_server::net::peer_http::PeerHttp;
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::plane::cluster::Cluster;
use dhow_server::plane::past::{PAST_DIR, PastOptions};
use dhow_server::plane::runtime::{InputSender, ManifestSources, RuntimeHandle, RuntimeOptions, RuntimeView};
use dhow_server::plane::secrets::SecretBox;
use dhow_wire::DaemonConfig;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// The runtime's options with the sources of signed files that the configuration names.
pub fn with_sources(
    config: &DaemonConfig,
    options: RuntimeOptions,
    secrets: &Arc<SecretBox>,
) -> RuntimeOptions {
    RuntimeOptions {
        sources: Arc::new(
            ManifestSources::new(&config.sources, Some(super::file_policy(config)))
                .with_secrets(Arc::clone(secrets)),
        ),
        ..options
    }
}

/// The runtime's options with the past as the configuration wants it.
pub fn with_past(config: &DaemonConfig, options: RuntimeOptions) -> RuntimeOptions {
    let window_ms = i64::try_from(config.past.window.as_millis()).unwrap_or(i64::MAX);
    let past = PastOptions {
        window_ms,
        bytes_max: config.past.max_size.0,
        ..PastOptions::new(config.data_dir.join(PAST_DIR))
    };
    RuntimeOptions {
        past: (window_ms > 0).then_some(past),
        ..options
    }
}

/// The control plane of a node and its ways to others.
pub struct Plane {
    pub node: NodeId,
    pub input: InputSender,
    pub view: RuntimeView,
    pub clock: Arc<dyn Clock>,
    pub runtime: RuntimeHandle,
    /// Ends the runtime.
    pub cancel: CancellationToken,
    pub cluster: Arc<dyn Cluster>,
    pub peers: PeerHttp,
    /// The way to every node, workers too, for what only they have.
    pub door: PeerHttp,
    /// Signs the tokens of workers, where there is a tier of them.
    pub worker_tokens: Option<WorkerTokenKey>,
    /// For so long expired certificates of workers are renewed here; 0 where there are none.
    pub renew_expired_secs: i64,
    /// The agent's way to whoever leads.
    pub session: Arc<dyn Session>,
    /// Where the agent's assignments come from.
    pub orders: Arc<dyn Orders>,
    pub secrets: Arc<SecretBox>,
    /// Routes that are served beside the API.
    pub beside: Beside,
    /// Ends the nodes' sessions with this server, which come in by the API and would hold its end up. On a single node none
    /// does.
    pub sessions: CancellationToken,
    /// Where every port tells who was refused.
    pub refused: RefusedLog,
    /// What is to be ended after the runtime.
    pub rest: BoxFuture<'static, ()>,
}
