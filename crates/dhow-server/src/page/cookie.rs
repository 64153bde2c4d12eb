//! The cookie of a session: which name it has, and how it is read and written.

use axum::http::{HeaderMap, header};

/// Over TLS the name itself says that it was set by this host, for every path, over TLS.
const SECURE: &str = "__Host-dhow";
const PLAIN: &str = "dhow";

fn name(is_tls: bool) -> &'static str {
    match is_tls {
        true => SECURE,
        false => PLAIN,
    }
}

/// The word that the browser shows; none where it shows none.
pub(super) fn read(headers: &HeaderMap, is_tls: bool) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut found = pairs.filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name(is_tls)).then(|| value.to_owned())
    });
    found.next()
}

/// Sets it; gone with the browser at the latest.
pub(super) fn set(word: &str, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!(
        "{}={word}; Path=/; HttpOnly; SameSite=Strict{secure}",
        name(is_tls)
    )
}

/// Takes it away.
pub(super) fn clear(is_tls: bool) -> String {
    format!("{}; Max-Age=0", set("", is_tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_name_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            "a=b; dhow=one; __Host-dhow=two; dhowx=three".parse().unwrap(),
        );
        assert_eq!(read(&headers, false).as_deref(), Some("one"));
        assert_eq!(read(&headers, true).as_deref(), Some("two"));
        assert_eq!(read(&HeaderMap::new(), true), None);
    }

    #[test]
    fn no_script_and_no_other_site_gets_it() {
        assert_eq!(set("x", false), "dhow=x; Path=/; HttpOnly; SameSite=Strict");
        assert_eq!(
            set("x", true),
            "__Host-dhow=x; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        assert!(clear(true).ends_with("; Secure; Max-Age=0"));
    }
}
