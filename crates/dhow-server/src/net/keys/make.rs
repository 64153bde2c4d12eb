//! What the making of every certificate has in common.

use std::time::Duration;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ED25519, SanType, date_time_ymd,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use zeroize::Zeroizing;

use super::error::IssueError;

/// Clocks of servers differ: a certificate counts from this long before it was made.
const SKEW_SECS: u64 = 3_600;

/// The year 9999, the last that a certificate can name.
const LAST_UNIX_SECS: u64 = 253_370_764_800;

/// What stands before the 32 bytes of an ed25519 key in its PKCS #8 form.
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The key pair of a seed: the same for the same seed.
pub(super) fn key_pair(seed: &[u8; 32]) -> Result<KeyPair, IssueError> {
    let mut der = Zeroizing::new(Vec::with_capacity(PKCS8_HEAD.len() + seed.len()));
    der.extend_from_slice(&PKCS8_HEAD);
    der.extend_from_slice(seed);
    let der = PrivatePkcs8KeyDer::from(der.as_slice());
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?)
}

/// A CA that is the same on every server: nothing in it is a time or a random number.
pub(super) fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params.serial_number = Some(1_u64.into());
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A leaf with these names, valid from shortly before `now` on.
pub(super) fn leaf_params(
    name: &str,
    names: Vec<SanType>,
    purposes: Vec<ExtendedKeyUsagePurpose>,
    now_unix_secs: i64,
    lifetime: Duration,
) -> CertificateParams {
    let now = u64::try_from(now_unix_secs).unwrap_or(0);
    let end = now.saturating_add(lifetime.as_secs()).min(LAST_UNIX_SECS);
    let epoch = date_time_ymd(1970, 1, 1);
    let at = |secs: u64| epoch + Duration::from_secs(secs);
    let mut params = CertificateParams::default();
    params.not_before = at(now.saturating_sub(SKEW_SECS).min(LAST_UNIX_SECS));
    params.not_after = at(end);
    params.distinguished_name = common_name(name);
    params.subject_alt_names = names;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = purposes;
    params.use_authority_key_identifier_extension = true;
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
