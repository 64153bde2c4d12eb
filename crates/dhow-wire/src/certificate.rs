//! Names in the cluster's certificates, and who they prove somebody to be. Pure: signatures are verified by whoever ends
//! TLS, before anything here is asked.

use std::fmt;

use dhow_core::ids::NodeId;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Subjects of the two kinds of CA. They differ, so that the issuer of a leaf, whose signature was verified, tells
/// which kind made it: a worker's CA can make no server, whatever its leaf says.
pub const CLUSTER_CA_NAME: &str = "Dhow servers";
const WORKER_CA_NAME: &str = "Dhow workers";

const SCHEME: &str = "dhow://";
const NODE: &str = "node";
const WORKER: &str = "worker";
const PROXY: &str = "proxy";

/// Who the certificate of a connection proves the caller to be. The end of TLS puts it into each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server of this cluster, or a peer of a static one.
    Member(NodeId),
    /// A worker that was given a certificate.
    Worker(NodeId),
}

/// By what name it is known, in the record of who did what too.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(node) => write!(f, "node {node}"),
            Self::Worker(node) => write!(f, "worker {node}"),
        }
    }
}

/// The URI in a server's certificate.
pub fn node_uri(node: NodeId) -> String {
    format!("{SCHEME}{NODE}/{node}")
}

/// The URI in the certificate of a server's proxy. It proves nothing but which node's proxy this is: whoever takes the
/// proxy's key is no server by it.
pub fn proxy_uri(node: NodeId) -> String {
    format!("{SCHEME}{PROXY}/{node}")
}

/// The name of a server in its certificate.
pub fn node_dns_name(node: NodeId) -> String {
    format!("node-{node}.dhow.internal")
}

pub fn worker_ca_name(generation: u32) -> String {
    format!("{WORKER_CA_NAME} {generation}")
}

/// None where the cluster's id has characters that would end the part of the name.
pub fn worker_uri(cluster_id: &str, node: NodeId) -> Option<String> {
    uri_of(cluster_id, WORKER, node)
}

/// The URI in the certificate of a worker's proxy, which is no worker by it.
pub fn worker_proxy_uri(cluster_id: &str, node: NodeId) -> Option<String> {
    uri_of(cluster_id, PROXY, node)
}

fn uri_of(cluster_id: &str, kind: &str, node: NodeId) -> Option<String> {
    const CLUSTER_ID_CHARS_MAX: usize = 128;
    let fits = (1..=CLUSTER_ID_CHARS_MAX).contains(&cluster_id.len())
        && cluster_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    fits.then(|| format!("{SCHEME}{cluster_id}/{kind}/{node}"))
}

/// Who the owner of a certificate is, given as DER. Its signature was verified before: this only reads.
pub fn identity_of(certificate: &[u8]) -> Option<Identity> {
    let (issuer, uri) = read(certificate)?;
    let mut parts = uri.strip_prefix(SCHEME)?.split('/');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        (NODE, id, None, None) if issuer == CLUSTER_CA_NAME => Some(Identity::Member(number(id)?)),
        (_, WORKER, Some(id), None) if is_worker_ca(&issuer) => Some(Identity::Worker(number(id)?)),
        _ => None,
    }
}

/// The node whose proxy shows this certificate to the proxies of other nodes. It is the proxy's own: that of a server or a
/// worker is none. Its signature was verified before.
pub fn proxy_node_of(certificate: &[u8]) -> Option<NodeId> {
    let (issuer, uri) = read(certificate)?;
    let mut parts = uri.strip_prefix(SCHEME)?.split('/');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        (PROXY, id, None, None) if issuer == CLUSTER_CA_NAME => number(id),
        (_, PROXY, Some(id), None) if is_worker_ca(&issuer) => number(id),
        _ => None,
    }
}

/// The cluster that a worker's certificate names.
pub fn worker_cluster_of(certificate: &[u8]) -> Option<String> {
    let (issuer, uri) = read(certificate)?;
    let (cluster, rest) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    (is_worker_ca(&issuer) && rest.starts_with(WORKER)).then(|| cluster.to_owned())
}

/// Whether a certificate that came from a server of the cluster is the CA of the servers: it is for nobody else's.
pub fn is_cluster_ca(certificate: &[u8]) -> bool {
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
fn read(certificate: &[u8]) -> Option<(String, String)> {
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
