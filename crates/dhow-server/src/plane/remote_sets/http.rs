//! Requests to the one server of a source: its authorities, its login, redirects to itself alone, answers of a bounded
//! size.

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::error::RemoteError;
use super::limits::{CONNECT_TIMEOUT, READ_TIMEOUT, REDIRECTS_MAX};
use super::login::Credentials;

const USER_AGENT: &str = concat!("dhow/", env!("CARGO_PKG_VERSION"));

/// A client for one source.
#[derive(Debug)]
pub(super) struct RemoteHttp {
    client: Client,
    base: Url,
    login: Option<HeaderValue>,
}

/// One request below the source's address.
pub(super) struct Ask<'a> {
    pub method: Method,
    /// Behind the address: parts divided by `/`, and a query.
    pub path: &'a str,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub max_bytes: usize,
}

impl<'a> Ask<'a> {
    pub fn get(path: &'a str, max_bytes: usize) -> Self {
        Self {
            method: Method::GET,
            path,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            max_bytes,
        }
    }
}

impl RemoteHttp {
    /// Building a client reads the host's authorities: off the async threads.
    pub async fn open(url: &str, credentials: Credentials) -> Result<Self, RemoteError> {
        let base = Url::parse(url).map_err(|error| RemoteError::BadUrl(error.to_string()))?;
        let Credentials { authorities, login } = credentials;
        let only_https = base.scheme() == "https";
        let building = tokio::task::spawn_blocking(move || {
            // An error says that the process has chosen a provider already; there is one in the tree.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = Client::builder()
                .user_agent(USER_AGENT)
                .connect_timeout(CONNECT_TIMEOUT)
                .read_timeout(READ_TIMEOUT)
                .referer(false)
                .https_only(only_https)
                .redirect(Policy::custom(only_to_itself));
            let builder = match authorities.is_empty() {
                true => builder,
                // Whoever names authorities wants no others to be believed.
                false => builder.tls_certs_only(authorities),
            };
            // Plain HTTP is for this host alone.
            match only_https {
                true => builder.build(),
                false => builder.no_proxy().build(),
            }
        });
        let client = building.await.map_err(|_| RemoteError::CutOff)??;
        Ok(Self { client, base, login })
    }

    /// The whole answer to a request that succeeds.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Bytes, RemoteError> {
        let what = format!("{} {}", ask.method, ask.path);
        let base = self.base.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{}", ask.path));
        let url = url.map_err(|error| RemoteError::BadUrl(error.to_string()))?;
        let mut request = self
            .client
            .request(ask.method, url)
            .headers(ask.headers)
            .body(ask.body);
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login.clone());
        }
        let answer = request.send().await?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(RemoteError::Status {
                status: status.as_u16(),
                what,
                hint: hint(status, self.login.is_some()),
            });
        }
        whole(answer, what, ask.max_bytes).await
    }
}

fn hint(status: StatusCode, with_login: bool) -> &'static str {
    match (status, with_login) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, true) => ": its `login_secret` is not let in",
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, false) => ": it wants a `login_secret`",
        (status, _) if status.is_redirection() => ": a redirect to another server is not followed",
        _ => "",
    }
}

/// Reads an answer as it comes, and no more than the limit.
async fn whole(mut answer: Response, what: String, max_bytes: usize) -> Result<Bytes, RemoteError> {
    let mut bytes = BytesMut::new();
    while let Some(more) = answer.chunk().await? {
        if bytes.len().saturating_add(more.len()) > max_bytes {
            return Err(RemoteError::TooLarge {
                what: format!("the answer to {what}"),
                max: max_bytes as u64,
            });
        }
        bytes.extend_from_slice(&more);
    }
    Ok(bytes.freeze())
}

/// A redirect elsewhere ends the request with the answer that it is.
fn only_to_itself(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let from = attempt.previous().first();
    let same = from.is_some_and(|from| from.origin() == attempt.url().origin());
    match same && attempt.previous().len() <= REDIRECTS_MAX {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}
