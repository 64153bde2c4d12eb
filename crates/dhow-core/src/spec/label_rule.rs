//! One comparison of a node's label, as people write it: `cores >= 8`, `disk in [ssd, nvme]`, `gpu exists`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a node's label is compared with. A node without the label meets [`LabelTest::Differs`],
/// [`LabelTest::NotIn`] and [`LabelTest::Absent`] and no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelTest {
    Is(String),
    Differs(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    /// The label is a number or a version in one of these orders to this one.
    Compares(Comparison, String),
}

/// How two numbers are to lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Comparison {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Below => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Above => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::AtLeast => ">=",
        }
    }
}

/// A label's name and what must hold for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelRule {
    pub label: String,
    pub test: LabelTest,
}

impl LabelRule {
    /// Whether a node meets it whose label has this value, or that has no such label.
    pub fn is_met_by(&self, value: Option<&str>) -> bool {
        let is = |wanted: &String| value == Some(wanted.as_str());
        match &self.test {
            LabelTest::Is(wanted) => is(wanted),
            LabelTest::Differs(other) => !is(other),
            LabelTest::In(wanted) => wanted.iter().any(is),
            LabelTest::NotIn(others) => !others.iter().any(is),
            LabelTest::Exists => value.is_some(),
            LabelTest::Absent => value.is_none(),
            LabelTest::Compares(comparison, bound) => value
                .and_then(|value| compare_versions(value, bound))
                .is_some_and(|order| comparison.allows(order)),
        }
    }
}

/// Numbers part by part between their dots, as versions are compared: 6.10 is above 6.9. None where one of them is
/// no number.
fn compare_versions(a: &str, b: &str) -> Option<Ordering> {
    let (mut a, mut b) = (parts(a)?, parts(b)?);
    let longest = a.len().max(b.len());
    a.resize(longest, 0);
    b.resize(longest, 0);
    Some(a.cmp(&b))
}

fn parts(text: &str) -> Option<Vec<u64>> {
    let part = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
        true => part.parse().ok(),
        false => None,
    };
    text.split('.').map(part).collect()
}

/// Why a text is no comparison, with what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelRuleError {
    #[error(
        "{0:?} compares no label: write `LABEL OPERATOR VALUE`, such as `cores >= 8` or `disk in [ssd, nvme]`"
    )]
    NoOperator(String),
    #[error("`{0}` is compared with nothing: write a value behind it, such as `cores >= 8`")]
    NoValue(String),
    #[error("`{0}` takes a list: write `disk {0} [ssd, nvme]`")]
    NoList(&'static str),
    #[error("`{sign}` compares numbers and versions such as `8` or `6.1`, found {found:?}")]
    NoNumber { sign: &'static str, found: String },
    #[error("a comparison begins with the name of a label")]
    NoLabel,
}

/// A sign as it is written, and what it makes of what stands behind it.
type Sign = (&'static str, fn(String) -> LabelTest);

/// A longer one before the ones that begin it.
const SIGNS: [Sign; 7] = [
    ("==", LabelTest::Is),
    ("!=", LabelTest::Differs),
    (">=", |bound| LabelTest::Compares(Comparison::AtLeast, bound)),
    ("<=", |bound| LabelTest::Compares(Comparison::AtMost, bound)),
    (">", |bound| LabelTest::Compares(Comparison::Above, bound)),
    ("<", |bound| LabelTest::Compares(Comparison::Below, bound)),
    ("=", LabelTest::Is),
];

impl FromStr for LabelRule {
    type Err = LabelRuleError;

    fn from_str(text: &str) -> Result<Self, LabelRuleError> {
        let text = text.trim();
        let found = text.find(['=', '!', '<', '>']).and_then(|at| {
            let sign = SIGNS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
            Some((at, sign))
        });
        if let Some((at, (sign, test))) = found {
            let (label, value) = (text[..at].trim(), text[at + sign.len()..].trim());
            return by_sign(label, sign, value, *test);
        }
        let (label, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        by_word(text, label, rest.trim())
    }
}

fn by_sign(
    label: &str,
    sign: &str,
    value: &str,
    test: fn(String) -> LabelTest,
) -> Result<LabelRule, LabelRuleError> {
    if label.is_empty() {
        return Err(LabelRuleError::NoLabel);
    }
    if value.is_empty() {
        return Err(LabelRuleError::NoValue(format!("{label} {sign}")));
    }
    let test = test(unquoted(value).to_owned());
    if let LabelTest::Compares(comparison, bound) = &test
        && parts(bound).is_none()
    {
        return Err(LabelRuleError::NoNumber {
            sign: comparison.sign(),
            found: bound.clone(),
        });
    }
    Ok(LabelRule {
        label: label.to_owned(),
        test,
    })
}

fn by_word(text: &str, label: &str, rest: &str) -> Result<LabelRule, LabelRuleError> {
    if label.is_empty() {
        return Err(LabelRuleError::NoLabel);
    }
    let words: Vec<&str> = rest.splitn(2, char::is_whitespace).map(str::trim).collect();
    let list = |text: &str, word| listed(text).ok_or(LabelRuleError::NoList(word));
    let test = match words.as_slice() {
        ["exists"] => LabelTest::Exists,
        ["absent"] => LabelTest::Absent,
        ["in", values] => LabelTest::In(list(values, "in")?),
        ["in"] => return Err(LabelRuleError::NoList("in")),
        ["not", rest] => match rest.strip_prefix("in") {
            Some(values) => LabelTest::NotIn(list(values.trim(), "not in")?),
            None => return Err(LabelRuleError::NoOperator(text.to_owned())),
        },
        _ => return Err(LabelRuleError::NoOperator(text.to_owned())),
    };
    Ok(LabelRule {
        label: label.to_owned(),
        test,
    })
}

/// The values of `[a, b]` or `(a, b)`; none where it is no list, or an empty one.
fn listed(text: &str) -> Option<Vec<String>> {
    let inside = match text.as_bytes() {
        [b'[', .., b']'] | [b'(', .., b')'] => &text[1..text.len() - 1],
        _ => return None,
    };
    let values: Vec<String> = inside
        .split(',')
        .map(|value| unquoted(value.trim()).to_owned())
        .collect();
    values.iter().all(|value| !value.is_empty()).then_some(values)
}

fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

impl fmt::Display for LabelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.label;
        match &self.test {
            LabelTest::Is(value) => write!(f, "{label} == {value}"),
            LabelTest::Differs(value) => write!(f, "{label} != {value}"),
            LabelTest::In(values) => write!(f, "{label} in [{}]", values.join(", ")),
            LabelTest::NotIn(values) => write!(f, "{label} not in [{}]", values.join(", ")),
            LabelTest::Exists => write!(f, "{label} exists"),
            LabelTest::Absent => write!(f, "{label} absent"),
            LabelTest::Compares(comparison, bound) => write!(f, "{label} {} {bound}", comparison.sign()),
        }
    }
}

impl Serialize for LabelRule {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LabelRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> LabelRule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_comparison_is_read_and_written_alike() {
        for text in [
            "cores >= 8",
            "cores > 8",
            "kernel < 6.1",
            "kernel <= 6.1.7",
            "zone == a",
            "zone != b",
            "disk in [ssd, nvme]",
            "zone not in [c]",
            "gpu exists",
            "spot absent",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("cores>=8"), rule(" cores  >=  8 "));
        assert_eq!(rule("zone=a"), rule("zone == a"));
        assert_eq!(rule("disk in (ssd,'nvme')"), rule("disk in [ssd, nvme]"));
        assert_eq!(rule("zone not   in [c]"), rule("zone not in [c]"));
    }

    #[test]
    fn what_is_no_comparison_says_what_to_write() {
        for (text, part) in [
            ("gpu", "compares no label"),
            ("", "begins with the name"),
            (">= 8", "begins with the name"),
            ("cores >=", "compared with nothing"),
            ("cores >= many", "found \"many\""),
            ("disk in ssd", "write `disk in [ssd, nvme]`"),
            ("disk in []", "write `disk in [ssd, nvme]`"),
            ("disk not in", "write `disk not in [ssd, nvme]`"),
            ("disk like ssd", "compares no label"),
            ("zone ! a", "compares no label"),
        ] {
            let error = text.parse::<LabelRule>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_compared_part_by_part() {
        for (text, value, met) in [
            ("cores >= 8", Some("8"), true),
            ("cores >= 8", Some("16"), true),
            ("cores > 8", Some("8"), false),
            ("cores < 8", Some("7.9"), true),
            ("kernel >= 6.9", Some("6.10"), true),
            ("kernel >= 6.1", Some("6"), false),
            ("kernel <= 6", Some("6.0.0"), true),
            ("cores >= 8", Some("many"), false),
            ("cores >= 8", None, false),
            ("zone != a", None, true),
            ("zone not in [a]", None, true),
            ("zone not in [a]", Some("a"), false),
            ("zone in [a, b]", Some("b"), true),
            ("gpu exists", Some(""), true),
            ("gpu absent", Some(""), false),
        ] {
            assert_eq!(rule(text).is_met_by(value), met, "{text} {value:?}");
        }
    }
}
