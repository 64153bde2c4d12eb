//! The HTTP side that all repositories share: connections, what scheme a registry speaks, and who we are.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, StatusCode};

use super::RegistryOptions;
use super::credentials::{self, Credentials};
use super::endpoint::{Scheme, Trust};
use super::logins::Login;
use crate::image::error::ImageError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence in the middle of an answer; the whole may take as long as it needs.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 10;
const USER_AGENT: &str = concat!("dhow/", env!("CARGO_PKG_VERSION"));
/// Tokens kept, one per repository; more than a node runs images from. Beyond it all are forgotten.
const MAX_TOKENS: usize = 1_024;

/// Built when first needed: a host without any certificate authority can still use what is on loopback.
type LazyClient = OnceLock<Result<Client, String>>;

/// The HTTP clients, credentials and tokens that all pulls share.
#[derive(Debug)]
pub(crate) struct RegistryClient {
    pub(super) options: RegistryOptions,
    authorities: Vec<Certificate>,
    verified: LazyClient,
    insecure: LazyClient,
    loopback: LazyClient,
    schemes: Mutex<HashMap<String, Scheme>>,
    /// The `Authorization` value that worked last, by registry and repository.
    tokens: Mutex<HashMap<(String, String), HeaderValue>>,
}

impl RegistryClient {
    pub fn new(options: RegistryOptions) -> Result<Self, ImageError> {
        // An error says that the process has chosen a provider already; there is one in the tree.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut authorities = Vec::new();
        for path in &options.authority_files {
            let unusable = |detail: String| ImageError::Certificate {
                path: path.clone(),
                detail,
            };
            let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
            let found = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.to_string()))?;
            if found.is_empty() {
                return Err(unusable("it holds no certificate in PEM form".to_owned()));
            }
            authorities.extend(found);
        }
        Ok(Self {
            options,
            authorities,
            verified: LazyClient::new(),
            insecure: LazyClient::new(),
            loopback: LazyClient::new(),
            schemes: Mutex::default(),
            tokens: Mutex::default(),
        })
    }

    pub(super) fn http(&self, trust: Trust) -> Result<&Client, ImageError> {
        let slot = match trust {
            Trust::Verified => &self.verified,
            Trust::Insecure => &self.insecure,
            Trust::Loopback => &self.loopback,
        };
        let built = slot.get_or_init(|| self.build(trust).map_err(|error| error.to_string()));
        built.as_ref().map_err(|detail| ImageError::Setup {
            detail: detail.clone(),
        })
    }

    fn build(&self, trust: Trust) -> reqwest::Result<Client> {
        let builder = Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .referer(false)
            .redirect(redirects())
            .tls_certs_merge(self.authorities.iter().cloned());
        match trust {
            Trust::Verified => builder,
            Trust::Insecure => builder.tls_danger_accept_invalid_certs(true),
            Trust::Loopback => builder.tls_danger_accept_invalid_certs(true).no_proxy(),
        }
        .build()
    }

    /// The scheme of a registry. One that may be insecure is asked once, over plain HTTP first: a server that
    /// wants TLS answers 400 or hangs up.
    pub(super) async fn scheme(&self, host: &str, trust: Trust) -> Result<Scheme, SchemeError> {
        if trust == Trust::Verified {
            return Ok(Scheme::Https);
        }
        if let Some(scheme) = self
            .schemes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(host)
        {
            return Ok(*scheme);
        }
        let client = self.http(trust).map_err(SchemeError::Setup)?;
        let scheme = match client.get(Scheme::Http.url(host, "/v2/")).send().await {
            Ok(answer) if answer.status() == StatusCode::BAD_REQUEST => Scheme::Https,
            Ok(_) => Scheme::Http,
            Err(error) if error.is_connect() || error.is_timeout() => return Err(SchemeError::Http(error)),
            Err(error) => match client.get(Scheme::Https.url(host, "/v2/")).send().await {
                Ok(_) => Scheme::Https,
                Err(_) => return Err(SchemeError::Http(error)),
            },
        };
        self.schemes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(host.to_owned(), scheme);
        Ok(scheme)
    }

    pub(super) async fn credentials(&self, registry: &str) -> Result<Credentials, ImageError> {
        if let Some(Login { user, password }) = self.options.logins.find(registry).await {
            return Ok(Credentials::Password { user, password });
        }
        let file = self
            .options
            .docker_config_file
            .clone()
            .or_else(credentials::default_file);
        match file {
            Some(file) => credentials::find(&file, registry).await,
            None => Ok(Credentials::None),
        }
    }

    pub(super) fn token(&self, registry: &str, repository: &str) -> Option<HeaderValue> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(&(registry.to_owned(), repository.to_owned())).cloned()
    }

    /// The next request asks anew who may, so that a login and a logout count from the next pull on.
    pub(super) fn forget_token(&self, registry: &str, repository: &str) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.remove(&(registry.to_owned(), repository.to_owned()));
    }

    pub(super) fn keep_token(&self, registry: &str, repository: &str, mut token: HeaderValue) {
        token.set_sensitive(true);
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MAX_TOKENS {
            tokens.clear();
        }
        tokens.insert((registry.to_owned(), repository.to_owned()), token);
    }
}

/// Why it is not known whether a registry speaks HTTPS or HTTP.
pub(super) enum SchemeError {
    Setup(ImageError),
    Http(reqwest::Error),
}

/// Registries send to their storage; never from HTTPS to plain HTTP. Credentials are dropped by the client
/// when the host changes.
fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let was_secure = attempt.previous().iter().any(|url| url.scheme() == "https");
        if was_secure && attempt.url().scheme() != "https" {
            return attempt.error("the registry sends from HTTPS to plain HTTP");
        }
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error("the registry sends in circles");
        }
        attempt.follow()
    })
}
