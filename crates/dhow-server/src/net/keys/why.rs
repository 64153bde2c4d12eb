//! The words for a connection that was refused.

use std::error::Error;
use std::io;

use rustls::CertificateError;

use super::verify::NotMeant;

/// Why there is no connection, in the words of the innermost error that has some: those above it only repeat that
/// there is none.
pub fn tls_refusal(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) = at.downcast_ref() {
            return other.0.to_string();
        }
        match inner(at) {
            Some(next) => at = next,
            None => return at.to_string(),
        }
    }
}

/// Whether there is no connection because the server belongs to another cluster.
pub fn is_other_cluster(error: &(dyn Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) = error.downcast_ref()
        {
            return other.0.downcast_ref() == Some(&NotMeant::OtherCluster);
        }
        at = inner(error);
    }
    false
}

/// Whether there is no connection because of the certificate that was shown, or because none was.
pub(crate) fn is_refused_certificate(error: &(dyn Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) =
            error.downcast_ref()
        {
            return true;
        }
        at = inner(error);
    }
    false
}

/// An error inside an `io::Error` is not among its sources.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let inner = inner.map(|inner| inner as &(dyn Error + 'static));
    inner.or_else(|| error.source())
}
