//! HTTPS with a certificate that has to be verified. The server is on loopback, which the driver would not
//! insist on verifying; here it has to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::endpoint::Trust;
use super::*;
use crate::image::digest::Digest;
use crate::image::error::{ImageError, RegistryTrouble, Subject};
use crate::image::reference::ImageRef;

const MANIFEST: &[u8] = b"a manifest";

struct TlsRegistry {
    host: String,
    authority_file: PathBuf,
    _dir: TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TlsRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers every request with the same manifest.
async fn start() -> TlsRegistry {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let authority_file = dir.path().join("authority.pem");
    std::fs::write(&authority_file, authority.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust us, or speaks plain HTTP, is let go.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                MANIFEST.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), MANIFEST].concat()).await;
            let _ = stream.shutdown().await;
        }
    });
    TlsRegistry {
        host,
        authority_file,
        _dir: dir,
        task,
    }
}

async fn manifest(
    registry: &TlsRegistry,
    trust: Trust,
    authorities: &[PathBuf],
) -> Result<Vec<u8>, ImageError> {
    let retry = RetryPolicy {
        max_attempts: 2,
        first_wait: Duration::ZERO,
        max_wait: Duration::ZERO,
    };
    let options = RegistryOptions {
        authority_files: authorities.to_vec(),
        docker_config_file: Some(PathBuf::from("/nonexistent")),
        retry,
        ..RegistryOptions::default()
    };
    let client = Arc::new(RegistryClient::new(options)?);
    let reference: ImageRef = format!("{}/app:1", registry.host).parse()?;
    let subject = Subject::of(&reference);
    let ImageRef::Registry(reference) = reference else {
        panic!("a registry reference")
    };
    let mut repository = Repository::open(client, reference, subject).await?;
    assert_eq!(repository.trust, Trust::Loopback);
    repository.trust = trust;
    repository.manifest(Digest::of(MANIFEST)).await
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_trusted() {
    let registry = start().await;
    let authorities = [registry.authority_file.clone()];
    assert_eq!(
        manifest(&registry, Trust::Verified, &authorities).await.unwrap(),
        MANIFEST
    );
}

#[tokio::test]
async fn an_unknown_certificate_is_refused_and_said_so() {
    let registry = start().await;
    // Another authority, so that there is one at all on hosts without any.
    let other = start().await;
    let error = manifest(
        &registry,
        Trust::Verified,
        std::slice::from_ref(&other.authority_file),
    )
    .await
    .unwrap_err();
    let ImageError::Unreachable { trouble, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*trouble, RegistryTrouble::Untrusted, "{error:?}");
}

#[tokio::test]
async fn a_registry_on_loopback_may_speak_tls_with_any_certificate() {
    let registry = start().await;
    assert_eq!(manifest(&registry, Trust::Loopback, &[]).await.unwrap(), MANIFEST);
}

#[tokio::test]
async fn an_authority_file_that_is_none_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("authority.pem");
    std::fs::write(&file, "no certificate").unwrap();
    for path in [file, dir.path().join("missing")] {
        let options = RegistryOptions {
            authority_files: vec![path.clone()],
            ..RegistryOptions::default()
        };
        let error = RegistryClient::new(options).unwrap_err();
        assert!(
            matches!(&error, ImageError::Certificate { path: named, .. } if *named == path),
            "{error:?}"
        );
    }
}
