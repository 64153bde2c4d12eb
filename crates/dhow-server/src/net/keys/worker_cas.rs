//! The CAs of the workers that a server trusts: the newest one makes certificates, the ones before it are still
//! believed while certificates of theirs may be in use.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dhow_core::ids::NodeId;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use super::cluster_ca::ClusterCa;
use super::cluster_key::ClusterKey;
use super::error::IssueError;
use super::pinned::provider;
use super::worker_ca::WorkerCa;
use super::worker_key::Validity;

/// How long a worker's certificate is good. It is renewed after two thirds of that; what was stolen ends by itself.
pub const WORKER_CERT_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// The workers' CAs that this server trusts. Connections ask it whom to believe at the moment, so that a rotation needs
/// no restart.
pub struct WorkerCas {
    key: ClusterKey,
    cluster_ca: Arc<ClusterCa>,
    trusted: RwLock<Arc<Trusted>>,
}

struct Trusted {
    /// The newest first; at least one.
    newest: WorkerCa,
    older: Vec<WorkerCa>,
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for WorkerCas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerCas({})", self.trusted().newest.generation())
    }
}

impl Trusted {
    fn new(key: &ClusterKey, newest: u32, older: &[u32]) -> Result<Self, IssueError> {
        let newest = WorkerCa::new(key, newest)?;
        let older: Result<Vec<_>, _> = older
            .iter()
            .map(|generation| WorkerCa::new(key, *generation))
            .collect();
        let older = older?;
        let mut roots = RootCertStore::empty();
        for ca in std::iter::once(&newest).chain(&older) {
            roots.add(ca.certificate().clone()).map_err(IssueError::Key)?;
        }
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let verifier = verifier.allow_unauthenticated().build();
        let verifier = verifier.map_err(|error| IssueError::Key(Error::General(error.to_string())))?;
        Ok(Self {
            newest,
            older,
            roots,
            verifier,
        })
    }
}

impl WorkerCas {
    /// The generation that makes certificates, and those before it that are still believed.
    pub fn new(
        key: &ClusterKey,
        cluster_ca: Arc<ClusterCa>,
        newest: u32,
        older: &[u32],
    ) -> Result<Self, IssueError> {
        let trusted = Trusted::new(key, newest, older)?;
        Ok(Self {
            key: key.clone(),
            cluster_ca,
            trusted: RwLock::new(Arc::new(trusted)),
        })
    }

    /// From now on these; says whether that is news. Connections that are open stay.
    pub fn trust(&self, newest: u32, older: &[u32]) -> Result<bool, IssueError> {
        let now = self.trusted();
        let known = now.older.iter().map(WorkerCa::generation);
        if now.newest.generation() == newest && known.eq(older.iter().copied()) {
            return Ok(false);
        }
        let fresh = Arc::new(Trusted::new(&self.key, newest, older)?);
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }

    fn trusted(&self) -> Arc<Trusted> {
        let trusted = self.trusted.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&trusted)
    }

    /// Who is believed to be a worker, as a store of roots.
    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.trusted().roots)
    }

    /// Every CA that is believed, the newest first, as PEM.
    pub fn pem(&self) -> String {
        let trusted = self.trusted();
        let all = std::iter::once(&trusted.newest).chain(&trusted.older);
        all.map(WorkerCa::pem).collect()
    }

    /// The certificate of a worker's proxy for the key of a request, as PEM.
    pub fn issue_proxy(
        &self,
        csr_pem: &str,
        node: NodeId,
        cluster_id: &str,
        now_unix_secs: i64,
    ) -> Result<String, IssueError> {
        let newest = &self.trusted().newest;
        newest.issue_proxy(csr_pem, node, cluster_id, now_unix_secs, WORKER_CERT_LIFETIME)
    }

    /// A certificate for the key of a request, its CA, and the CA of the servers, as PEM.
    pub fn issue(
        &self,
        csr_pem: &str,
        node: NodeId,
        cluster_id: &str,
        now_unix_secs: i64,
    ) -> Result<String, IssueError> {
        let newest = &self.trusted().newest;
        let chain = newest.issue_worker(csr_pem, node, cluster_id, now_unix_secs, WORKER_CERT_LIFETIME)?;
        Ok(format!("{chain}{}", self.cluster_ca.pem()))
    }
}

/// Whom the proxies of nodes believe: the servers' CA, and those of workers, as PEM.
pub fn believed_cas_pem(key: &ClusterKey, newest: u32, older: &[u32]) -> Result<String, IssueError> {
    let mut pem = ClusterCa::new(key)?.pem();
    for generation in std::iter::once(&newest).chain(older) {
        pem.push_str(&WorkerCa::new(key, *generation)?.pem());
    }
    Ok(pem)
}

/// Believes the workers' certificates, also one that has expired: whoever ends TLS looks at its age, because such a
/// one is good for a renewal and for nothing else.
#[derive(Debug)]
pub(super) struct WorkerVerifier(pub Arc<WorkerCas>);

impl ClientCertVerifier for WorkerVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    /// Who joins has none.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// A worker has one certificate and shows it: hints would only lengthen the greeting.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let trusted = self.0.trusted();
        // A CA of our own signs leaves and nothing between, so that the others in the chain are never links.
        let judged = trusted.verifier.verify_client_cert(leaf, &[], now);
        let has_expired = matches!(
            judged,
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. }
            ))
        );
        let end =
            Validity::of_leaf(leaf).and_then(|validity| u64::try_from(validity.not_after_unix_secs).ok());
        match end.filter(|_| has_expired) {
            Some(end) => {
                let then = UnixTime::since_unix_epoch(Duration::from_secs(end));
                trusted.verifier.verify_client_cert(leaf, &[], then)
            }
            None => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let trusted = self.0.trusted();
        trusted.verifier.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let trusted = self.0.trusted();
        trusted.verifier.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.trusted().verifier.supported_verify_schemes()
    }
}
