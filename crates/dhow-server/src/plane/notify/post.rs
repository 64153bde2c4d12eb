//! Sends one notice: signed, with a deadline, to nobody but the address itself.

use std::error::Error;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, header};
use ring::hmac;

use super::notice::{Address, NoticeDocument};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Whoever needs longer works on what it was told before it answers; then it should answer first.
const TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("dhow/", env!("CARGO_PKG_VERSION"));

/// The notice's id, its time in seconds since 1970, and the signature over both time and body.
const ID_HEADER: &str = "dhow-notice-id";
const TIME_HEADER: &str = "dhow-notice-time";
const SIGNATURE_HEADER: &str = "dhow-notice-signature";

/// Why a notice was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error("the address cannot be unsealed; add the target again")]
    Unsealed,
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("it does not answer")]
    Unreachable(#[source] reqwest::Error),
    #[error("requests cannot be made here")]
    Setup(#[source] reqwest::Error),
}

impl PostError {
    /// Whether the other side has understood and refused this one notice.
    pub fn refuses_content(&self) -> bool {
        match self {
            Self::Status(status) => matches!(status.as_u16(), 400 | 413 | 415 | 422),
            Self::Unsealed | Self::Unreachable(_) | Self::Setup(_) => false,
        }
    }

    /// With its causes and without the address, which may hold a credential.
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        if let Self::Unreachable(error) | Self::Setup(error) = self {
            let mut cause = error.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
        }
        text
    }
}

/// The one client of a daemon; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Post(std::sync::Arc<tokio::sync::OnceCell<Client>>);

impl Post {
    async fn client(&self) -> Result<&Client, PostError> {
        let made = self.0.get_or_try_init(|| async {
            // It reads the host's authorities.
            let made = tokio::task::spawn_blocking(client).await;
            made.unwrap_or_else(|_| client())
        });
        made.await.map_err(PostError::Setup)
    }

    /// Answers once the other side has taken it.
    pub async fn send(
        &self,
        address: &Address,
        document: &NoticeDocument,
        now_unix_secs: i64,
    ) -> Result<(), PostError> {
        // A document is texts and numbers, which can always be written.
        let body = serde_json::to_vec(document).unwrap_or_default();
        let request = self
            .client()
            .await?
            .post(&address.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(ID_HEADER, &document.id)
            .header(TIME_HEADER, now_unix_secs.to_string())
            .header(SIGNATURE_HEADER, signature(&address.key, now_unix_secs, &body))
            .body(body);
        let answer = request
            .send()
            .await
            .map_err(|error| PostError::Unreachable(error.without_url()))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(PostError::Status(status)),
        }
    }
}

fn client() -> reqwest::Result<Client> {
    // An error says that the process has chosen a provider already; there is one in the tree.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        .build()
}

/// `v1=` and HMAC-SHA256 in hexadecimal over the time, a point and the body.
pub fn signature(key: &str, now_unix_secs: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(now_unix_secs.to_string().as_bytes());
    context.update(b".");
    context.update(body);
    let signed = context.sign();
    let digits: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={digits}")
}
