//! A range of addresses, as people write it: `10.0.0.0/8`, `2001:db8::/32`, or one address alone.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpRange {
    base: IpAddr,
    bits: u8,
}

/// Why a text is no range, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpRangeError {
    #[error(
        "`{0}` is no range of addresses: write an address, or one with the number of its fixed bits such as `10.0.0.0/8`"
    )]
    Form(String),
    #[error("`{text}` does not begin with the first address of its range, which is `{first}`")]
    NotFirst { text: String, first: IpRange },
}

impl IpRange {
    /// Whether an address is one of them. An IPv4 address that came in the clothes of IPv6 is one of IPv4.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.base, addr.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(addr)) => first_v4(addr, self.bits) == base,
            (IpAddr::V6(base), IpAddr::V6(addr)) => first_v6(addr, self.bits) == base,
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn first_v4(addr: Ipv4Addr, bits: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    Ipv4Addr::from_bits(addr.to_bits() & mask)
}

fn first_v6(addr: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Ipv6Addr::from_bits(addr.to_bits() & mask)
}

impl FromStr for IpRange {
    type Err = IpRangeError;

    fn from_str(text: &str) -> Result<Self, IpRangeError> {
        let wrong = || IpRangeError::Form(text.into());
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let bits_max = match base {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
                bits.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
            None => bits_max,
        };
        if bits > bits_max {
            return Err(wrong());
        }
        let first = match base {
            IpAddr::V4(base) => first_v4(base, bits).into(),
            IpAddr::V6(base) => first_v6(base, bits).into(),
        };
        match first == base {
            true => Ok(Self { base, bits }),
            false => Err(IpRangeError::NotFirst {
                text: text.into(),
                first: Self { base: first, bits },
            }),
        }
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.base, self.bits) {
            (IpAddr::V4(base), 32) => base.fmt(f),
            (IpAddr::V6(base), 128) => base.fmt(f),
            (base, bits) => write!(f, "{base}/{bits}"),
        }
    }
}

impl Serialize for IpRange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IpRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_addresses_that_begin_alike() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
        ] {
            let parsed: IpRange = range.parse().unwrap();
            assert_eq!(parsed.to_string(), range);
            assert!(parsed.contains(inside.parse().unwrap()), "{inside} in {range}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{outside} in {range}");
            let json = serde_json::to_string(&parsed).unwrap();
            assert_eq!(serde_json::from_str::<IpRange>(&json).unwrap(), parsed);
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "all",
            "10.0.0.1:80",
        ] {
            assert_eq!(
                text.parse::<IpRange>(),
                Err(IpRangeError::Form(text.into())),
                "{text}"
            );
        }
        let error = "10.0.0.1/8".parse::<IpRange>().unwrap_err();
        assert!(error.to_string().contains("`10.0.0.0/8`"), "{error}");
    }
}
