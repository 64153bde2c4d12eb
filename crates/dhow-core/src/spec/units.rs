//! Quantities as people write them: `500ms`, `64Mi`, `0.5` of a core. Text for people and JSON, plain
//! numbers in the binary forms. Parsing never panics and never rounds silently to nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a text is not a quantity, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{0}` is not a duration: write a number and a unit, such as `500ms`, `10s`, `5m` or `1h`")]
    Duration(String),
    #[error("`{0}` is not a size: write a number and a unit, such as `64Mi`, `2Gi` or `500MB`")]
    Size(String),
    #[error("`{0}` is not a share of a CPU: write a number of cores above 0, such as `0.5` or `2`")]
    Cpu(String),
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// A length of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

impl TimeSpan {
    pub const ZERO: Self = Self(0);

    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Both together; stays at the longest instead of wrapping.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl FromStr for TimeSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Duration(text.into());
        let (number, unit) = split_unit(text.trim()).ok_or_else(wrong)?;
        let unit_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        scaled(number, unit_ms)
            .ok_or_else(wrong)?
            .map(Self)
            .ok_or_else(|| UnitError::TooLarge(text.into()))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        if self.0 == 0 {
            return f.write_str("0s");
        }
        match UNITS.iter().find(|(unit_ms, _)| self.0.is_multiple_of(*unit_ms)) {
            Some((unit_ms, unit)) => write!(f, "{}{unit}", self.0 / unit_ms),
            None => write!(f, "{}ms", self.0),
        }
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Size(text.into());
        let (number, unit) = split_unit(text.trim()).ok_or_else(wrong)?;
        let unit_bytes: u64 = match unit {
            "" | "B" => 1,
            "Ki" | "KiB" => 1 << 10,
            "Mi" | "MiB" => 1 << 20,
            "Gi" | "GiB" => 1 << 30,
            "Ti" | "TiB" => 1 << 40,
            "k" | "K" | "KB" | "kB" => 1_000,
            "M" | "MB" => 1_000_000,
            "G" | "GB" => 1_000_000_000,
            "T" | "TB" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        scaled(number, unit_bytes)
            .ok_or_else(wrong)?
            .map(Self)
            .ok_or_else(|| UnitError::TooLarge(text.into()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        match UNITS
            .iter()
            .find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// A share of CPU in thousandths of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u64);

impl Cpu {
    /// From a number of cores; refuses what is not a sensible amount.
    pub fn from_cores(cores: f64) -> Result<Self, UnitError> {
        const CORES_MAX: f64 = 1_000_000.0;
        if !cores.is_finite() || cores < 0.001 {
            return Err(UnitError::Cpu(cores.to_string()));
        }
        if cores > CORES_MAX {
            return Err(UnitError::TooLarge(cores.to_string()));
        }
        Ok(Self((cores * 1000.0).round() as u64))
    }

    pub fn cores(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl FromStr for Cpu {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let text = text.trim();
        let wrong = || UnitError::Cpu(text.into());
        if let Some(milli) = text.strip_suffix('m') {
            let milli: u64 = milli.parse().map_err(|_| wrong())?;
            return if milli == 0 {
                Err(wrong())
            } else {
                Self::from_cores(milli as f64 / 1000.0)
            };
        }
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(wrong());
        }
        Self::from_cores(text.parse().map_err(|_| wrong())?).map_err(|error| match error {
            UnitError::Cpu(_) => wrong(),
            other => other,
        })
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cores().fmt(f)
    }
}

/// Splits `64Mi` into `64` and `Mi`.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.starts_with(|c: char| c.is_ascii_digit())).then_some((number, unit.trim_start()))
}

/// `number × unit` with decimals, exact: outer `None` is no number, inner `None` too large.
fn scaled(number: &str, unit: u64) -> Option<Option<u64>> {
    const DECIMALS_MAX: usize = 9;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > DECIMALS_MAX || fraction.contains('.') {
        return None;
    }
    let Ok(whole) = whole.parse::<u64>() else {
        return Some(None);
    };
    let tenth_power = 10u128.pow(fraction.len() as u32);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    if !part.is_multiple_of(tenth_power) {
        return None;
    }
    let total = u128::from(whole) * u128::from(unit) + part / tenth_power;
    Some(u64::try_from(total).ok())
}

macro_rules! text_or_number {
    ($name:ident, $expecting:literal, $from_number:expr, $from_float:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader;
                impl de::Visitor<'_> for Reader {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        let from: fn(u64) -> Result<$name, UnitError> = $from_number;
                        from(number).map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        let number = u64::try_from(number)
                            .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))?;
                        self.visit_u64(number)
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        let from: fn(f64) -> Result<$name, UnitError> = $from_float;
                        from(number).map_err(E::custom)
                    }
                }
                if from.is_human_readable() {
                    from.deserialize_any(Reader)
                } else {
                    u64::deserialize(from).map(|raw| $name(raw))
                }
            }
        }
    };
}

text_or_number!(
    TimeSpan,
    "a duration such as `10s`",
    |number| if number == 0 {
        Ok(TimeSpan(0))
    } else {
        Err(UnitError::Duration(number.to_string()))
    },
    |number| Err(UnitError::Duration(number.to_string()))
);
text_or_number!(
    ByteSize,
    "a size such as `64Mi`",
    |number| Ok(ByteSize(number)),
    |number| Err(UnitError::Size(number.to_string()))
);
text_or_number!(
    Cpu,
    "a number of cores such as `0.5`",
    |number| Cpu::from_cores(number as f64),
    Cpu::from_cores
);

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_str(self)
        } else {
            to.serialize_u64(self.0)
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_str(self)
        } else {
            to.serialize_u64(self.0)
        }
    }
}

impl Serialize for Cpu {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.serialize_f64(self.cores())
        } else {
            to.serialize_u64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1.5s", 1_500),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(TimeSpan(ms)), "{text}");
        }
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "1.2.3s",
            "1e3s",
            "10 lightyears",
            "0.0001ms",
            ".5s",
            "٣s",
        ] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
        assert_eq!(
            "99999999999999999999s"
                .parse::<TimeSpan>()
                .unwrap_err()
                .to_string(),
            "`99999999999999999999s` is too large"
        );
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("64Mi", 64 << 20),
            ("2Gi", 2 << 30),
            ("500MB", 500_000_000),
            ("1.5Gi", 3 << 29),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["Mi", "64Xi", "-1", "", "1.0000000001Gi"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<ByteSize>("1024").unwrap(), ByteSize(1024));
        assert!(serde_json::from_str::<ByteSize>("-1").is_err());
    }

    #[test]
    fn cpus() {
        assert_eq!("0.5".parse(), Ok(Cpu(500)));
        assert_eq!("250m".parse(), Ok(Cpu(250)));
        assert_eq!(serde_json::from_str::<Cpu>("2").unwrap(), Cpu(2000));
        for text in ["0", "-1", "nan", "inf", "", "0m", "1e99", "x"] {
            assert!(text.parse::<Cpu>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for ms in [0, 1, 999, 1000, 61_000, 3_600_000, u64::MAX] {
            assert_eq!(TimeSpan(ms).to_string().parse(), Ok(TimeSpan(ms)));
        }
        for bytes in [0, 1, 1023, 1024, 3 << 29, u64::MAX] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
