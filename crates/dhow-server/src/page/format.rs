//! Numbers and parts of addresses as text.

/// What may stand in a part of an address as it is.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// A part of an address, or of its query.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_plain(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Thousandths of a core, in cores.
pub(super) fn cores(milli: u64) -> String {
    let tenths = milli.saturating_add(50) / 100;
    match tenths % 10 {
        _ if milli < 1_000 => format!("{}.{:02}", milli / 1_000, milli % 1_000 / 10),
        0 => (tenths / 10).to_string(),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    let mut size = bytes;
    while size >= 1_024 * 1_024 && unit + 1 < UNITS.len() {
        size /= 1_024;
        unit += 1;
    }
    let tenths = size.saturating_mul(10) / 1_024;
    let text = match tenths >= 100 || tenths.is_multiple_of(10) {
        true => (tenths / 10).to_string(),
        false => format!("{}.{}", tenths / 10, tenths % 10),
    };
    format!("{text} {}", UNITS[unit])
}

/// With its thousands apart, for numbers that people compare.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// The number of a length.
pub(super) fn len(length: usize) -> String {
    count(u64::try_from(length).unwrap_or(u64::MAX))
}

/// One or many.
pub(super) fn plural<'a>(number: usize, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

/// Not all of a long text.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_shortly() {
        assert_eq!(cores(0), "0.00");
        assert_eq!(cores(250), "0.25");
        assert_eq!(cores(1_500), "1.5");
        assert_eq!(cores(8_000), "8");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(8 << 30), "8 GiB");
        assert_eq!(bytes(3 << 50), "3 PiB");
        assert_eq!(count(7), "7");
        assert_eq!(count(100_000), "100\u{202f}000");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn what_leads_elsewhere_is_escaped() {
        assert_eq!(escaped("web-default-0"), "web-default-0");
        assert_eq!(escaped("a/../b?c=d&e#f g"), "a%2F..%2Fb%3Fc%3Dd%26e%23f%20g");
        assert_eq!(escaped("ä"), "%C3%A4");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöü", 2), "äö…");
    }
}
