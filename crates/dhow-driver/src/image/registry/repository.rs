//! One repository of one registry: requests with authentication and retries, and what the protocol offers.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode};

use super::RegistryClient;
use super::client::SchemeError;
use super::endpoint::{Scheme, Trust};
use crate::image::digest::Digest;
use crate::image::error::{ImageError, RegistryTrouble, Subject};
use crate::image::manifest::{
    DOCKER_LIST, DOCKER_MANIFEST, Descriptor, MAX_CONFIG_BYTES, MAX_MANIFEST_BYTES, OCI_INDEX, OCI_MANIFEST,
};
use crate::image::reference::RegistryRef;
use crate::image::source::LayerRequest;
use crate::image::unpack::LayerInput;

const DIGEST_HEADER: &str = "docker-content-digest";

/// One repository of a registry, from which manifests and blobs are fetched.
pub(crate) struct Repository {
    pub(super) client: Arc<RegistryClient>,
    pub(super) reference: RegistryRef,
    pub(super) subject: Subject,
    pub(super) trust: Trust,
}

/// What is asked of a registry.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub method: Method,
    /// Below the repository, such as `manifests/latest`.
    pub path: String,
    pub manifests: bool,
    pub from_bytes: u64,
}

/// An attempt that did not succeed.
pub(super) enum Failure {
    /// Trying again cannot help.
    Final(ImageError),
    /// Trying again may help; the wait is what the registry asks for.
    Passing {
        error: Box<ImageError>,
        asked_wait: Option<Duration>,
    },
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Final(error)
    }
}

impl Repository {
    pub async fn open(
        client: Arc<RegistryClient>,
        reference: RegistryRef,
        subject: Subject,
    ) -> Result<Self, ImageError> {
        let trust = Trust::of(reference.api_host(), &client.options);
        if client.options.logins.is_set() {
            client.forget_token(&reference.registry, &reference.repository);
        }
        Ok(Self {
            client,
            reference,
            subject,
            trust,
        })
    }

    /// The digest that the tag means at present, without the manifest where the registry tells it.
    pub async fn resolve(&self) -> Result<Digest, ImageError> {
        if let Some(digest) = self.reference.digest {
            return Ok(digest);
        }
        let tag = self.reference.tag.as_deref().unwrap_or("latest");
        let request = Request {
            method: Method::HEAD,
            path: format!("manifests/{tag}"),
            manifests: true,
            from_bytes: 0,
        };
        // A registry may know no HEAD; whatever went wrong, the full request tells it best.
        if let Ok(answer) = self.send_once(&request).await
            && let Some(digest) = answer.headers().get(DIGEST_HEADER)
            && let Some(digest) = digest.to_str().ok().and_then(|text| text.parse().ok())
        {
            return Ok(digest);
        }
        let request = Request {
            method: Method::GET,
            ..request
        };
        Ok(Digest::of(&self.fetch(&request, MAX_MANIFEST_BYTES).await?))
    }

    pub async fn manifest(&self, digest: Digest) -> Result<Vec<u8>, ImageError> {
        let path = format!("manifests/{digest}");
        let request = Request {
            method: Method::GET,
            path,
            manifests: true,
            from_bytes: 0,
        };
        let bytes = self.fetch(&request, MAX_MANIFEST_BYTES).await?;
        self.check("the manifest", digest, bytes)
    }

    pub async fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let request = Request::blob(&descriptor.digest, 0);
        let bytes = self.fetch(&request, MAX_CONFIG_BYTES).await?;
        self.check("the configuration", descriptor.digest, bytes)
    }

    pub async fn layer(&self, request: LayerRequest) -> Result<LayerInput, ImageError> {
        self.download(request).await
    }

    fn check(&self, what: &'static str, digest: Digest, bytes: Vec<u8>) -> Result<Vec<u8>, ImageError> {
        let found = Digest::of(&bytes);
        if found == digest {
            Ok(bytes)
        } else {
            Err(self.subject.wrong_digest(what, digest, found))
        }
    }

    /// Fetches something small whole, with retries.
    async fn fetch(&self, request: &Request, max_bytes: u64) -> Result<Vec<u8>, ImageError> {
        let mut failed_attempts = 0;
        loop {
            let failure = match self.fetch_once(request, max_bytes).await {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => failure,
            };
            failed_attempts += 1;
            self.wait_or_give_up(failure, failed_attempts).await?;
        }
    }

    async fn fetch_once(&self, request: &Request, max_bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut answer = self.send_once(request).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer
            .chunk()
            .await
            .map_err(|error| self.transport_failure(error))?
        {
            if (bytes.len() + chunk.len()) as u64 > max_bytes {
                let detail = format!("{} is larger than {max_bytes} bytes", request.path);
                return Err(self.subject.bad_answer(detail).into());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Sleeps before the next attempt, or returns the error when there is to be none.
    pub(super) async fn wait_or_give_up(&self, failure: Failure, failed: u32) -> Result<(), ImageError> {
        let policy = self.client.options.retry;
        match failure {
            Failure::Final(error) => Err(error),
            Failure::Passing { mut error, .. } if failed >= policy.max_attempts => {
                if let ImageError::RegistryFailed { attempts, .. } = &mut *error {
                    *attempts = failed;
                }
                Err(*error)
            }
            Failure::Passing { error, asked_wait } => {
                let wait = policy.wait(failed, asked_wait);
                tracing::debug!(image = %self.subject.image, %error, ?wait, "trying again");
                tokio::time::sleep(wait).await;
                Ok(())
            }
        }
    }

    /// One attempt, with authentication where the registry asks for it. The answer is a success.
    pub(super) async fn send_once(&self, request: &Request) -> Result<Response, Failure> {
        let host = self.reference.api_host();
        let scheme = match self.client.scheme(host, self.trust).await {
            Ok(scheme) => scheme,
            Err(SchemeError::Setup(error)) => return Err(error.into()),
            Err(SchemeError::Http(error)) => return Err(self.transport_failure(error)),
        };
        let known = self.client.token(host, &self.reference.repository);
        let answer = self.transmit(request, scheme, known.as_ref()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return self.judge(answer);
        }
        let (authorization, hint) = self.authorize(&answer, scheme).await?;
        let answer = self.transmit(request, scheme, authorization.as_ref()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED || answer.status() == StatusCode::FORBIDDEN {
            return Err(self.unauthorised(hint).into());
        }
        if let Some(authorization) = authorization {
            self.client
                .keep_token(host, &self.reference.repository, authorization);
        }
        self.judge(answer)
    }

    async fn transmit(
        &self,
        request: &Request,
        scheme: Scheme,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, Failure> {
        let path = format!("/v2/{}/{}", self.reference.repository, request.path);
        let url = scheme.url(self.reference.api_host(), &path);
        let mut builder = self.client.http(self.trust)?.request(request.method.clone(), url);
        if request.manifests {
            let kinds = [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST];
            builder = kinds
                .iter()
                .fold(builder, |builder, kind| builder.header(ACCEPT, *kind));
        }
        if request.from_bytes > 0 {
            builder = builder.header(RANGE, format!("bytes={}-", request.from_bytes));
        }
        if let Some(authorization) = authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        self.transmit_built(builder).await
    }

    pub(super) async fn transmit_built(&self, builder: RequestBuilder) -> Result<Response, Failure> {
        builder
            .send()
            .await
            .map_err(|error| self.transport_failure(error))
    }

    /// Tells success from what may pass and what will not.
    pub(super) fn judge(&self, answer: Response) -> Result<Response, Failure> {
        let status = answer.status();
        let (image, origin) = (self.subject.image.clone(), self.subject.origin.clone());
        if status.is_success() {
            return Ok(answer);
        }
        let passing = status.is_server_error()
            || [
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::REQUEST_TIMEOUT,
                StatusCode::RANGE_NOT_SATISFIABLE,
            ]
            .contains(&status);
        if passing {
            let asked = answer
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok());
            let asked_wait = asked
                .and_then(|text| text.trim().parse().ok())
                .map(Duration::from_secs);
            let error = ImageError::RegistryFailed {
                image,
                origin,
                status: status.as_u16(),
                attempts: 1,
            };
            return Err(Failure::Passing {
                error: Box::new(error),
                asked_wait,
            });
        }
        Err(Failure::Final(match status {
            StatusCode::NOT_FOUND => self.subject.not_found(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.unauthorised("these credentials do not allow it")
            }
            _ => self.subject.bad_answer(format!("it answered {status}")),
        }))
    }

    pub(super) fn unauthorised(&self, hint: &'static str) -> ImageError {
        ImageError::Unauthorised {
            image: self.subject.image.clone(),
            origin: self.subject.origin.clone(),
            hint,
        }
    }

    /// A connection that could not be made or broke.
    pub(super) fn transport_failure(&self, error: reqwest::Error) -> Failure {
        // The address may carry a signature of the registry's storage.
        let error = error.without_url();
        let trouble = trouble(&error);
        let failed = if error.is_redirect() || error.is_builder() {
            return Failure::Final(self.subject.bad_answer(deepest(&error)));
        } else {
            ImageError::Unreachable {
                image: self.subject.image.clone(),
                origin: self.subject.origin.clone(),
                trouble,
                source: Arc::new(error),
            }
        };
        match trouble {
            RegistryTrouble::Untrusted => Failure::Final(failed),
            RegistryTrouble::Refused
            | RegistryTrouble::UnknownHost
            | RegistryTrouble::TimedOut
            | RegistryTrouble::Broken => Failure::Passing {
                error: Box::new(failed),
                asked_wait: None,
            },
        }
    }
}

impl Request {
    pub fn blob(digest: &Digest, from_bytes: u64) -> Self {
        Self {
            method: Method::GET,
            path: format!("blobs/{digest}"),
            manifests: false,
            from_bytes,
        }
    }
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

fn deepest(error: &reqwest::Error) -> String {
    causes(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

fn trouble(error: &reqwest::Error) -> RegistryTrouble {
    if error.is_dns() {
        return RegistryTrouble::UnknownHost;
    }
    if error.is_timeout() {
        return RegistryTrouble::TimedOut;
    }
    for cause in causes(error) {
        let mut cause: &(dyn std::error::Error + 'static) = cause;
        // I/O errors wrap others, the TLS library's among them, without listing them as their cause.
        loop {
            if cause.is::<rustls::Error>() {
                return RegistryTrouble::Untrusted;
            }
            let Some(io) = cause.downcast_ref::<std::io::Error>() else {
                break;
            };
            if io.kind() == std::io::ErrorKind::ConnectionRefused {
                return RegistryTrouble::Refused;
            }
            let Some(inner) = io.get_ref() else { break };
            cause = inner;
        }
    }
    RegistryTrouble::Broken
}
