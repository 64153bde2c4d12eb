//! A share of a whole in percent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// From 0 % to 100 %, in whole percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

/// A text that is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no share: write a whole number from 0 to 100 and `%`, such as `5%`")]
pub struct PercentError(String);

impl Percent {
    pub const NONE: Self = Self(0);

    // The reference is what serde hands over.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// How many hundredths.
    pub fn hundredths(self) -> u32 {
        u32::from(self.0)
    }

    /// So much of a number, rounded down.
    pub fn of(self, whole: u32) -> u32 {
        let part = u64::from(whole) * u64::from(self.0) / 100;
        u32::try_from(part).unwrap_or(whole)
    }
}

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, PercentError> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let share = number.and_then(|number| number.parse().ok());
        let share = share.filter(|share| *share <= 100);
        share.map(Self).ok_or_else(|| PercentError(text.into()))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_whole_number_of_percent() {
        let share = |text: &str| text.parse::<Percent>();
        assert_eq!(share("5%").map(|share| share.of(40)), Ok(2));
        assert_eq!(share("5 %").map(|share| share.of(39)), Ok(1), "rounded down");
        assert_eq!(share("100%").map(|share| share.of(u32::MAX)), Ok(u32::MAX));
        for wrong in ["5", "%", "-5%", "101%", "0.5%", "+5%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(share("7%").map(|share| share.to_string()), Ok("7%".to_owned()));
    }
}
