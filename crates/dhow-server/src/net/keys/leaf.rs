//! Names in certificates, and who they prove somebody to be.

use dhow_core::ids::NodeId;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::net::identity::Identity;

/// Subjects of the two kinds of CA. They differ, so that the issuer of a leaf, whose signature was verified, tells
/// which kind made it: a worker's CA can make no server, whatever its leaf says.
pub(super) const CLUSTER_CA_NAME: &str = "Dhow servers";
pub(super) const WORKER_CA_NAME: &str = "Dhow workers";

const SCHEME: &str = "dhow://";
const NODE: &str = "node";
const WORKER: &str = "worker";

pub(super) fn node_uri(node: NodeId) -> String {
    format!("{SCHEME}{NODE}/{node}")
}

/// The name of a server in its certificate.
pub fn node_dns_name(node: NodeId) -> String {
    format!("node-{node}.dhow.internal")
}

pub(super) fn worker_ca_name(generation: u32) -> String {
    format!("{WORKER_CA_NAME} {generation}")
}

/// None where the cluster's id has characters that would end the part of the name.
pub(super) fn worker_uri(cluster_id: &str, node: NodeId) -> Option<String> {
    const CLUSTER_ID_CHARS_MAX: usize = 128;
    let fits = (1..=CLUSTER_ID_CHARS_MAX).contains(&cluster_id.len())
        && cluster_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    fits.then(|| format!("{SCHEME}{cluster_id}/{WORKER}/{node}"))
}

/// Who the owner of a certificate is. Its signature was verified before: this only reads.
pub fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (issuer, uri) = read(certificate)?;
    let mut parts = uri.strip_prefix(SCHEME)?.split('/');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        (NODE, id, None, None) if issuer == CLUSTER_CA_NAME => Some(Identity::Member(number(id)?)),
        (_, WORKER, Some(id), None) if is_worker_ca(&issuer) => Some(Identity::Worker(number(id)?)),
        _ => None,
    }
}

/// The cluster that a worker's certificate names.
pub fn worker_cluster_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let (issuer, uri) = read(certificate)?;
    let (cluster, rest) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    (is_worker_ca(&issuer) && rest.starts_with(WORKER)).then(|| cluster.to_owned())
}

/// Whether a certificate that came from a server of the cluster is the CA of the servers: it is for nobody else's.
pub(super) fn is_cluster_ca(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let mut names = parsed.subject().iter_common_name();
    let name = names.next().and_then(|name| name.as_str().ok());
    name == Some(CLUSTER_CA_NAME)
}

fn is_worker_ca(issuer: &str) -> bool {
    let generation = issuer.strip_prefix(WORKER_CA_NAME);
    generation.is_some_and(|rest| {
        rest.strip_prefix(' ')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// The issuer's name and the only URI.
fn read(certificate: &CertificateDer<'_>) -> Option<(String, String)> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let mut issuers = parsed.issuer().iter_common_name();
    let issuer = issuers.next()?.as_str().ok()?.to_owned();
    let names = parsed.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let uri = uris.next()?.to_owned();
    (uris.next().is_none() && issuers.next().is_none()).then_some((issuer, uri))
}

/// One number has one text.
fn number(text: &str) -> Option<NodeId> {
    let id = text.parse::<u64>().ok()?;
    (id.to_string() == text).then_some(NodeId(id))
}
