//! Answering a registry that asks who we are: Basic credentials, or a token from the server it names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;

use super::Repository;
use super::challenge::Challenge;
use super::credentials::Credentials;
use super::endpoint::Scheme;
use super::repository::Failure;
use crate::image::error::ImageError;

/// A token is a few kilobytes; some carry long lists of rights.
const MAX_TOKEN_BYTES: usize = 1 << 20;
const CLIENT_ID: &str = "dhow";

const NO_CREDENTIALS: &str = "it does not exist there, or it is private and no credentials for this registry are \
                              in Docker's configuration file (`docker login` writes them)";
const BAD_CREDENTIALS: &str = "it does not exist there, or the credentials in Docker's configuration file do not \
                               allow it; log in again with `docker login`";

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl Repository {
    /// What to send so that the registry lets us in, and what to tell the user if it does not.
    pub(super) async fn authorize(
        &self,
        refused: &Response,
        scheme: Scheme,
    ) -> Result<(Option<HeaderValue>, &'static str), Failure> {
        let credentials = self.client.credentials(&self.reference.registry).await?;
        let hint = if matches!(credentials, Credentials::None) {
            NO_CREDENTIALS
        } else {
            BAD_CREDENTIALS
        };
        let challenges = refused.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenge = challenges
            .filter_map(|value| value.to_str().ok())
            .find_map(Challenge::parse);
        let authorization = match (challenge, credentials) {
            (Some(Challenge::Basic), Credentials::Password { user, password }) => {
                Some(basic(&user, &password).ok_or_else(|| self.unauthorised(BAD_CREDENTIALS))?)
            }
            (Some(Challenge::Basic), Credentials::None | Credentials::Identity(_)) => None,
            (
                Some(Challenge::Bearer {
                    realm,
                    service,
                    scope,
                }),
                credentials,
            ) => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository));
                let url = self.token_url(&realm, scheme)?;
                let asked = TokenRequest { url, service, scope };
                Some(self.token(asked, &credentials, hint).await?)
            }
            (None, _) => {
                let detail = "it wants a login of a kind that is not supported";
                return Err(self.subject.bad_answer(detail).into());
            }
        };
        Ok((authorization, hint))
    }

    /// The token server's address; credentials go there, so it must be as safe as the registry itself.
    fn token_url(&self, realm: &str, scheme: Scheme) -> Result<Url, ImageError> {
        let url = Url::parse(realm).map_err(|_| {
            self.subject
                .bad_answer("it names a token server with a malformed address")
        })?;
        match (scheme, url.scheme()) {
            (_, "https") | (Scheme::Http, "http") => Ok(url),
            _ => Err(self
                .subject
                .bad_answer("it names a token server that is less safe than itself")),
        }
    }

    async fn token(
        &self,
        asked: TokenRequest,
        credentials: &Credentials,
        hint: &'static str,
    ) -> Result<HeaderValue, Failure> {
        let http = self.client.http(self.trust)?;
        let builder = match credentials {
            Credentials::None => http.get(asked.with_query()),
            Credentials::Password { user, password } => {
                let header = basic(user, password).ok_or_else(|| self.unauthorised(BAD_CREDENTIALS))?;
                http.get(asked.with_query()).header(AUTHORIZATION, header)
            }
            Credentials::Identity(identity) => http
                .post(asked.url.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(asked.exchange_form(identity)),
        };
        let answer = self.transmit_built(builder).await?;
        if [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::BAD_REQUEST,
        ]
        .contains(&answer.status())
        {
            return Err(self.unauthorised(hint).into());
        }
        let mut answer = self.judge(answer).map_err(|failure| self.not_an_image(failure))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer
            .chunk()
            .await
            .map_err(|error| self.transport_failure(error))?
        {
            if bytes.len() + chunk.len() > MAX_TOKEN_BYTES {
                return Err(self.subject.bad_answer("its token is too large").into());
            }
            bytes.extend_from_slice(&chunk);
        }
        let malformed = || Failure::Final(self.subject.bad_answer("its token server gave no usable token"));
        let answer: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
        let token = if answer.token.is_empty() {
            answer.access_token
        } else {
            answer.token
        };
        if token.is_empty() {
            return Err(malformed());
        }
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| malformed())
    }

    /// A token server that is not found says nothing about the image.
    fn not_an_image(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Final(ImageError::NotFound { .. }) => {
                Failure::Final(self.subject.bad_answer("its token server answered 404"))
            }
            other => other,
        }
    }
}

struct TokenRequest {
    url: Url,
    service: Option<String>,
    scope: String,
}

impl TokenRequest {
    fn with_query(&self) -> Url {
        let mut url = self.url.clone();
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = &self.service {
                query.append_pair("service", service);
            }
            query.append_pair("scope", &self.scope);
        }
        url
    }

    /// The form that exchanges an identity token. A scratch address does the percent-encoding.
    fn exchange_form(&self, identity: &str) -> String {
        let mut scratch = self.url.clone();
        scratch.set_query(None);
        scratch
            .query_pairs_mut()
            .append_pair("grant_type", "refresh_token")
            .append_pair("client_id", CLIENT_ID)
            .append_pair("service", self.service.as_deref().unwrap_or_default())
            .append_pair("scope", &self.scope)
            .append_pair("refresh_token", identity);
        scratch.query().unwrap_or_default().to_owned()
    }
}

fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut header = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}
