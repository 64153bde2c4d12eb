//! Whether the secrets that endpoints name hold certificates that can be shown: looked at before a deployment is taken, and
//! whenever somebody asks how it does. What is wrong is said in words that quote no secret.

use std::sync::Arc;

use dhow_core::ids::ServiceName;
use dhow_core::spec::{DeploymentSpec, Endpoint, Tls};
use dhow_core::state::State;
use dhow_wire::EndpointCertificate;

use super::secret_box::SecretBox;
use super::unseal::unseal_all;

/// A certificate that ends within this time is told of.
const ENDS_SOON_SECS: i64 = 7 * 86_400;
const DAY_SECS: i64 = 86_400;

/// Looks at the certificates of endpoints at one moment.
pub struct CertificateLook<'a> {
    pub secrets: &'a SecretBox,
    pub state: &'a State,
    pub now_unix_secs: i64,
}

impl CertificateLook<'_> {
    /// Why a deployment cannot be taken: the first endpoint whose certificate cannot be shown. What it has already is not
    /// judged again: it goes on with what nodes show, and its status says what is wrong.
    pub fn refusal(&self, spec: &DeploymentSpec) -> Option<String> {
        let own = self.state.deployment(&spec.deployment);
        let own = own.and_then(|known| known.current());
        let has = |service: &ServiceName, endpoint: &Endpoint| {
            let known = own.and_then(|own| own.spec.services.get(service));
            let mut known = known.into_iter().flat_map(|known| &known.endpoints);
            known.any(|known| known.host == endpoint.host && known.tls == endpoint.tls)
        };
        tls_endpoints(spec).find_map(|(service, endpoint, tls)| {
            let is_new = !has(service, endpoint);
            let why = is_new.then(|| self.problem(endpoint, tls)).flatten()?;
            Some(format!("endpoint {service}/{}: {why}", endpoint.name))
        })
    }

    /// What is wrong with the certificates of a deployment, or soon will be; of one of its services where that is named.
    pub fn notes(&self, spec: &DeploymentSpec, only: Option<&str>) -> Vec<String> {
        let asked =
            tls_endpoints(spec).filter(|(service, ..)| only.is_none_or(|only| only == service.as_str()));
        let notes = asked.filter_map(|(service, endpoint, tls)| {
            let why = match self.problem(endpoint, tls) {
                Some(why) => format!("{why}; nodes show the last one that was good"),
                None => self.ends_soon(tls)?,
            };
            Some(format!("endpoint {service}/{}: {why}", endpoint.name))
        });
        notes.collect()
    }

    fn read(&self, tls: &Tls) -> Result<EndpointCertificate, String> {
        let name = tls.secret.as_str();
        let opened = unseal_all(self.secrets, self.state, [name]).map_err(|error| error.to_string())?;
        let value = opened.0.get(name).map(Vec::as_slice).unwrap_or_default();
        let read = EndpointCertificate::read(value, self.now_unix_secs);
        read.map_err(|problem| format!("secret `{name}` cannot be its certificate: {problem}"))
    }

    fn problem(&self, endpoint: &Endpoint, tls: &Tls) -> Option<String> {
        let read = match self.read(tls) {
            Ok(read) => read,
            Err(why) => return Some(why),
        };
        let host = endpoint.host.as_deref()?;
        (!read.covers(host)).then(|| {
            let names = match read.names.is_empty() {
                true => "no host".to_owned(),
                false => read.names.join(", "),
            };
            format!(
                "the certificate in secret `{}` is for {names}, not for {host}",
                tls.secret
            )
        })
    }

    fn ends_soon(&self, tls: &Tls) -> Option<String> {
        let left = self
            .read(tls)
            .ok()?
            .not_after_unix_secs
            .saturating_sub(self.now_unix_secs);
        (left < ENDS_SOON_SECS).then(|| {
            format!(
                "the certificate in secret `{}` ends in {} days: set a new one with `dhow secret set {}`",
                tls.secret,
                left / DAY_SECS,
                tls.secret
            )
        })
    }
}

fn tls_endpoints(spec: &DeploymentSpec) -> impl Iterator<Item = (&ServiceName, &Endpoint, &Tls)> {
    spec.services.iter().flat_map(|(service, spec)| {
        let endpoints = Arc::as_ref(spec).endpoints.iter();
        endpoints.filter_map(move |endpoint| Some((service, endpoint, endpoint.tls.as_ref()?)))
    })
}
