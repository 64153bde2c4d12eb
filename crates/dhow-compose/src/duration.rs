//! Lengths of time and sizes as compose writes them.

use dhow_core::spec::{ByteSize, TimeSpan};

/// `1m30s`, `500ms`, `10s`; a bare number is no duration but 0.
pub(crate) fn span(text: &str) -> Option<TimeSpan> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(TimeSpan::ZERO);
    }
    let mut total = 0.0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let ms = match unit {
            "us" | "µs" => 0.001,
            "ns" => 0.000_001,
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            "w" => 604_800_000.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * ms;
        rest = after;
    }
    (total.is_finite() && total < 1e15).then(|| TimeSpan::from_millis(total.ceil() as u64))
}

/// `64m`, `1gb`, `512`: the units of Docker are powers of 1024, large or small.
pub(crate) fn size(text: &str) -> Option<ByteSize> {
    let text = text.trim().to_ascii_lowercase();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    (bytes.is_finite() && bytes < 1e18).then(|| ByteSize(bytes.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_of_docker() {
        assert_eq!(span("1m30s"), Some(TimeSpan::from_secs(90)));
        assert_eq!(span("1.5s"), Some(TimeSpan::from_millis(1_500)));
        assert_eq!(span("0"), Some(TimeSpan::ZERO));
        assert_eq!((span("10"), span("s"), span("")), (None, None, None));
        assert_eq!(size("512M"), Some(ByteSize(512 << 20)));
        assert_eq!(size("1gb"), Some(ByteSize(1 << 30)));
        assert_eq!(size("1.5k"), Some(ByteSize(1536)));
        assert_eq!((size("x"), size("1x")), (None, None));
    }
}
