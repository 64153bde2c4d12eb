//! `sources`: places of signed deployment files that the cluster follows, and whose signatures count.

use std::collections::BTreeMap;

use dhow_core::spec::check::{FieldPath, SpecFinding, quoted};
use dhow_core::state::SourceSettings;
use serde::Serialize;

use super::effective::Draft;
use super::read::path;
use crate::document::{Decoder, Fields, Kind, Node, list, list_of, text, whole_seconds};
use crate::manifest::{ManifestKey, WrittenSource};

/// A source as the daemon follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceConfig {
    pub name: String,
    #[serde(flatten)]
    pub written: WrittenSource,
    /// Who may sign for it.
    pub keys: Vec<ManifestKey>,
}

impl SourceConfig {
    /// What the cluster knows of one that was added to it.
    pub fn settings(&self) -> SourceSettings {
        self.written.settings(self.keys.iter().map(|key| key.0).collect())
    }
}

/// A source as the file has it.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceDraft {
    name: Option<String>,
    written: WrittenSource,
    keys: Option<Vec<String>>,
}

const KEYS_HOW: &str = "write `[ … ]` with public keys as `dhow source keygen` prints them";
/// The longest name of a source; the names of deployments are as long.
const NAME_CHARS_MAX: usize = 63;

pub(super) fn keys(decoder: &mut Decoder, node: &Node) -> Option<Vec<String>> {
    list_of("a list of public keys", KEYS_HOW)(decoder, node)
}

pub(super) fn sources(decoder: &mut Decoder, node: &Node) -> Option<Vec<SourceDraft>> {
    const EXAMPLE: &str = "`{ name: shop, dir: /srv/dhow/shop }`";
    let how = "write `- ` and the directory of each";
    let one = |decoder: &mut Decoder, node: &Node| {
        if node.kind() == Kind::Text {
            let dir = path(decoder, node)?;
            return Some(SourceDraft {
                written: WrittenSource::of_dir(&dir),
                ..SourceDraft::default()
            });
        }
        let mut fields = Fields::open(decoder, node, "a source", EXAMPLE)?;
        fields.elsewhere(&[
            ("key", "write `keys`, a list"),
            ("trusted_keys", "write `keys`"),
            ("branch", "write `ref`"),
            ("tag", "write `ref`"),
            ("token", "keep it with `dhow secret set` and write `login_secret`"),
            (
                "password",
                "keep it with `dhow secret set` and write `login_secret`",
            ),
            (
                "known_hosts",
                "a repository is not read over ssh: write an https address",
            ),
        ]);
        let max_age = fields.optional("max_age", whole_seconds);
        let source = SourceDraft {
            name: fields.optional("name", text),
            written: WrittenSource {
                dir: fields.optional("dir", path),
                url: fields.optional("url", text),
                git: fields.optional("git", text),
                reference: fields.optional("ref", text),
                path: fields.optional("path", text),
                ca_secret: fields.optional("ca_secret", text),
                login_secret: fields.optional("login_secret", text),
                hook_secret: fields.optional("hook_secret", text),
                max_age_secs: max_age.map(|age| age.as_secs()),
            },
            keys: fields.optional("keys", keys),
        };
        fields.close();
        Some(source)
    };
    list(decoder, node, "a list of sources", how, SourceDraft::default, one)
}

impl SourceDraft {
    /// Its own, or the last part of its place.
    fn name(&self) -> String {
        let last = || self.written.last_part().to_owned();
        self.name.clone().unwrap_or_else(last)
    }

    /// As the daemon follows it. What could not be read was found before.
    pub fn finish(&self, trusted: &[String]) -> SourceConfig {
        let keys = self.keys.as_deref().unwrap_or(trusted);
        SourceConfig {
            name: self.name(),
            written: self.written.clone(),
            keys: keys
                .iter()
                .filter_map(|key| ManifestKey::from_text(key))
                .collect(),
        }
    }
}

/// What is wrong with the name of a source, and what to do; nothing where it is fine.
pub fn source_name_problem(name: &str) -> Option<(String, &'static str)> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fine = name.len() <= NAME_CHARS_MAX
        && name.bytes().all(plain)
        && name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
    (!fine).then(|| {
        (
            format!("{} is no name of a source", quoted(name)),
            "up to 63 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit",
        )
    })
}

pub(super) fn check(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    check_keys(&FieldPath::of("trusted_keys"), &draft.trusted_keys, findings);
    let list = FieldPath::of("sources");
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (position, source) in draft.sources.iter().enumerate() {
        let at = list.index(position);
        check_one(&at, source, &draft.trusted_keys, findings);
        let name = source.name();
        if let Some(first) = seen.insert(name.clone(), position) {
            let finding = SpecFinding::at(at.clone(), format!("two sources are called {}", quoted(&name)))
                .also(list.index(first), "first here")
                .hint("give one of them another `name`");
            findings.push(finding);
        }
    }
    if draft.cluster.is_worker_tier_worker() && !draft.sources.is_empty() {
        let message = "a worker follows no sources";
        findings.push(SpecFinding::at(list, message).hint("the servers' configuration has them"));
    }
}

fn check_one(at: &FieldPath, source: &SourceDraft, trusted: &[String], findings: &mut Vec<SpecFinding>) {
    if let Some((message, hint)) = source_name_problem(&source.name()) {
        let at = if source.name.is_some() {
            at.key("name")
        } else {
            at.clone()
        };
        findings.push(SpecFinding::at(at, message).hint(hint));
    }
    // One that is only a path has no fields.
    let is_short = source.written == WrittenSource::of_dir(source.written.dir.as_deref().unwrap_or_default())
        && source.name.is_none()
        && source.keys.is_none();
    for problem in source.written.problems() {
        let at = match is_short || problem.message.contains("needs a place") {
            true => at.clone(),
            false => at.key(problem.field),
        };
        findings.push(SpecFinding::at(at, problem.message).hint(problem.hint));
    }
    match &source.keys {
        Some(keys) => {
            check_keys(&at.key("keys"), keys, findings);
            if keys.is_empty() {
                let message = "a source needs a key that signs for it";
                findings.push(SpecFinding::at(at.key("keys"), message).hint(KEYS_HOW));
            }
        }
        None if trusted.is_empty() => {
            let message = "nobody is trusted to sign for this source";
            let hint = "add `trusted_keys: [ … ]` with public keys as `dhow source keygen` prints them";
            findings.push(SpecFinding::at(at.clone(), message).hint(hint));
        }
        None => {}
    }
}

fn check_keys(at: &FieldPath, keys: &[String], findings: &mut Vec<SpecFinding>) {
    for (position, key) in keys.iter().enumerate() {
        if ManifestKey::from_text(key)
            .and_then(|key| key.verifying())
            .is_none()
        {
            let message = format!("{} is no public key", quoted(key));
            let hint = "64 hexadecimal digits in lower case, as `dhow source keygen` prints them";
            findings.push(SpecFinding::at(at.index(position), message).hint(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse_config;

    const KEY: &str = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29";

    #[test]
    fn a_source_has_a_name_a_place_and_keys() {
        let text = format!(
            "trusted_keys: [{KEY}]\nsources:\n  - /srv/dhow/shop/\n  - {{ name: base, dir: /srv/b, keys: [{KEY}] }}\n"
        );
        let config = parse_config(&text, "dhow.yaml").unwrap();
        let names: Vec<&str> = config.sources.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["shop", "base"]);
        assert!(config.sources.iter().all(|source| source.keys.len() == 1));
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(parse_config(&written, "written").unwrap(), config);
    }

    #[test]
    fn a_source_elsewhere_is_written_back_as_it_was() {
        let text = format!(
            "trusted_keys: [{KEY}]\nsources:\n  - {{ git: 'https://git.example.com/shop.git', ref: main, path: deploy, \
             ca_secret: ca, login_secret: login, hook_secret: hook, max_age: 86400 }}\n  - {{ name: base, url: \
             'https://files.example.com/base' }}\n"
        );
        let config = parse_config(&text, "dhow.yaml").unwrap();
        assert_eq!(config.sources[0].name, "shop");
        let remote = config.sources[0].settings().remote.unwrap();
        assert_eq!((&*remote.reference, &*remote.path), ("main", "deploy"));
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(parse_config(&written, "written").unwrap(), config);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (text, told) in [
            ("sources: [/srv/shop]", "nobody is trusted"),
            ("sources: [{ dir: /srv/shop, keys: [] }]", "needs a key"),
            ("sources: [{ dir: /srv/shop, keys: [abc] }]", "is no public key"),
            ("trusted_keys: [abc]", "is no public key"),
            (
                "sources: [{ name: a b, dir: /srv/shop }]",
                "is no name of a source",
            ),
            ("sources: [srv/shop]", "is no absolute path"),
            ("sources: [{ name: shop }]", "needs a place"),
            ("sources: [{ dir: /a, url: 'https://b' }]", "one place"),
            ("sources: [{ dir: /a, path: b }]", "means nothing here"),
            ("sources: [{ git: 'git@h:r' }]", "not read over ssh"),
            ("sources: [{ git: 'https://h/r', branch: main }]", "write `ref`"),
            ("sources: [{ url: 'https://h/r', token: x }]", "login_secret"),
        ] {
            let refused = parse_config(text, "dhow.yaml").unwrap_err().to_string();
            assert!(refused.contains(told), "{text}: {refused}");
        }
        let twice = format!("trusted_keys: [{KEY}]\nsources: [/a/shop, /b/shop]\n");
        let refused = parse_config(&twice, "dhow.yaml").unwrap_err().to_string();
        assert!(refused.contains("two sources are called"), "{refused}");
    }
}
