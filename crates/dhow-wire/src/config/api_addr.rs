//! Where the API listens for TCP, if anywhere.

use std::fmt;
use std::net::SocketAddr;

use serde::{Serialize, Serializer};

/// The word that closes TCP.
pub(super) const OFF: &str = "off";

/// The setting `api_addr`: whether the API also listens on TCP, and at which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAddr {
    /// The Unix socket is the only door.
    Off,
    At(SocketAddr),
}

impl ApiAddr {
    /// The address, where there is one.
    pub fn addr(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(addr) => Some(addr),
        }
    }
}

impl fmt::Display for ApiAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str(OFF),
            Self::At(addr) => addr.fmt(f),
        }
    }
}

impl Serialize for ApiAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
