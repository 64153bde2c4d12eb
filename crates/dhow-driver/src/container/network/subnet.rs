//! A range of IPv4 addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Such as `10.88.4.0/22`. The first address is the bridge's own, the last is for broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    base: u32,
    prefix_length: u8,
}

/// A text that is no subnet.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no subnet for replicas: write for example 10.88.4.0/22, with 16 to 29 bits")]
pub struct SubnetError {
    text: String,
}

impl Subnet {
    /// Two hosts at least, 65,534 at most: a bridge has 1,023 ports anyway.
    const LENGTHS: std::ops::RangeInclusive<u8> = 16..=29;

    pub fn new(address: Ipv4Addr, prefix_length: u8) -> Option<Self> {
        let mask = Self::mask(prefix_length);
        Self::LENGTHS.contains(&prefix_length).then(|| Self {
            base: address.to_bits() & mask,
            prefix_length,
        })
    }

    fn mask(prefix_length: u8) -> u32 {
        u32::MAX
            .checked_shl(u32::from(32_u8.saturating_sub(prefix_length)))
            .unwrap_or(0)
    }

    pub fn prefix_length(self) -> u8 {
        self.prefix_length
    }

    /// The address that it begins with.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base)
    }

    /// The first host's address: the bridge's own; in the range of services the name server's.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + 1)
    }

    /// How many replicas it has addresses for.
    pub fn count(self) -> u32 {
        !Self::mask(self.prefix_length) - 2
    }

    /// The address of this number, from 0.
    pub fn address(self, number: u32) -> Option<Ipv4Addr> {
        (number < self.count()).then(|| Ipv4Addr::from_bits(self.base + 2 + number))
    }

    pub fn overlaps(self, address: Ipv4Addr, prefix_length: u8) -> bool {
        let mask = Self::mask(prefix_length.min(self.prefix_length));
        (self.base & mask) == (address.to_bits() & mask)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.prefix_length)
    }
}

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let parse = || {
            let (address, length) = text.split_once('/')?;
            Self::new(address.parse().ok()?, length.parse().ok()?)
        };
        parse().ok_or_else(|| SubnetError {
            text: text.to_owned(),
        })
    }
}

impl TryFrom<String> for Subnet {
    type Error = SubnetError;

    fn try_from(text: String) -> Result<Self, SubnetError> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_from_behind_the_bridge() {
        let subnet: Subnet = "10.88.6.9/22".parse().unwrap();
        assert_eq!(subnet.to_string(), "10.88.4.0/22");
        assert_eq!(subnet.gateway().to_string(), "10.88.4.1");
        assert_eq!(subnet.count(), 1021);
        assert_eq!(subnet.address(0).unwrap().to_string(), "10.88.4.2");
        assert_eq!(subnet.address(1020).unwrap().to_string(), "10.88.7.254");
        assert_eq!(subnet.address(1021), None);
        for (other, length, overlaps) in [
            ("10.88.7.1", 24, true),
            ("10.0.0.0", 8, true),
            ("10.88.8.1", 22, false),
            ("192.168.0.1", 16, false),
        ] {
            assert_eq!(
                subnet.overlaps(other.parse().unwrap(), length),
                overlaps,
                "{other}/{length}"
            );
        }
        for bad in ["", "10.0.0.0", "10.0.0.0/8", "10.0.0.0/30", "x/24"] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
    }
}
