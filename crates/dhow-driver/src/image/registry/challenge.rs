//! What a registry asks for when it answers 401.

use std::collections::BTreeMap;

/// The schemes that registries use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads a `WWW-Authenticate` value; none for schemes that are not spoken here.
    pub fn parse(value: &str) -> Option<Self> {
        let (scheme, rest) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut parameters = parameters(rest);
        Some(Self::Bearer {
            realm: parameters.remove("realm")?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        })
    }
}

/// `name="value"` pairs; a value in quotes may hold commas.
fn parameters(mut text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((name, after)) = text.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']).to_ascii_lowercase();
        let (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(name, value.trim().to_owned());
        text = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let value =
            r#"Bearer realm="https://auth.example/token",service="reg",scope="repository:a/b:pull,push""#;
        let bearer = Challenge::Bearer {
            realm: "https://auth.example/token".into(),
            service: Some("reg".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(Challenge::parse(value), Some(bearer));
        let bare = Challenge::Bearer {
            realm: "http://x/t".into(),
            service: None,
            scope: None,
        };
        assert_eq!(Challenge::parse("bearer realm=http://x/t"), Some(bare));
        assert_eq!(Challenge::parse(r#"Basic realm="x""#), Some(Challenge::Basic));
        for other in ["", "Negotiate", "Bearer", "Bearer =", r#"Bearer realm"#] {
            assert_eq!(Challenge::parse(other), None, "{other}");
        }
    }
}
