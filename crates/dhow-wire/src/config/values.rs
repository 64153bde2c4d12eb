//! Single values of the configuration, read alike from the file, a variable or a flag.

use std::net::{IpAddr, SocketAddr};

use dhow_core::spec::check::{nearest, quoted};

use super::api_addr::{ApiAddr, OFF};

/// What is wrong with a value: what was found, and what to write.
pub(super) type Wrong = (String, String);

/// An address, or `off`.
pub(super) fn api_addr(text: &str) -> Result<ApiAddr, Wrong> {
    match text {
        OFF => Ok(ApiAddr::Off),
        "none" | "no" | "false" | "disabled" | "OFF" | "Off" => Err((
            format!("{} is not an address", quoted(text)),
            "write `off` to close TCP, or an IP address and a port, such as `127.0.0.1:3669`".into(),
        )),
        _ => address(text).map(ApiAddr::At),
    }
}

/// `10.0.0.1:3669`: an address that can be bound or dialled as it stands, so no name.
pub(super) fn address(text: &str) -> Result<SocketAddr, Wrong> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let shown = quoted(text);
    let wrong = |message: String, hint: String| Err((message, hint));
    if let Some((scheme, rest)) = text.split_once("://") {
        let hint = format!("did you mean {}?", quoted(rest.trim_end_matches('/')));
        return wrong(
            format!(
                "{shown} starts with {}, an address has none",
                quoted(&format!("{scheme}://"))
            ),
            hint,
        );
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return wrong(
            format!("{shown} has no port"),
            format!("such as `{}`", SocketAddr::new(ip, 3669)),
        );
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port),
        None => {
            return wrong(
                format!("{shown} is not an address"),
                "write an IP address and a port, such as `10.0.0.1:3669`".into(),
            );
        }
    };
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        if port.parse::<u16>().is_err() {
            return wrong(
                format!("{shown} has no possible port"),
                "a port is 1 to 65535".into(),
            );
        }
        return match host {
            "" => wrong(
                format!("{shown} has no IP address"),
                format!("such as `127.0.0.1:{port}`"),
            ),
            "localhost" => wrong(
                format!("{shown} is a name"),
                format!("did you mean `127.0.0.1:{port}`?"),
            ),
            _ if host.parse::<IpAddr>().is_ok() => wrong(
                format!("{shown} needs brackets"),
                format!("did you mean `\"[{host}]:{port}\"`?"),
            ),
            _ => wrong(
                format!("{shown} is not an IP address and a port"),
                "write the IP address; names are not looked up".into(),
            ),
        };
    }
    wrong(
        format!("{shown} is not an address"),
        "write an IP address and a port, such as `10.0.0.1:3669`".into(),
    )
}

/// A path of this machine.
pub(super) fn path(text: &str) -> Result<String, Wrong> {
    if text.is_empty() {
        return Err((
            "the path is empty".into(),
            "give a path, or remove the line for the default".into(),
        ));
    }
    if text.contains('\0') {
        return Err(("the path holds a NUL byte".into(), "remove it".into()));
    }
    if text == "~" || text.starts_with("~/") {
        let message = format!("{} starts with `~`, which only a shell replaces", quoted(text));
        return Err((message, "write the whole path".into()));
    }
    Ok(text.to_owned())
}

/// One word of a few.
pub(super) fn word<T: Copy>(
    text: &str,
    what: &str,
    allowed: &[(&'static str, T)],
    synonyms: &[(&str, &'static str)],
) -> Result<T, Wrong> {
    if let Some((_, value)) = allowed.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let synonym = synonyms
        .iter()
        .find(|(other, _)| other.eq_ignore_ascii_case(text))
        .map(|(_, name)| *name);
    let hint = match synonym.or_else(|| nearest(text, allowed.iter().map(|(name, _)| *name))) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let names: Vec<String> = allowed.iter().map(|(name, _)| format!("`{name}`")).collect();
            format!("it is one of {}", names.join(", "))
        }
    };
    Err((format!("{} is not {what}", quoted(text)), hint))
}

pub(super) const LEVEL: &str = "a log level";
pub(super) const LEVEL_SYNONYMS: &[(&str, &str)] = &[
    ("warning", "warn"),
    ("err", "error"),
    ("verbose", "debug"),
    ("fatal", "error"),
    ("information", "info"),
];
pub(super) const FORMAT: &str = "a log format";
pub(super) const FORMAT_SYNONYMS: &[(&str, &str)] =
    &[("plain", "text"), ("pretty", "text"), ("structured", "json")];
