//! The words for a connection that was refused.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Why there is no connection, in the words of the innermost error that has some: those above it only repeat that
/// there is none.
pub fn tls_refusal(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) = at.downcast_ref() {
            return other.0.to_string();
        }
        // An error inside an `io::Error` is not among its sources.
        let inner = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn Error + 'static));
        match inner.or_else(|| at.source()) {
            Some(next) => at = next,
            None => return at.to_string(),
        }
    }
}
