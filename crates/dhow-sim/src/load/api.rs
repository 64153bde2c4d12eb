//! A server's API, over its Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

/// The largest document that is read, the listing of 10,000 nodes, takes a second of a busy server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one server's API, with which the script deploys and reads.
#[derive(Clone, Debug)]
pub struct Api {
    socket: PathBuf,
}

impl Api {
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let text = self.ask(Method::GET, path, Bytes::new()).await?;
        serde_json::from_slice(&text).with_context(|| format!("{path} does not answer in JSON"))
    }

    /// One figure of `/metrics`, by its name with labels.
    pub async fn metrics(&self) -> anyhow::Result<Metrics> {
        let text = self.ask(Method::GET, "/metrics", Bytes::new()).await?;
        Ok(Metrics(String::from_utf8(text.to_vec())?))
    }

    /// Deploys a file; answered once that is durable.
    pub async fn deploy(&self, file: String) -> anyhow::Result<()> {
        self.ask(Method::POST, "/api/v1/deployments", file.into())
            .await
            .map(drop)
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let asked = tokio::time::timeout(TIMEOUT, self.ask_patiently(method, path, body));
        asked
            .await
            .unwrap_or_else(|_| bail!("{path} is not answered in {TIMEOUT:?}"))
    }

    async fn ask_patiently(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.with_context(|| format!("{} cannot be reached", self.socket.display()))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/yaml")
            .body(Full::new(body))?;
        let reply = sender.send_request(request).await?;
        let status = reply.status();
        let text = reply.into_body().collect().await?.to_bytes();
        driver.abort();
        if status != StatusCode::OK && status != StatusCode::CREATED && status != StatusCode::ACCEPTED {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&text));
        }
        Ok(text)
    }
}

/// What `/metrics` said.
pub struct Metrics(String);

impl Metrics {
    /// A figure by its name with labels; 0 where there is none.
    pub fn figure(&self, name: &str) -> u64 {
        let mut lines = self.0.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found
            .and_then(|figure| figure.trim().parse().ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_by_their_whole_name() {
        let metrics = Metrics("# HELP x\ndhow_nodes{status=\"ready\"} 12\ndhow_nodes_more 3\n".into());
        assert_eq!(metrics.figure("dhow_nodes{status=\"ready\"}"), 12);
        assert_eq!(metrics.figure("dhow_nodes"), 0);
    }
}
