//! An ACME server over the network (RFC 8555), hosts proved by HTTP-01.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dhow_core::acme::Setback;
use dhow_wire::AcmeConfig;
use futures_util::future::BoxFuture;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    Order, OrderStatus, Problem, RetryPolicy,
};
use reqwest::Certificate;
use zeroize::Zeroizing;

use super::authority::{Authority, KeptAccount, OrderError};
use super::http::AcmeHttp;

/// How long one step of an order is asked after: the server looks at the host from several places, and signs.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .timeout(Duration::from_secs(60));
const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const ACCOUNT_GONE: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
/// What all of the types that the protocol has begin with.
const TYPES: &str = "urn:ietf:params:acme:error:";

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the authorities of the ACME server at {path} cannot be read", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{path} holds no certificate in PEM form: it is to have the authorities of the ACME server", path = path.display())]
    NoCertificate { path: PathBuf },
    #[error("requests to the ACME server cannot be set up")]
    Setup(#[source] reqwest::Error),
}

/// The ACME server that the configuration names.
#[derive(Debug)]
pub struct AcmeClient {
    directory: String,
    contact: Option<String>,
    http: AcmeHttp,
}

impl AcmeClient {
    /// Blocks: it reads the authorities of the host and of the configuration.
    pub fn open(config: &AcmeConfig) -> Result<Self, ClientError> {
        let authorities = match &config.authority_file {
            Some(path) => read_authorities(path)?,
            None => Vec::new(),
        };
        Ok(Self {
            directory: config.directory.clone(),
            contact: config.email.as_ref().map(|email| format!("mailto:{email}")),
            http: AcmeHttp::new(authorities).map_err(ClientError::Setup)?,
        })
    }
}

fn read_authorities(path: &Path) -> Result<Vec<Certificate>, ClientError> {
    let path = || path.to_owned();
    let pem = std::fs::read(path()).map_err(|cause| ClientError::Read { path: path(), cause })?;
    let found = Certificate::from_pem_bundle(&pem).unwrap_or_default();
    match found.is_empty() {
        true => Err(ClientError::NoCertificate { path: path() }),
        false => Ok(found),
    }
}

impl Authority for AcmeClient {
    fn directory(&self) -> &str {
        &self.directory
    }

    fn register(&self) -> BoxFuture<'static, Result<KeptAccount, OrderError>> {
        let (http, directory, contact) = (self.http.clone(), self.directory.clone(), self.contact.clone());
        Box::pin(async move {
            let contact: Vec<&str> = contact.as_deref().into_iter().collect();
            let new = NewAccount {
                contact: &contact,
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            let builder = Account::builder_with_http(Box::new(http));
            let made = builder.create(&new, directory.clone(), None).await;
            let (account, credentials) = made.map_err(|error| told(&error))?;
            let credentials = serde_json::to_string(&credentials)
                .map_err(|error| OrderError::new(format!("the account cannot be kept: {error}")))?;
            Ok(KeptAccount {
                directory,
                thumbprint: account.key_thumbprint().to_owned(),
                credentials,
            })
        })
    }

    fn order(
        &self,
        account: KeptAccount,
        host: String,
    ) -> BoxFuture<'static, Result<Zeroizing<String>, OrderError>> {
        let http = self.http.clone();
        Box::pin(async move {
            let credentials: AccountCredentials = serde_json::from_str(&account.credentials)
                .map_err(|error| OrderError::new(format!("the account cannot be read: {error}")))?;
            let builder = Account::builder_with_http(Box::new(http));
            let account = builder.from_credentials(credentials).await;
            let account = account.map_err(|error| told(&error))?;
            let names = [Identifier::Dns(host.clone())];
            let order = account.new_order(&NewOrder::new(&names)).await;
            let mut order = order.map_err(|error| told(&error))?;
            prove(&mut order).await?;
            finish(&mut order, &host).await
        })
    }
}

/// Lets the server ask the host, and waits until it is content.
async fn prove(order: &mut Order) -> Result<(), OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(|error| told(&error))?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Invalid
            | AuthorizationStatus::Revoked
            | AuthorizationStatus::Expired
            | AuthorizationStatus::Deactivated => {
                return Err(OrderError::new("the ACME server does not let the host be proved"));
            }
        }
        let challenge = authorization.challenge(ChallengeType::Http01);
        let mut challenge = challenge.ok_or_else(|| OrderError::new("the ACME server offers no HTTP-01"))?;
        challenge.set_ready().await.map_err(|error| told(&error))?;
    }
    let polled = order.poll_ready(&POLL).await;
    let words = match polled {
        Ok(OrderStatus::Ready) => return Ok(()),
        Ok(status) => OrderError::new(format!("the order became {status:?} without a reason")),
        Err(error) => told(&error),
    };
    // The reason stands at the challenge.
    Err(refused(order).await.unwrap_or(words))
}

/// What the server found when it asked the host.
async fn refused(order: &mut Order) -> Option<OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        let found = state
            .challenges
            .iter()
            .find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = found {
            return Some(of_problem(problem));
        }
    }
    None
}

/// Has the certificate made for a new key.
async fn finish(order: &mut Order, host: &str) -> Result<Zeroizing<String>, OrderError> {
    let unmade = |error: rcgen::Error| OrderError::new(format!("no key can be made: {error}"));
    let key = rcgen::KeyPair::generate().map_err(unmade)?;
    let mut params = rcgen::CertificateParams::new([host.to_owned()]).map_err(unmade)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(unmade)?;
    let finalized = order.finalize_csr(request.der()).await;
    finalized.map_err(|error| told(&error))?;
    let chain = order
        .poll_certificate(&POLL)
        .await
        .map_err(|error| told(&error))?;
    let key = Zeroizing::new(key.serialize_pem());
    let mut pem = Zeroizing::new(chain);
    if !pem.ends_with('\n') {
        pem.push('\n');
    }
    pem.push_str(&key);
    Ok(pem)
}

/// A failure in the server's own words, or why there are none.
fn told(error: &Error) -> OrderError {
    match error {
        Error::Api(problem) => of_problem(problem),
        error => {
            let mut words = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(inner) = cause {
                let inner_words = inner.to_string();
                if !words.contains(&inner_words) {
                    words.push_str(": ");
                    words.push_str(&inner_words);
                }
                cause = inner.source();
            }
            OrderError::new(words)
        }
    }
}

fn of_problem(problem: &Problem) -> OrderError {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let short = kind.strip_prefix(TYPES).unwrap_or(kind);
    let mut words = match (&problem.detail, short) {
        (Some(detail), "") => detail.clone(),
        (Some(detail), short) => format!("{detail} ({short})"),
        (None, short) => short.to_owned(),
    };
    for sub in &problem.subproblems {
        words.push_str(&format!("; {sub}"));
    }
    OrderError {
        words,
        setback: match kind == RATE_LIMITED {
            true => Setback::Limited,
            false => Setback::Failed,
        },
        is_account_gone: kind == ACCOUNT_GONE,
    }
}
