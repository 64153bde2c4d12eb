//! Readers of quantities: durations, sizes, shares of a CPU, whole seconds.

use std::time::Duration;

use dhow_core::spec::check::quoted;
use dhow_core::spec::{ByteSize, Cpu, Percent, TimeSpan, UnitError};

use super::decoder::Decoder;
use super::node::{Kind, Node};
use super::readers::{integer, scalar_text};

/// `500ms`, `10s`, `5m`; a bare 0 is as good as `0s`.
pub fn duration(decoder: &mut Decoder, node: &Node) -> Option<TimeSpan> {
    const EXPECTED: &str = "a duration";
    const HOW: &str = "write a number and a unit, such as `500ms`, `10s`, `5m` or `1h`";
    let Some(scalar) = scalar_text(node) else {
        return decoder.wrong_type(node, EXPECTED, HOW);
    };
    let text: &str = &scalar.text;
    if text == "0" {
        return Some(TimeSpan::ZERO);
    }
    match (text.parse(), node.kind()) {
        (Ok(span), _) => Some(span),
        (Err(_), Kind::Integer) if !text.starts_with('-') => {
            decoder.wrong_type(node, EXPECTED, format!("did you mean `{text}s`?"))
        }
        (Err(UnitError::TooLarge(_)), _) => too_large(decoder, node, text),
        (Err(_), _) => match near_duration(text) {
            Some(meant) => decoder.wrong_type(node, EXPECTED, format!("did you mean `{meant}`?")),
            None => decoder.wrong_type(node, EXPECTED, HOW),
        },
    }
}

/// A number and what stands behind it, in small letters.
fn number_and_unit(text: &str) -> (&str, String) {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (number, unit) = text.split_at(text.len() - unit.len());
    (number, unit.trim().to_ascii_lowercase())
}

/// Units as other tools and people spell them.
fn near_duration(text: &str) -> Option<String> {
    let (number, unit) = number_and_unit(text);
    let unit = match unit.as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "msec" | "millis" | "milliseconds" => "ms",
        _ => return None,
    };
    let meant = format!("{number}{unit}");
    meant.parse::<TimeSpan>().is_ok().then_some(meant)
}

/// `64Mi`, `2Gi`, `500MB`; a bare number is bytes.
pub fn size(decoder: &mut Decoder, node: &Node) -> Option<ByteSize> {
    const EXPECTED: &str = "a size";
    const HOW: &str = "write a number and a unit, such as `64Mi`, `2Gi` or `500MB`";
    let Some(scalar) = scalar_text(node) else {
        return decoder.wrong_type(node, EXPECTED, HOW);
    };
    let text: &str = &scalar.text;
    match text.parse() {
        Ok(size) => Some(size),
        Err(UnitError::TooLarge(_)) => too_large(decoder, node, text),
        Err(_) => match near_size(text) {
            Some(meant) => decoder.wrong_type(node, EXPECTED, format!("did you mean `{meant}`?")),
            None => decoder.wrong_type(node, EXPECTED, HOW),
        },
    }
}

/// Docker's `256m` and the like: its letters are powers of two.
fn near_size(text: &str) -> Option<String> {
    let (number, unit) = number_and_unit(text);
    let unit = match unit.as_str() {
        "k" | "ki" | "kib" => "Ki",
        "m" | "mi" | "mib" => "Mi",
        "g" | "gi" | "gib" => "Gi",
        "t" | "ti" | "tib" => "Ti",
        "kb" => "KB",
        "mb" => "MB",
        "gb" => "GB",
        "tb" => "TB",
        _ => return None,
    };
    let meant = format!("{number}{unit}");
    meant.parse::<ByteSize>().is_ok().then_some(meant)
}

/// `0.5`, `2`, `250m`.
pub fn cpu(decoder: &mut Decoder, node: &Node) -> Option<Cpu> {
    const EXPECTED: &str = "a number of CPU cores";
    let Some(scalar) = scalar_text(node) else {
        return decoder.wrong_type(node, EXPECTED, "such as `0.5` or `2`");
    };
    match scalar.text.parse() {
        Ok(cpu) => Some(cpu),
        Err(UnitError::TooLarge(_)) => too_large(decoder, node, &scalar.text),
        Err(_) => decoder.wrong_type(node, EXPECTED, "write a number above 0, such as `0.5` or `2`"),
    }
}

/// `5%`.
pub fn percent(decoder: &mut Decoder, node: &Node) -> Option<Percent> {
    let share = scalar_text(node).and_then(|scalar| scalar.text.parse().ok());
    match share {
        Some(share) => Some(share),
        None => decoder.wrong_type(
            node,
            "a share",
            "write a whole number from 0 to 100 and `%`, such as `5%`",
        ),
    }
}

/// The daemon's own intervals: whole seconds, as its peers write them.
pub fn whole_seconds(decoder: &mut Decoder, node: &Node) -> Option<Duration> {
    let text = scalar_text(node).map_or("", |scalar| &scalar.text);
    if node.kind() != Kind::Integer
        && let Ok(span) = text.parse::<TimeSpan>()
    {
        let hint = match span.as_millis() {
            0 => "write a number above 0".into(),
            ms if ms.is_multiple_of(1000) => format!("did you mean `{}`?", ms / 1000),
            _ => "fractions of a second are not possible here".into(),
        };
        return decoder.wrong_type(node, "whole seconds without a unit", hint);
    }
    integer(decoder, node, 0, u64::MAX).map(Duration::from_secs)
}

fn too_large<T>(decoder: &mut Decoder, node: &Node, text: &str) -> Option<T> {
    let message = format!("{} is {}, which is too large", decoder.subject(), quoted(text));
    decoder.fail(node.span, message, "check the unit")
}
