//! Whether the secrets that endpoints name hold certificates that can be shown, and how those stand that are ordered: looked
//! at before a deployment is taken, and whenever somebody asks how it does. What is wrong is said in words that quote no
//! secret.

use std::sync::Arc;

use dhow_core::acme;
use dhow_core::ids::ServiceName;
use dhow_core::spec::{DeploymentSpec, Endpoint, Tls};
use dhow_core::state::State;
use dhow_wire::EndpointCertificate;

use crate::clock::shown_utc;
use crate::plane::acme::Kept;
use crate::plane::secrets::{SecretBox, unseal_all};

const NOBODY_ORDERS: &str = "this server orders no certificates: name an ACME server with `acme` in the configuration of the \
                             servers, or a certificate with `secret`";
/// A certificate that ends within this time is told of.
const ENDS_SOON_SECS: i64 = 7 * 86_400;
const DAY_SECS: i64 = 86_400;

/// Looks at the certificates of endpoints at one moment.
pub struct CertificateLook<'a> {
    pub secrets: &'a Arc<SecretBox>,
    pub state: &'a State,
    pub now_unix_secs: i64,
    /// Whether this server's configuration names an ACME server.
    pub orders: bool,
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
            let why = match tls.is_by_acme() {
                true => (!self.orders).then(|| NOBODY_ORDERS.to_owned()),
                false => self.problem(endpoint, tls),
            };
            let why = why.filter(|_| is_new)?;
            Some(format!("endpoint {service}/{}: {why}", endpoint.name))
        })
    }

    /// What is wrong with the certificates of a deployment, or soon will be; of one of its services where that is named.
    pub fn notes(&self, spec: &DeploymentSpec, only: Option<&str>) -> Vec<String> {
        let asked =
            tls_endpoints(spec).filter(|(service, ..)| only.is_none_or(|only| only == service.as_str()));
        let notes = asked.filter_map(|(service, endpoint, tls)| {
            let why = match (acme::host_of(&tls.secret), self.problem(endpoint, tls)) {
                (Some(host), problem) => self.order(host, problem.is_some())?,
                (None, Some(why)) => format!("{why}; nodes show the last one that was good"),
                (None, None) => self.ends_soon(tls)?,
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

    /// How the order for a host stands, where there is something to say.
    fn order(&self, host: &str, is_missing: bool) -> Option<String> {
        let mut kept = Kept::new(Arc::clone(self.secrets));
        let lifetime = kept.lifetime(self.state, host);
        let failures = kept.failures(self.state, &acme::failure_of(host));
        let account = || kept.failures(self.state, acme::ACCOUNT_FAILURE);
        let failed = failures.or_else(account).map(|failures| {
            let (at, next) = (
                shown_utc(failures.failed_unix_secs),
                shown_utc(failures.next_unix_secs),
            );
            let times = match failures.count {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            };
            format!(
                "it failed {times}, last at {at}: {}; it is tried again at {next}",
                failures.words
            )
        });
        let nobody = (!self.orders).then(|| NOBODY_ORDERS.to_owned());
        let how = failed.or(nobody);
        match (is_missing, how) {
            (true, how) => {
                let how = how.unwrap_or_else(|| "it is under way".to_owned());
                Some(format!(
                    "the certificate for {host} is not there yet, its order: {how}; until then {host} is served without TLS, at port 80"
                ))
            }
            (false, Some(how)) => {
                let until = lifetime.map_or_else(String::new, |lifetime| {
                    format!(
                        ", which is good until {}",
                        shown_utc(lifetime.not_after_unix_secs)
                    )
                });
                Some(format!(
                    "the certificate for {host}{until}, is to be renewed: {how}"
                ))
            }
            (false, None) => None,
        }
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
