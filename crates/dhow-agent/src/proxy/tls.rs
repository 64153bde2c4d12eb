//! TLS of requests from outside: which certificate a client is shown, and the handshake.
//!
//! The daemon gives certificates by the name of their secret, a table says which route shows which. Both may come first:
//! a route whose certificate is not there yet has none to show, and its clients connect again.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use dhow_core::acme;
use dhow_wire::{CertificateProblem, EndpointCertificate};
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::routes::RouteSet;

/// Certificates that a node shows at once: a host each, of some 10 KiB with its key.
pub const CERTIFICATES_MAX: usize = 4096;
/// From a connection to the end of its handshake: two round trips and a client that thinks.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// What the daemon gives: by the name of the secret its value, or nothing where what was given before still counts. Those
/// that are not named are forgotten. The thumbprint that ACME servers are answered with comes among them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenCertificates(pub BTreeMap<String, Option<String>>);

/// Nothing of a key is shown.
impl fmt::Debug for GivenCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A certificate that is not shown, and why.
pub type RefusedCertificate = (String, String);

/// The certificates that this proxy shows, by the name of their secret. Every listener asks it.
#[derive(Default)]
pub struct Certificates {
    shown: RwLock<Arc<BTreeMap<String, Shown>>>,
    /// Of the cluster's account at an ACME server.
    thumbprint: RwLock<Option<Arc<str>>>,
    tickets: Arc<Tickets>,
}

#[derive(Clone)]
struct Shown {
    key: Arc<CertifiedKey>,
    /// As it was given, for the proxy's folder.
    pem: String,
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Certificates {
    /// Shows these from now on. One that cannot be shown is named with the reason, and what was there before stays in
    /// its place.
    pub fn take(&self, given: &GivenCertificates) -> Vec<RefusedCertificate> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        self.take_as(given, |pem| EndpointCertificate::read(pem, now))
    }

    /// The same for those that were shown before: one that has expired since is still what there is.
    pub fn take_again(&self, kept: &GivenCertificates) -> Vec<RefusedCertificate> {
        self.take_as(kept, EndpointCertificate::read_of_any_time)
    }

    fn take_as(
        &self,
        given: &GivenCertificates,
        read: impl Fn(&[u8]) -> Result<EndpointCertificate, CertificateProblem>,
    ) -> Vec<RefusedCertificate> {
        let before = self.shown();
        let (mut next, mut refused) = (BTreeMap::new(), Vec::new());
        refused.extend(self.take_thumbprint(given));
        let certificates = given.0.iter().filter(|(name, _)| *name != acme::THUMBPRINT);
        for (name, value) in certificates.take(CERTIFICATES_MAX) {
            let known = before.get(name);
            let same = known.filter(|known| value.as_ref().is_none_or(|value| *value == known.pem));
            if let Some(same) = same {
                next.insert(name.clone(), same.clone());
                continue;
            }
            let Some(pem) = value else { continue };
            match read(pem.as_bytes()) {
                Ok(read) => {
                    let (key, pem) = (read.key, pem.clone());
                    next.insert(name.clone(), Shown { key, pem });
                }
                Err(problem) => {
                    refused.push((name.clone(), problem.to_string()));
                    if let Some(known) = known {
                        next.insert(name.clone(), known.clone());
                    }
                }
            }
        }
        if next != *before {
            *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
            self.tickets.renew();
        }
        refused
    }

    /// Takes the thumbprint, or says why it is none.
    fn take_thumbprint(&self, given: &GivenCertificates) -> Option<RefusedCertificate> {
        let next = match given.0.get(acme::THUMBPRINT) {
            // What was given before still counts.
            Some(None) => return None,
            Some(Some(text)) if acme::is_thumbprint(text) => Some(text.as_str().into()),
            Some(Some(_)) => {
                let why = "it is no thumbprint of a key".to_owned();
                return Some((acme::THUMBPRINT.to_owned(), why));
            }
            None => None,
        };
        *self.thumbprint.write().unwrap_or_else(PoisonError::into_inner) = next;
        None
    }

    /// What ACME servers are answered with.
    pub fn thumbprint(&self) -> Option<Arc<str>> {
        // Replaced as a whole under the lock.
        self.thumbprint
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Everything that is shown, as it was given.
    pub fn kept(&self) -> GivenCertificates {
        let shown = self.shown();
        let kept = shown
            .iter()
            .map(|(name, shown)| (name.clone(), Some(shown.pem.clone())));
        let thumbprint = self.thumbprint();
        let thumbprint = thumbprint.map(|text| (acme::THUMBPRINT.to_owned(), Some(text.to_string())));
        GivenCertificates(kept.chain(thumbprint).collect())
    }

    /// Whether there is one to show.
    pub fn has(&self, name: &str) -> bool {
        self.shown().contains_key(name)
    }

    fn shown(&self) -> Arc<BTreeMap<String, Shown>> {
        // Replaced as a whole under the lock.
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.shown().get(name).map(|shown| Arc::clone(&shown.key))
    }
}

/// The TLS of one listener.
#[derive(Clone)]
pub struct TlsDoor(TlsAcceptor);

impl TlsDoor {
    pub fn new(routes: watch::Receiver<Arc<RouteSet>>, certificates: Arc<Certificates>) -> io::Result<Self> {
        let tickets = Arc::clone(&certificates.tickets);
        let chooser = Chooser { routes, certificates };
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(io::Error::other)?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(chooser));
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&tickets) as _;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Greets a client; gives nothing where it does not greet back in time, or has no host that is served.
    pub async fn greet(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let greeted = timeout(HANDSHAKE_TIMEOUT, self.0.accept(stream)).await;
        greeted.ok()?.ok()
    }
}

/// Whether the two sides have agreed on HTTP/2.
pub fn speaks_two(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
}

/// Lets clients of all listeners of this process take up a session where they were. Its key changes with the certificates:
/// whoever was shown an earlier one greets anew.
#[derive(Default)]
struct Tickets(RwLock<Option<Arc<dyn ProducesTickets>>>);

impl Tickets {
    /// Without a key everybody greets anew each time.
    fn renew(&self) {
        let next = ring::Ticketer::new().ok();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    fn current(&self) -> Option<Arc<dyn ProducesTickets>> {
        // Replaced as a whole under the lock.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.current().is_some_and(|current| current.enabled())
    }

    fn lifetime(&self) -> u32 {
        self.current().map_or(0, |current| current.lifetime())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.current()?.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.current()?.decrypt(cipher)
    }
}

/// Chooses what a client is shown by the host that it names.
struct Chooser {
    routes: watch::Receiver<Arc<RouteSet>>,
    certificates: Arc<Certificates>,
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chooser")
    }
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let routes = self.routes.borrow();
        self.certificates.get(routes.certificate(hello.server_name())?)
    }
}
