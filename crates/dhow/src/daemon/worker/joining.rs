//! How a worker becomes one: with a token, once. Servers that cannot be reached are tried for ever; a cluster that
//! says no is heard.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use dhow_agent::session::grpc::{Backoff, Errand, FixedRoutes, Joining};
use dhow_core::state::NodeInfo;
use dhow_server::net::keys::WorkerIdentity;
use dhow_wire::WorkerBootstrapToken;

use super::identity_dir::IdentityDir;
use super::refused::Refused;
use super::ways::Newcomer;

/// Pauses between attempts to join: a person waits for the first one, and thousands of workers may begin together.
const BACKOFF: Backoff = Backoff {
    first: std::time::Duration::from_millis(500),
    longest: std::time::Duration::from_secs(20),
};

/// A token and where it came from.
pub struct TokenFile {
    pub token: WorkerBootstrapToken,
}

impl TokenFile {
    /// Reads it. Blocks for the moment that a small file takes.
    pub fn read(path: Option<&str>) -> anyhow::Result<Self> {
        let path = PathBuf::from(path.context(
            "this worker has not joined a cluster and has no token: make one on a server with `dhow token \
             create-worker`, put it into a file here, and name that with --token-file or `token_file`",
        )?);
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("the token in {} cannot be read", path.display()))?;
        let token = WorkerBootstrapToken::parse(&text);
        let token = token.map_err(|error| {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            Refused(format!("{}: {error}{cause}", path.display()))
        })?;
        Ok(Self { token })
    }

    pub fn id(&self) -> String {
        self.token.nonce().to_string()
    }
}

/// Joins and keeps what it was given. Dropped when nobody waits any more.
pub async fn join(
    file: &TokenFile,
    routes: &FixedRoutes,
    info: &NodeInfo,
    dir: &IdentityDir,
) -> anyhow::Result<WorkerIdentity> {
    let token = &file.token;
    let key = dir.key()?;
    let newcomer = Arc::new(Newcomer::new(token.ca_fingerprint()));
    let errand = Errand {
        routes: Arc::new(routes.clone()),
        connector: Arc::clone(&newcomer) as _,
        backoff: BACKOFF,
    };
    let joining = Joining {
        token: token.reveal(),
        cluster_id: token.cluster_id().to_owned(),
        wish: None,
        info: info.clone(),
        csr_pem: Some(key.csr_pem().context("a certificate cannot be asked for")?),
    };
    let joined = tokio::select! {
        joined = errand.join(&joining) => joined.map_err(|error| Refused(error.to_string()))?,
        () = newcomer.all_are_others(routes) => {
            return Err(Refused(format!(
                "the bootstrap token belongs to another cluster, {:?}, than the servers that this worker is given: make a \
                 token there with `dhow token create-worker`, or give the worker the other cluster's servers",
                token.cluster_id()
            ))
            .into());
        }
    };
    let chain = joined.certificate_chain_pem;
    let chain = chain.context("the cluster took this worker and gave it no certificate")?;
    let identity =
        WorkerIdentity::new(key, &chain).context("the certificate that was given cannot be used")?;
    anyhow::ensure!(
        identity.fingerprint() == token.ca_fingerprint()
            && identity.cluster_id() == token.cluster_id()
            && identity.node().0 == joined.node_id,
        "the certificate that was given is another worker's or another cluster's"
    );
    dir.keep_token_id(&file.id())?;
    dir.keep(&chain)?;
    Ok(identity)
}
