//! Where a source is, as people write it: a directory, an address, or a git repository, and what goes with each. The
//! configuration and the API take the same and refuse the same.

use std::sync::Arc;

use dhow_core::spec::check::{quoted, secret_name_problem};
use dhow_core::state::{RemoteKind, RemoteSource, SourceSettings};
use serde::Serialize;

/// The longest path that the kernel takes.
const DIR_BYTES_MAX: usize = 4_096;
const URL_BYTES_MAX: usize = 2_048;
const REFERENCE_BYTES_MAX: usize = 255;
/// Below that a set would be too old before every server has looked at it.
const MAX_AGE_SECS_MIN: u64 = 600;

/// A source without its name and its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WrittenSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<String>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_secret: Option<String>,
    /// In seconds.
    #[serde(rename = "max_age", skip_serializing_if = "Option::is_none")]
    pub max_age_secs: Option<u64>,
}

/// What is wrong with one field of it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceProblem {
    pub field: &'static str,
    pub message: String,
    pub hint: &'static str,
}

fn problem(field: &'static str, message: impl Into<String>, hint: &'static str) -> SourceProblem {
    SourceProblem {
        field,
        message: message.into(),
        hint,
    }
}

impl WrittenSource {
    /// A directory on every server.
    pub fn of_dir(dir: &str) -> Self {
        Self {
            dir: Some(dir.to_owned()),
            ..Self::default()
        }
    }

    /// The last part of where it is, for a source that has no other name.
    pub fn last_part(&self) -> &str {
        let places = [&self.git, &self.url, &self.dir];
        let place = places.into_iter().flatten().next().map_or("", String::as_str);
        let last = place.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        last.strip_suffix(".git").unwrap_or(last)
    }

    pub fn settings(&self, keys: Arc<[[u8; 32]]>) -> SourceSettings {
        let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
        let secret = |field: &Option<String>| field.as_deref().map(Into::into);
        let remote = match (&self.url, &self.git) {
            (_, Some(_)) => Some(RemoteKind::Git),
            (Some(_), None) => Some(RemoteKind::Https),
            (None, None) => None,
        };
        let remote = remote.map(|kind| {
            Arc::new(RemoteSource {
                kind,
                url: text(if kind == RemoteKind::Git {
                    &self.git
                } else {
                    &self.url
                }),
                reference: text(&self.reference),
                path: self
                    .path
                    .as_deref()
                    .unwrap_or_default()
                    .trim_end_matches('/')
                    .into(),
                ca_secret: secret(&self.ca_secret),
                login_secret: secret(&self.login_secret),
            })
        });
        SourceSettings {
            dir: text(&self.dir),
            keys,
            remote,
            max_age_secs: self.max_age_secs,
            hook_secret: secret(&self.hook_secret),
        }
    }

    /// Everything that is wrong with it.
    pub fn problems(&self) -> Vec<SourceProblem> {
        const PLACES: &str = "write one of `dir`, `url` and `git`";
        let places = [("dir", &self.dir), ("url", &self.url), ("git", &self.git)];
        let given: Vec<&'static str> = places
            .iter()
            .filter_map(|(field, place)| place.as_ref().map(|_| *field))
            .collect();
        let mut found = Vec::new();
        match given.as_slice() {
            [_] => {}
            [] => found.push(problem("dir", "a source needs a place", PLACES)),
            [_, second, ..] => found.push(problem(second, "a source has one place", PLACES)),
        }
        found.extend(self.dir.as_deref().and_then(dir_problem));
        found.extend(self.url.as_deref().and_then(|url| url_problem("url", url)));
        found.extend(self.git.as_deref().and_then(|url| url_problem("git", url)));
        found.extend(self.reference.as_deref().and_then(reference_problem));
        found.extend(self.path.as_deref().and_then(path_problem));
        let only_of = |field: &'static str, given: bool, has: bool, hint| {
            (given && !has).then(|| problem(field, format!("`{field}` means nothing here"), hint))
        };
        let (is_git, is_remote) = (self.git.is_some(), self.git.is_some() || self.url.is_some());
        const GIT: &str = "it belongs to a `git` repository";
        const REMOTE: &str = "it belongs to a `url` or a `git` repository";
        found.extend(only_of("ref", self.reference.is_some(), is_git, GIT));
        found.extend(only_of("path", self.path.is_some(), is_git, GIT));
        found.extend(only_of("ca_secret", self.ca_secret.is_some(), is_remote, REMOTE));
        found.extend(only_of(
            "login_secret",
            self.login_secret.is_some(),
            is_remote,
            REMOTE,
        ));
        let secrets = [
            ("ca_secret", &self.ca_secret),
            ("login_secret", &self.login_secret),
            ("hook_secret", &self.hook_secret),
        ];
        for (field, name) in secrets {
            let wrong = name.as_deref().and_then(secret_name_problem);
            found.extend(wrong.map(|(message, hint)| problem(field, message, hint)));
        }
        if self.max_age_secs.is_some_and(|secs| secs < MAX_AGE_SECS_MIN) {
            let message = "a `max_age` has at least 600 seconds";
            found.push(problem(
                "max_age",
                message,
                "leave it out, or write how old a set may be",
            ));
        }
        found
    }
}

fn dir_problem(dir: &str) -> Option<SourceProblem> {
    let fine = dir.starts_with('/') && dir.len() <= DIR_BYTES_MAX && !dir.contains('\0');
    let message = || format!("{} is no absolute path", quoted(dir));
    (!fine).then(|| problem("dir", message(), "begin it with `/`"))
}

/// An address is for HTTPS, without a login in it. Plain HTTP is for this host alone.
fn url_problem(field: &'static str, url: &str) -> Option<SourceProblem> {
    const HTTPS: &str = "write `https://HOST/PATH`; a login goes into a secret, named by `login_secret`";
    if field == "git" && (url.starts_with("ssh://") || url.starts_with("git@")) {
        let message = "a repository is not read over ssh";
        return Some(problem(field, message, HTTPS));
    }
    let plain = url.len() <= URL_BYTES_MAX
        && url.bytes().all(|byte| byte.is_ascii_graphic())
        && !url.contains(['?', '#', '\\', '"', '<', '>']);
    let rest = url
        .strip_prefix("https://")
        .map(|rest| (rest, true))
        .or_else(|| url.strip_prefix("http://").map(|rest| (rest, false)));
    let Some((rest, is_https)) = rest.filter(|_| plain) else {
        return Some(problem(field, format!("{} is no address", quoted(url)), HTTPS));
    };
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return Some(problem(field, "an address has a host and no login", HTTPS));
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_here = host
        .parse()
        .is_ok_and(|addr: std::net::IpAddr| addr.is_loopback());
    let message = || "plain HTTP is for addresses of this host alone, such as 127.0.0.1";
    (!is_https && !is_here).then(|| problem(field, message(), HTTPS))
}

fn reference_problem(reference: &str) -> Option<SourceProblem> {
    let plain = |c: char| c.is_ascii_graphic() && !"~^:?*[\\".contains(c);
    let fine = (1..=REFERENCE_BYTES_MAX).contains(&reference.len())
        && reference.chars().all(plain)
        && !reference.contains("..")
        && !reference.starts_with(['-', '/'])
        && !reference.ends_with(['/', '.']);
    let message = || format!("{} is no branch or tag", quoted(reference));
    (!fine).then(|| problem("ref", message(), "write a name such as `main` or `refs/tags/v1`"))
}

fn path_problem(path: &str) -> Option<SourceProblem> {
    let plain = |part: &str| {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(word)
    };
    let fine = path.len() <= REFERENCE_BYTES_MAX && path.trim_end_matches('/').split('/').all(plain);
    let message = || format!("{} is no folder of a repository", quoted(path));
    let hint = "write it from the repository's root, such as `deploy/prod`";
    (!fine).then(|| problem("path", message(), hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(url: &str) -> WrittenSource {
        WrittenSource {
            git: Some(url.to_owned()),
            ..WrittenSource::default()
        }
    }

    #[test]
    fn what_can_be_read_is_fine() {
        let full = WrittenSource {
            reference: Some("refs/tags/v1.2".to_owned()),
            path: Some("deploy/prod/".to_owned()),
            ca_secret: Some("ca".to_owned()),
            login_secret: Some("login".to_owned()),
            hook_secret: Some("hook".to_owned()),
            max_age_secs: Some(86_400),
            ..git("https://git.example.com/team/shop.git")
        };
        for fine in [
            full.clone(),
            git("https://[2001:db8::1]:8443/shop"),
            git("http://127.0.0.1:8080/shop.git"),
            git("http://[::1]/shop.git"),
            WrittenSource::of_dir("/srv/shop"),
        ] {
            assert_eq!(fine.problems(), [], "{fine:?}");
        }
        assert_eq!(full.last_part(), "shop");
        let remote = full.settings(Arc::new([])).remote.unwrap();
        assert_eq!((&*remote.path, remote.kind), ("deploy/prod", RemoteKind::Git));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let url = |url: &str| WrittenSource {
            url: Some(url.to_owned()),
            ..WrittenSource::default()
        };
        let with = |field: fn(&mut WrittenSource)| {
            let mut source = git("https://h/r");
            field(&mut source);
            source
        };
        for (source, field, told) in [
            (WrittenSource::default(), "dir", "needs a place"),
            (with(|s| s.url = Some("https://h".into())), "git", "one place"),
            (git("ssh://git@h/r"), "git", "not read over ssh"),
            (git("git@h:r"), "git", "not read over ssh"),
            (git("file:///srv/r"), "git", "no address"),
            (url("ftp://h/r"), "url", "no address"),
            (url("https://h/r?x=1"), "url", "no address"),
            (url("https://"), "url", "has a host"),
            (url("https://me:secret@h/r"), "url", "no login"),
            (url("http://h/r"), "url", "plain HTTP"),
            (url("http://127.0.0.1.evil/r"), "url", "plain HTTP"),
            (url("http://localhost/r"), "url", "plain HTTP"),
            (
                with(|s| s.reference = Some("a..b".into())),
                "ref",
                "no branch or tag",
            ),
            (
                with(|s| s.reference = Some("--upload-pack=x".into())),
                "ref",
                "no branch or tag",
            ),
            (with(|s| s.path = Some("../etc".into())), "path", "no folder"),
            (with(|s| s.path = Some("/etc".into())), "path", "no folder"),
            (with(|s| s.max_age_secs = Some(1)), "max_age", "at least 600"),
            (
                with(|s| s.hook_secret = Some("a b".into())),
                "hook_secret",
                "secret",
            ),
            (
                WrittenSource {
                    path: Some("deploy".into()),
                    ..WrittenSource::of_dir("/srv")
                },
                "path",
                "means nothing here",
            ),
            (
                WrittenSource {
                    login_secret: Some("l".into()),
                    ..WrittenSource::of_dir("/srv")
                },
                "login_secret",
                "means nothing here",
            ),
        ] {
            let found = source.problems();
            let fits = |found: &SourceProblem| found.field == field && found.message.contains(told);
            assert!(
                found.iter().any(fits),
                "{source:?}: {found:?} has no {told:?} of {field}"
            );
        }
    }
}
