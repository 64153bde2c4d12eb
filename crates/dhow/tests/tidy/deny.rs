//! The rules of `deny.toml` about every crate in the dependency tree, held on every machine: licences, banned crates,
//! versions of `*`, sources. The one rule that starts a program, because only cargo knows what is built for which system.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::finding::{Finding, assert_clean, assert_found};
use crate::licence::is_allowed;
use crate::tree::Tree;

const RULES: &str = "deny.toml";
const LOCK: &str = "Cargo.lock";

/// What `deny.toml` says, as far as it is checked here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    targets: Vec<String>,
    licences: Vec<String>,
    banned: Vec<String>,
    /// Versions that stand beside another one of their crate, as `name@version`.
    twice: Vec<String>,
}

/// A crate of the tree, as cargo tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// Dependencies whose version may be any, those in this tree apart.
    wildcards: Vec<String>,
}

impl Rules {
    fn read(text: &str) -> Self {
        let mut rules = Self::default();
        let (mut table, mut list) = (String::new(), String::new());
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if list.is_empty() && line.starts_with('[') {
                table = line.trim_matches(['[', ']']).to_owned();
            } else if let Some((key, _)) = line.split_once(" = [").filter(|_| list.is_empty()) {
                list = key.to_owned();
            } else if line == "]" {
                list.clear();
            }
            let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            let first = || words.iter().take(1).map(|word| (*word).to_owned());
            match (table.as_str(), list.as_str()) {
                ("graph", "targets") => rules.targets.extend(first()),
                ("licenses", "allow") => rules.licences.extend(first()),
                ("bans", "deny") => rules.banned.extend(first()),
                ("bans", "skip") => rules.twice.extend(first()),
                _ => {}
            }
        }
        rules
    }
}

fn check_packages(rules: &Rules, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Package { name, version, .. } = package;
        let mut found = |what: String, mend: &str| findings.push(Finding::new(LOCK, 0, what, mend));
        match &package.licence {
            None => found(
                format!("`{name}` {version} names no licence"),
                "use another crate: nobody may ship it",
            ),
            Some(licence) if !is_allowed(licence, &rules.licences) => found(
                format!("`{name}` {version} has the licence `{licence}`, which {RULES} does not allow"),
                "use another crate, or allow the licence after reading it",
            ),
            Some(_) => {}
        }
        if rules.banned.contains(name) {
            found(
                format!("`{name}` {version} is banned; {RULES} says why"),
                "find out with `cargo tree -i` who wants it, and use something else",
            );
        }
        for any in &package.wildcards {
            found(
                format!("`{name}` takes any version of `{any}`"),
                "name the version that was tested",
            );
        }
    }
    findings
}

/// A crate is built in one version, those apart whose dependents cannot agree yet.
fn check_versions(rules: &Rules, packages: &[Package]) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let known = rules.twice.iter().filter_map(|known| known.split_once('@'));
        let mut known = known.filter(|(name, _)| *name == package.name);
        let is_known = known.any(|(_, version)| {
            let rest = package.version.strip_prefix(version);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if !is_known {
            versions.entry(&package.name).or_default().push(&package.version);
        }
    }
    let many = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let found = many.map(|(name, versions)| {
        let what = format!("`{name}` is built in the versions {}", versions.join(" and "));
        let mend = format!("take the version that the rest has, or add the older one to `skip` in {RULES}");
        Finding::new(LOCK, 0, what, mend)
    });
    found.collect()
}

/// What is built comes from one registry, with a sum to check it by.
fn check_sources(lock: &str) -> Vec<Finding> {
    let mut sources: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut findings = Vec::new();
    let lines: Vec<&str> = lock.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some(source) = line.strip_prefix("source = ") else {
            continue;
        };
        let (at, source) = (index + 1, source.trim_matches('"'));
        sources.entry(source).or_default().push(at);
        let has_sum = lines
            .get(index + 1)
            .is_some_and(|next| next.starts_with("checksum = "));
        if !source.starts_with("registry+") || !has_sum {
            let what = format!("`{source}` is no registry, or nothing checks what comes from it");
            findings.push(Finding::new(LOCK, at, what, "use a published version"));
        }
    }
    let usual = sources
        .iter()
        .max_by_key(|(_, lines)| lines.len())
        .map(|(usual, _)| *usual);
    for (source, lines) in sources.iter().filter(|(source, _)| Some(**source) != usual) {
        let what = format!("`{source}` is another source than that of the rest");
        findings.extend(lines.iter().map(|at| {
            let mend = "only the default registry is used: what is built is what was published";
            Finding::new(LOCK, *at, what.clone(), mend)
        }));
    }
    findings
}

/// The crates that are built for these systems, without what only others need.
fn packages(targets: &[String]) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--offline",
        "--all-features",
    ]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for target in targets {
        command.args(["--filter-platform", target]);
    }
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(read_packages(&metadata))
}

fn read_packages(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let built: Vec<Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| node["id"].clone())
        .collect();
    let packages = list(&metadata["packages"]).into_iter();
    let of_tree = packages.filter(|package| built.contains(&package["id"]));
    let read = of_tree.map(|package| {
        let any = list(&package["dependencies"]).into_iter().filter(|dependency| {
            dependency["req"] == "*" && dependency["path"].is_null() && dependency["source"].is_string()
        });
        Package {
            name: text(&package["name"]).unwrap_or_default(),
            version: text(&package["version"]).unwrap_or_default(),
            licence: text(&package["license"]),
            wildcards: any.filter_map(|dependency| text(&dependency["name"])).collect(),
        }
    });
    read.collect()
}

#[test]
fn every_crate_of_the_tree_keeps_the_rules() {
    let tree = Tree::workspace();
    let rules = Rules::read(tree.text(RULES).unwrap_or_default());
    assert!(
        rules.licences.len() > 5 && rules.banned.len() > 3 && rules.targets.len() > 1,
        "{RULES} is not understood: {rules:?}"
    );
    // What other systems need may not be on this machine; what this one is built from always is.
    let of_targets = packages(&rules.targets);
    let mut findings = check_versions(&rules, of_targets.as_deref().unwrap_or_default());
    let packages = of_targets.or_else(|_| packages(&[]));
    let packages = packages.unwrap_or_else(|why| panic!("cargo does not tell the tree: {why}"));
    assert!(packages.len() > 100, "cargo told only {} crates", packages.len());
    findings.extend(check_packages(&rules, &packages));
    findings.extend(check_sources(tree.text(LOCK).unwrap_or_default()));
    assert_clean(findings);
}

#[test]
fn the_rules_are_read_from_their_file() {
    let text = "[graph]\ntargets = [\n  \"a-linux\",\n]\n[licenses]\n# \"GPL\"\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n\
                other = [\n \"x\",\n]\n[bans]\ndeny = [\n  { crate = \"openssl\", reason = \"one TLS\" },\n]\n\
                skip = [\n  { crate = \"a@1\", reason = \"b\" },\n]\n";
    let rules = Rules::read(text);
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(rules.targets, owned(&["a-linux"]));
    assert_eq!(rules.licences, owned(&["MIT", "ISC"]));
    assert_eq!(rules.banned, owned(&["openssl"]));
    assert_eq!(rules.twice, owned(&["a@1"]));
}

#[test]
fn what_breaks_a_rule_is_found() {
    let metadata = serde_json::json!({
        "packages": [
            { "id": "a", "name": "fine", "version": "1.0.0", "license": "MIT OR GPL-3.0", "dependencies": [
                { "name": "own", "req": "*", "path": "/x", "source": null },
            ] },
            { "id": "b", "name": "copyleft", "version": "1.0.0", "license": "GPL-3.0", "dependencies": [
                { "name": "any", "req": "*", "path": null, "source": "registry+x" },
            ] },
            { "id": "c", "name": "openssl", "version": "1.0.0", "license": null, "dependencies": [] },
            { "id": "d", "name": "elsewhere", "version": "1.0.0", "license": "GPL-3.0", "dependencies": [] },
        ],
        "resolve": { "nodes": [{ "id": "a" }, { "id": "b" }, { "id": "c" }] },
    });
    let rules = Rules {
        licences: vec!["MIT".into()],
        banned: vec!["openssl".into()],
        ..Rules::default()
    };
    let found = check_packages(&rules, &read_packages(&metadata));
    let about: Vec<&str> = found
        .iter()
        .filter_map(|finding| finding.what.split('`').nth(1))
        .collect();
    assert_eq!(about, ["copyleft", "copyleft", "openssl", "openssl"], "{found:?}");

    let package = |name: &str, version: &str| Package {
        name: name.into(),
        version: version.into(),
        ..Package::default()
    };
    let rules = Rules {
        twice: vec!["known@1.2".into(), "other@0.3".into()],
        ..Rules::default()
    };
    let tree = [
        package("known", "1.2.9"),
        package("known", "2.0.0"),
        package("other", "0.31.0"),
        package("other", "0.4.0"),
        package("once", "1.0.0"),
    ];
    let found = check_versions(&rules, &tree);
    let what: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(what, ["`other` is built in the versions 0.31.0 and 0.4.0"]);

    let entry =
        |source: &str, sum: &str| format!("[[package]]\nname = \"x\"\nsource = \"{source}\"\n{sum}\n");
    let sum = "checksum = \"00\"";
    let lock = [
        entry("registry+https://one", sum),
        entry("registry+https://one", sum),
        entry("registry+https://one", ""),
        entry("registry+https://two", sum),
        entry("git+https://three", sum),
    ]
    .concat();
    let places = ["Cargo.lock:11", "Cargo.lock:15", "Cargo.lock:19", "Cargo.lock:19"];
    assert_found(check_sources(&lock), &places);
}
