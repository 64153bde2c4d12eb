//! Who may use the dashboard: the one browser that has come by the link.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};

/// The link is good for so long.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The link's code until it is used, and the word of the browser that has used it.
pub struct Gate {
    port: u16,
    code: String,
    begun: Instant,
    word: Mutex<Option<String>>,
}

fn drawn() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

/// Takes as long wherever they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differs = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differs == 0
}

impl Gate {
    pub fn new(port: u16) -> Self {
        Self {
            port,
            code: drawn(),
            begun: Instant::now(),
            word: Mutex::default(),
        }
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    /// Other dashboards of this host have other names: cookies know no ports.
    fn cookie_name(&self) -> String {
        format!("dhow-dashboard-{}", self.port)
    }

    /// The cookie for whoever comes by the link in time, the first time.
    pub fn enter(&self, code: &str) -> Option<String> {
        self.enter_after(code, self.begun.elapsed())
    }

    fn enter_after(&self, code: &str, age: Duration) -> Option<String> {
        // It is written whole, so a holder that panicked left what can be read.
        let mut word = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        if word.is_some() || age >= GOOD_FOR || !is_same(code, &self.code) {
            return None;
        }
        let drawn = word.insert(drawn());
        Some(format!(
            "{}={drawn}; Path=/; HttpOnly; SameSite=Strict",
            self.cookie_name()
        ))
    }

    pub fn has_entered(&self, headers: &HeaderMap) -> bool {
        let word = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(word) = word.as_deref() else {
            return false;
        };
        let name = self.cookie_name();
        let lines = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|line| line.to_str().ok());
        let mut pairs = lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(key, value)| key == name && is_same(value, word))
    }

    /// Whether it is asked by its own address, and not by a name that somebody has led here.
    pub fn is_own_host(&self, headers: &HeaderMap) -> bool {
        let own = format!("127.0.0.1:{}", self.port);
        let mut hosts = headers.get_all(header::HOST).iter();
        hosts.next().is_some_and(|host| host.as_bytes() == own.as_bytes()) && hosts.next().is_none()
    }

    /// Whether no page of another address has caused it. A link from elsewhere may lead here.
    pub fn is_own_site(&self, headers: &HeaderMap, is_read: bool) -> bool {
        let says = |name: &str, value: &'static str| {
            headers
                .get(name)
                .is_some_and(|said| said == HeaderValue::from_static(value))
        };
        let mut sites = headers.get_all("sec-fetch-site").iter();
        let is_own = sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
        let is_link = is_read && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
        let own = format!("http://127.0.0.1:{}", self.port);
        let mut origins = headers.get_all(header::ORIGIN).iter();
        (is_own || is_link) && origins.all(|origin| origin.as_bytes() == own.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_link_is_good_once_and_for_a_minute() {
        let gate = Gate::new(1);
        assert!(gate.enter("guess").is_none());
        assert!(gate.enter_after(gate.code(), GOOD_FOR).is_none(), "too late");
        let cookie = gate.enter(gate.code()).unwrap();
        assert!(
            cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
            "{cookie}"
        );
        assert!(gate.enter(gate.code()).is_none(), "the second time");
        let pair = cookie.split(';').next().unwrap();
        assert!(gate.has_entered(&headers(&[("cookie", "a=b"), ("cookie", pair)])));
        assert!(!gate.has_entered(&headers(&[("cookie", "dhow-dashboard-1=x")])));
        let other = Gate::new(2);
        assert!(
            !other.has_entered(&headers(&[("cookie", "dhow-dashboard-2=")])),
            "nobody has entered"
        );
    }

    #[test]
    fn other_names_and_other_pages_stay_out() {
        let gate = Gate::new(8300);
        assert!(gate.is_own_host(&headers(&[("host", "127.0.0.1:8300")])));
        for host in [
            "localhost:8300",
            "evil.example:8300",
            "127.0.0.1:8301",
            "127.0.0.1",
        ] {
            assert!(!gate.is_own_host(&headers(&[("host", host)])), "{host}");
        }
        assert!(!gate.is_own_host(&headers(&[("host", "127.0.0.1:8300"), ("host", "evil.example")])));
        let own = |pairs: &[(&'static str, &str)], is_read| gate.is_own_site(&headers(pairs), is_read);
        assert!(own(&[], false));
        assert!(own(
            &[
                ("origin", "http://127.0.0.1:8300"),
                ("sec-fetch-site", "same-origin")
            ],
            false
        ));
        assert!(!own(&[("origin", "http://127.0.0.1:8301")], false));
        assert!(!own(&[("origin", "null")], false));
        assert!(
            !own(&[("sec-fetch-site", "same-site")], true),
            "another port of this host"
        );
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(own(&link, true));
        assert!(!own(&link, false), "a form of another site");
        let frame = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ];
        assert!(!own(&frame, true));
    }
}
