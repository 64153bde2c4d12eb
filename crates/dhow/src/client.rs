//! The daemon's HTTP API from the command line's side: where it is, how long to wait for it, when to ask again.
//!
//! Used by every verb that needs a daemon. Each write carries an `Idempotency-Key` that stays the same over all
//! its attempts, so that asking again never does something twice. It prints nothing and decides nothing about
//! what an answer means.

mod address;
mod error;
mod exec;
mod request;
mod retry;
mod sse;

use std::time::Duration;

use dhow_server::net::keys::client_config_pinned;
use dhow_wire::token::CaFingerprint;
use dhow_wire::{AccessToken, Problem};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use address::{DaemonAddress, Origin, default_data_dir};
pub use error::ClientError;
pub use exec::{ExecInput, ExecOutput, ExecSession, ExecWish};
pub use request::{Body, Request};
use retry::{Attempts, Verdict};
pub use sse::{Lines, Sse};

/// A daemon on this machine or a network answers a connection at once, or it is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A write waits for the disk, in a cluster for an election, and a deployment for the digests of its images.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A dead peer behind a silent stream is found by the kernel.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// A million replicas at 250 bytes each: the largest listing there can be.
const ANSWER_MAX_BYTES: usize = 256 * 1024 * 1024;
/// How much of an answer that is no problem document is shown.
const SHOWN_CHARS_MAX: usize = 300;
const USER_AGENT: &str = concat!("dhow/", env!("CARGO_PKG_VERSION"));

/// The cluster that a token names: over `https` the client shows the token to no other. A token that names none, of a
/// single node behind a TLS proxy, goes to whomever the host's own authorities vouch for.
fn pinned(host: &DaemonAddress, token: &str) -> Result<Option<CaFingerprint>, ClientError> {
    if !host.is_https() {
        return Ok(None);
    }
    let token = AccessToken::parse(token).map_err(ClientError::MalformedToken)?;
    Ok(token.fingerprint())
}

/// A daemon's API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    host: DaemonAddress,
    origin: Origin,
    base: Url,
}

impl Client {
    /// Where `--host` and the environment say, with the token of `DHOW_TOKEN`.
    pub fn from_env(flag: Option<&str>) -> Result<Self, ClientError> {
        let variable = |name: &str| std::env::var(name).ok();
        let (host, origin) = DaemonAddress::resolve(flag, variable).map_err(ClientError::BadHost)?;
        let token = variable("DHOW_TOKEN").filter(|token| !token.is_empty());
        Self::new(host, origin, token.as_deref())
    }

    pub fn new(host: DaemonAddress, origin: Origin, token: Option<&str>) -> Result<Self, ClientError> {
        // An error says that the process has chosen a provider already; there is one in the tree.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if token.is_some() && host.is_open_to_others() {
            return Err(ClientError::TokenInClear(host));
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| ClientError::BadToken)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            // An upgraded connection exists in HTTP/1.1 alone.
            .http1_only();
        if host.is_loopback() {
            builder = builder.no_proxy();
        }
        if let Some(fingerprint) = token.map(|token| pinned(&host, token)).transpose()?.flatten() {
            let config = client_config_pinned(fingerprint).map_err(ClientError::Tls)?;
            builder = builder.tls_backend_preconfigured(config);
        }
        let base = match &host {
            DaemonAddress::Unix(path) => {
                builder = builder.unix_socket(path.clone());
                "http://localhost/".to_owned()
            }
            DaemonAddress::Http(url) => url.to_string(),
        };
        let base = Url::parse(&base).map_err(|error| ClientError::Unreadable {
            host: host.clone(),
            why: error.to_string(),
        })?;
        let http = builder.build().map_err(ClientError::Setup)?;
        Ok(Self {
            http,
            host,
            origin,
            base,
        })
    }

    pub fn host(&self) -> &DaemonAddress {
        &self.host
    }

    /// Whether the user said where the daemon is, so that no other will do.
    pub fn is_named(&self) -> bool {
        match self.origin {
            Origin::Flag | Origin::HostVariable => true,
            Origin::DataDirVariable | Origin::DefaultDataDir => false,
        }
    }

    /// Asks, and reads the whole answer as JSON. An empty one is null.
    pub async fn fetch(&self, request: Request<'_>) -> Result<Value, ClientError> {
        self.fetch_within(request, Some(ANSWER_TIMEOUT)).await
    }

    /// The same for what may take as long as it needs: unpacking an archive, for example.
    pub async fn fetch_slow(&self, request: Request<'_>) -> Result<Value, ClientError> {
        self.fetch_within(request, None).await
    }

    async fn fetch_within(
        &self,
        request: Request<'_>,
        timeout: Option<Duration>,
    ) -> Result<Value, ClientError> {
        let response = self.send(&request, timeout).await?;
        let bytes = self.read(response, request.is_write()).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(&error))
    }

    /// Asks, and reads the whole answer as it is.
    pub async fn fetch_bytes(&self, request: Request<'_>) -> Result<Vec<u8>, ClientError> {
        let response = self.send(&request, None).await?;
        self.read(response, request.is_write()).await
    }

    /// Asks, and hands the answer over part by part, whatever its size; ends with the first error of who takes it.
    pub async fn download(
        &self,
        request: Request<'_>,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<std::io::Result<()>, ClientError> {
        let mut response = self.send(&request, None).await?;
        loop {
            match response.chunk().await {
                Ok(Some(part)) => {
                    if let Err(error) = take(&part) {
                        return Ok(Err(error));
                    }
                }
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Err(self.away(error.without_url(), false, true)),
            }
        }
    }

    /// Sends what can be sent only once, and reads the whole answer as what is expected.
    pub async fn upload<T: DeserializeOwned>(
        &self,
        request: Request<'_>,
        body: reqwest::Body,
    ) -> Result<T, ClientError> {
        let mut builder = self.http.request(request.method.clone(), self.url(&request));
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let sent = builder.body(body).send().await;
        let response = sent.map_err(|error| self.away(error.without_url(), true, true))?;
        if !response.status().is_success() {
            return Err(ClientError::Problem(Box::new(self.problem(response).await)));
        }
        let bytes = self.read(response, true).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(&error))
    }

    /// Asks, and reads the whole answer as what is expected.
    pub async fn fetch_as<T: DeserializeOwned>(&self, request: Request<'_>) -> Result<T, ClientError> {
        let value = self.fetch(request).await?;
        self.decode(value)
    }

    /// An answer as what is expected.
    pub fn decode<T: DeserializeOwned>(&self, value: Value) -> Result<T, ClientError> {
        serde_json::from_value(value).map_err(|error| self.unreadable(&error))
    }

    /// Asks for an answer that comes line by line, for as long as it takes.
    pub async fn lines(&self, request: Request<'_>) -> Result<Lines, ClientError> {
        let response = self.send(&request, None).await?;
        Ok(Lines::new(self.host.clone(), response))
    }

    /// Asks for an answer of server-sent events, for as long as it takes.
    pub async fn events(&self, request: Request<'_>) -> Result<Sse, ClientError> {
        Ok(Sse::new(self.lines(request).await?))
    }

    /// Passes a request of a browser on as it is, once, and gives the answer as it comes. The address is below the
    /// daemon's own.
    pub async fn pass_on(
        &self,
        method: reqwest::Method,
        address: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, ClientError> {
        let text = format!("{}{address}", self.base.as_str().trim_end_matches('/'));
        let url = Url::parse(&text).map_err(|error| ClientError::Unreadable {
            host: self.host.clone(),
            why: error.to_string(),
        })?;
        let is_write = method != reqwest::Method::GET;
        let sent = self
            .http
            .request(method, url)
            .headers(headers)
            .body(body)
            .send()
            .await;
        sent.map_err(|error| self.away(error.without_url(), is_write, true))
    }

    fn unreadable(&self, error: &serde_json::Error) -> ClientError {
        ClientError::Unreadable {
            host: self.host.clone(),
            why: error.to_string(),
        }
    }

    /// Sends until there is an answer that is not "busy", within the bounds of [`Attempts`].
    async fn send(&self, request: &Request<'_>, timeout: Option<Duration>) -> Result<Response, ClientError> {
        let url = self.url(request);
        let key = request
            .is_write()
            .then(|| format!("{:032x}", rand::random::<u128>()));
        let mut attempts = Attempts::default();
        loop {
            let mut builder = self.http.request(request.method.clone(), url.clone());
            builder = match &request.body {
                Body::Empty => builder,
                Body::Json(value) => builder.json(value),
                Body::Bytes(bytes) => builder
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .body(bytes.clone()),
            };
            for (name, value) in &request.headers {
                builder = builder.header(name, value);
            }
            if let Some(key) = &key {
                builder = builder.header("Idempotency-Key", key);
            }
            if let Some(timeout) = timeout {
                builder = builder.timeout(timeout);
            }
            let error = match builder.send().await {
                Ok(response) if response.status().is_success() || response.status() == 101 => {
                    return Ok(response);
                }
                Ok(response) => {
                    let problem = self.problem(response).await;
                    match attempts.after_problem(&problem) {
                        Verdict::Again(wait) => {
                            tokio::time::sleep(wait).await;
                            continue;
                        }
                        Verdict::Final => return Err(ClientError::Problem(Box::new(problem))),
                    }
                }
                Err(error) => error.without_url(),
            };
            match attempts.after_break(&error) {
                Verdict::Again(wait) => tokio::time::sleep(wait).await,
                Verdict::Final => return Err(self.away(error, request.is_write(), attempts.was_sent())),
            }
        }
    }

    fn url(&self, request: &Request<'_>) -> Url {
        let mut url = self.base.clone();
        // The base is http or https, which always has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        url
    }

    fn away(&self, cause: reqwest::Error, is_write: bool, was_sent: bool) -> ClientError {
        let host = self.host.clone();
        if cause.is_connect() {
            let was_sent = is_write && was_sent;
            ClientError::NoDaemon {
                host,
                origin: self.origin,
                cause,
                was_sent,
            }
        } else {
            ClientError::NoAnswer {
                host,
                cause,
                is_write,
            }
        }
    }

    /// The body of an error; whatever is no problem document becomes one.
    async fn problem(&self, response: Response) -> Problem {
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER);
        let retry_after_secs = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let bytes = self.read(response, false).await.unwrap_or_default();
        let mut problem = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            let text: String = String::from_utf8_lossy(&bytes)
                .chars()
                .take(SHOWN_CHARS_MAX)
                .collect();
            Problem {
                kind: "about:blank".into(),
                title: status.canonical_reason().unwrap_or_default().into(),
                status: status.as_u16(),
                detail: format!("{} answered {status}: {}", self.host, text.trim()),
                code: "".into(),
                findings: Vec::new(),
                retry_after_secs: None,
            }
        });
        problem.retry_after_secs = retry_after_secs.or(problem.retry_after_secs);
        problem
    }

    async fn read(&self, mut response: Response, is_write: bool) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => return Ok(bytes),
                Err(error) => {
                    return Err(ClientError::NoAnswer {
                        host: self.host.clone(),
                        cause: error.without_url(),
                        is_write,
                    });
                }
            }
            if bytes.len() > ANSWER_MAX_BYTES {
                return Err(ClientError::Unreadable {
                    host: self.host.clone(),
                    why: format!("it is longer than {ANSWER_MAX_BYTES} bytes"),
                });
            }
        }
    }
}
