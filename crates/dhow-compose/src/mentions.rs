//! Ports that one service calls another one by, as its own text says: `http://app:3000`. Docker lets neighbours reach any
//! port; here such a mention declares one.

use std::collections::BTreeSet;

use dhow_core::spec::{Check, ServiceSpec};

/// The texts of a service in which it may name others.
fn texts(spec: &ServiceSpec) -> impl Iterator<Item = &str> {
    let words = spec.command.iter().flat_map(|command| command.words());
    let check = spec.health.iter().flat_map(|health| match &health.check {
        Check::Command { command } => command.as_slice(),
        Check::Tcp { .. } | Check::Http { .. } => &[],
    });
    spec.env.values().chain(words).chain(check).map(String::as_str)
}

/// The ports by which a service's text names a host.
pub(crate) fn ports_of(spec: &ServiceSpec, host: &str) -> BTreeSet<u16> {
    texts(spec).flat_map(|text| ports_in(text, host)).collect()
}

fn ports_in(text: &str, host: &str) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    for (position, _) in text.match_indices(host) {
        let before = text[..position].chars().next_back();
        let Some(after) = text[position + host.len()..].strip_prefix(':') else {
            continue;
        };
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let follows = after[digits..].chars().next();
        let is_whole = before.is_none_or(|c| !is_name(c)) && follows.is_none_or(|c| !is_name(c));
        // `redis:7` is an image: ports that are called so have more digits.
        if is_whole && digits >= 2 {
            ports.extend(after[..digits].parse::<u16>().ok().filter(|port| *port > 0));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::ports_in;

    #[test]
    fn ports_stand_behind_the_name() {
        let ports = |text: &str, host: &str| ports_in(text, host).into_iter().collect::<Vec<_>>();
        assert_eq!(ports("http://app:3000/x, app:9090", "app"), [3000, 9090]);
        assert_eq!(ports("http://user:pass@app:80", "app"), [80]);
        for text in [
            "myapp:3000",
            "app:7",
            "app:3000x",
            "app.other:80",
            "app:",
            "app:99999",
        ] {
            assert!(ports(text, "app").is_empty(), "{text}");
        }
    }
}
