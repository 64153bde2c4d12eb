//! The certificate of an endpoint, as a secret holds it: the chain and its key, one after the other, as PEM.
//!
//! Servers look at it before they let a deployment name it, and the balancer before it shows it: one that cannot serve
//! never takes the place of one that does. Nothing here quotes a key.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Certificates of one chain: a leaf and some between it and a root that clients know.
const CHAIN_MAX: usize = 16;

/// A certificate that can be shown now.
#[derive(Clone, Debug)]
pub struct EndpointCertificate {
    pub key: Arc<CertifiedKey>,
    /// The hosts that it is for, in lower case; `*.` stands for one label.
    pub names: Vec<String>,
    pub not_before_unix_secs: i64,
    pub not_after_unix_secs: i64,
}

/// Why a secret's value cannot be shown as a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    #[error("it holds no certificate in PEM form: it must begin with `-----BEGIN CERTIFICATE-----`")]
    NoCertificate,
    #[error("it holds no private key in PEM form beside the certificate")]
    NoKey,
    #[error(
        "it holds more than {CHAIN_MAX} certificates: the server's own and those that signed it are enough"
    )]
    TooMany,
    #[error("its first certificate cannot be read")]
    Unreadable,
    #[error("its key is of a kind that TLS does not use here: it must be RSA, ECDSA or Ed25519")]
    KeyKind,
    #[error("its key does not belong to its first certificate: the server's own certificate comes first")]
    OtherKey,
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet")]
    NotYet,
}

impl EndpointCertificate {
    /// Reads a secret's value, and refuses what no client would believe at this moment.
    pub fn read(pem: &[u8], now_unix_secs: i64) -> Result<Self, CertificateProblem> {
        let read = Self::read_of_any_time(pem)?;
        if now_unix_secs > read.not_after_unix_secs {
            return Err(CertificateProblem::Expired);
        }
        if now_unix_secs < read.not_before_unix_secs {
            return Err(CertificateProblem::NotYet);
        }
        Ok(read)
    }

    /// The same for one that was good when it was taken.
    pub fn read_of_any_time(pem: &[u8]) -> Result<Self, CertificateProblem> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let chain = chain.map_err(|_| CertificateProblem::NoCertificate)?;
        let leaf = chain.first().ok_or(CertificateProblem::NoCertificate)?;
        if chain.len() > CHAIN_MAX {
            return Err(CertificateProblem::TooMany);
        }
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| CertificateProblem::Unreadable)?;
        let (names, validity) = (names_of(&parsed), parsed.validity());
        let not_before_unix_secs = validity.not_before.timestamp();
        let not_after_unix_secs = validity.not_after.timestamp();
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| CertificateProblem::NoKey)?;
        let signing = provider().key_provider.load_private_key(key);
        let key = CertifiedKey::new(chain, signing.map_err(|_| CertificateProblem::KeyKind)?);
        key.keys_match().map_err(|_| CertificateProblem::OtherKey)?;
        Ok(Self {
            key: Arc::new(key),
            names,
            not_before_unix_secs,
            not_after_unix_secs,
        })
    }

    /// Whether clients of a host, or of all below `*.`, believe it.
    pub fn covers(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let above = host.split_once('.').map(|(_, above)| above);
        self.names.iter().any(|name| {
            let wild = name.strip_prefix("*.");
            *name == host || (wild.is_some() && wild == above)
        })
    }
}

/// The one provider of this build.
fn provider() -> CryptoProvider {
    ring::default_provider()
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice());
    let names = names.unwrap_or_default().iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => ip(bytes),
        _ => None,
    });
    names.collect()
}

fn ip(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    v4.or_else(|_| v6()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_2026: i64 = 1_780_000_000;

    /// For `shop.test` and all below `wild.test`, valid in 2026 alone: the chain, its key and another one.
    fn made() -> [String; 3] {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = ["shop.test", "*.wild.test"].map(str::to_owned);
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let chain = params.self_signed(&key).unwrap().pem();
        let other = rcgen::KeyPair::generate().unwrap();
        [chain, key.serialize_pem(), other.serialize_pem()]
    }

    fn read(text: &str, now: i64) -> Result<EndpointCertificate, CertificateProblem> {
        EndpointCertificate::read(text.as_bytes(), now)
    }

    #[test]
    fn a_chain_with_its_key_is_read_in_either_order() {
        let [chain, key, _] = made();
        for text in [format!("{chain}{key}"), format!("{key}{chain}")] {
            let read = read(&text, IN_2026).unwrap();
            assert_eq!(read.names, ["shop.test", "*.wild.test"]);
            assert!(read.not_before_unix_secs < IN_2026 && read.not_after_unix_secs > IN_2026);
        }
    }

    #[test]
    fn what_cannot_serve_is_refused_with_the_reason() {
        use CertificateProblem as Problem;
        let [chain, key, other] = made();
        let both = format!("{chain}{key}");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, now, why) in [
            ("hello".to_owned(), IN_2026, Problem::NoCertificate),
            (key.clone(), IN_2026, Problem::NoCertificate),
            (chain.clone(), IN_2026, Problem::NoKey),
            (format!("{chain}{other}"), IN_2026, Problem::OtherKey),
            (both.clone(), 1_900_000_000, Problem::Expired),
            (both, 1_600_000_000, Problem::NotYet),
            (format!("{}{key}", chain.repeat(17)), IN_2026, Problem::TooMany),
            (format!("{broken}{key}"), IN_2026, Problem::Unreadable),
        ] {
            assert_eq!(read(&text, now).unwrap_err(), why);
        }
    }

    #[test]
    fn hosts_are_covered_by_name_or_by_one_label() {
        let read = read(&made()[..2].concat(), IN_2026).unwrap();
        for host in ["shop.test", "SHOP.test.", "a.wild.test", "*.wild.test"] {
            assert!(read.covers(host), "{host}");
        }
        for host in ["test", "a.shop.test", "wild.test", "a.b.wild.test", "*.test", ""] {
            assert!(!read.covers(host), "{host}");
        }
    }
}
