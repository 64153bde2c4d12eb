//! Which registries are spoken to how.

use std::net::IpAddr;

use super::RegistryOptions;

/// How far a registry is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trust {
    /// HTTPS with a certificate that an authority vouches for.
    Verified,
    /// Plain HTTP, or HTTPS with any certificate: the user said so.
    Insecure,
    /// As insecure, and never through a proxy: it is on this machine.
    Loopback,
}

/// The scheme that a registry was found to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn url(self, host: &str, path: &str) -> String {
        match self {
            Self::Http => format!("http://{host}{path}"),
            Self::Https => format!("https://{host}{path}"),
        }
    }
}

impl Trust {
    /// `host` may carry a port.
    pub fn of(host: &str, options: &RegistryOptions) -> Self {
        let name = without_port(host);
        if is_loopback(name) {
            return Self::Loopback;
        }
        let named = options
            .insecure
            .iter()
            .any(|entry| entry == host || entry == name);
        if named { Self::Insecure } else { Self::Verified }
    }
}

pub(super) fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    host.split_once(':').map_or(host, |(name, _)| name)
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_named_registries_are_trusted_less() {
        let insecure = vec!["lab.example:5000".to_owned(), "box".to_owned()];
        let options = RegistryOptions {
            insecure,
            ..RegistryOptions::default()
        };
        let cases = [
            ("ghcr.io", Trust::Verified),
            ("127.0.0.1:5000", Trust::Loopback),
            ("127.9.9.9", Trust::Loopback),
            ("[::1]:5000", Trust::Loopback),
            ("localhost:5000", Trust::Loopback),
            ("localhost.example", Trust::Verified),
            ("lab.example:5000", Trust::Insecure),
            ("lab.example:5001", Trust::Verified),
            ("box:1", Trust::Insecure),
        ];
        for (host, trust) in cases {
            assert_eq!(Trust::of(host, &options), trust, "{host}");
        }
    }
}
