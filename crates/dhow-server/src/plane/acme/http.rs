//! Requests to an ACME server: HTTPS with the host's authorities and one more, nothing else, and answers of a bounded size.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::http::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("dhow/", env!("CARGO_PKG_VERSION"));
/// Chains have some kilobytes, everything else less.
const ANSWER_MAX_BYTES: usize = 256 << 10;

/// The one client of a daemon.
#[derive(Clone, Debug)]
pub(super) struct AcmeHttp(Client);

impl AcmeHttp {
    /// Blocks: it reads the host's authorities.
    pub fn new(authorities: Vec<Certificate>) -> reqwest::Result<Self> {
        // An error says that the process has chosen a provider already; there is one in the tree.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .redirect(Policy::none())
            .referer(false)
            .https_only(true)
            .tls_certs_merge(authorities);
        client.build().map(Self)
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // A body in memory cannot fail.
            let body = body
                .collect()
                .await
                .map(|body| body.to_bytes())
                .unwrap_or_default();
            let request = reqwest::Request::try_from(Request::from_parts(parts, body)).map_err(other)?;
            let mut answer = client.execute(request).await.map_err(other)?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut bytes = BytesMut::new();
            while let Some(more) = answer.chunk().await.map_err(other)? {
                if bytes.len().saturating_add(more.len()) > ANSWER_MAX_BYTES {
                    return Err(Error::Str("an answer of a size that can be read"));
                }
                bytes.extend_from_slice(&more);
            }
            let mut response = Response::new(Full::new(bytes.freeze()));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok(BytesResponse::from(response))
        })
    }
}

fn other(error: reqwest::Error) -> Error {
    Error::Other(Box::new(error))
}
