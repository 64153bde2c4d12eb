//! Every dependency has a reason that is written down, and every reason still has its dependency.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::manifest::Manifest;
use crate::tree::Tree;

const ROOT: &str = "Cargo.toml";
const REASONS: &str = "docs/dependencies.md";

/// One row of the table: `| `name` | where | why |`.
struct Reason<'a> {
    name: &'a str,
    users: &'a str,
    line: usize,
}

fn check(tree: &Tree) -> Vec<Finding> {
    let manifest = Manifest::read(ROOT, tree.text(ROOT).unwrap_or_default());
    let is_ours = |name: &str| name.starts_with("dhow-");
    let used: Vec<(String, usize)> = manifest
        .workspace_dependencies
        .into_iter()
        .filter(|(name, _)| !is_ours(name))
        .collect();
    let reasons = reasons(tree.text(REASONS).unwrap_or_default());

    let mut findings = manifest.findings;
    for (name, line) in &used {
        if !reasons.iter().any(|reason| reason.name == name) {
            let mend = format!(
                "add a row to {REASONS}: | `{name}` | {} | why |",
                users(tree, name)
            );
            findings.push(Finding::new(ROOT, *line, format!("`{name}` has no reason"), mend));
        }
    }
    for pair in used.windows(2) {
        let [(before, _), (name, line)] = pair else {
            continue;
        };
        if before > name {
            let what = format!("`{name}` stands after `{before}`");
            findings.push(Finding::new(
                ROOT,
                *line,
                what,
                "keep `[workspace.dependencies]` sorted",
            ));
        }
    }
    findings.extend(
        reasons
            .iter()
            .filter_map(|reason| check_reason(tree, &used, reason)),
    );
    findings
}

fn check_reason(tree: &Tree, used: &[(String, usize)], reason: &Reason<'_>) -> Option<Finding> {
    let Reason {
        name,
        users: written,
        line,
    } = *reason;
    if !used.iter().any(|(listed, _)| listed == name) {
        let what = format!("`{name}` is no dependency of the workspace");
        return Some(Finding::new(REASONS, line, what, "remove the row"));
    }
    let users = users(tree, name);
    let what = format!("`{name}` is used by other crates than `{written}`");
    (written != users).then(|| Finding::new(REASONS, line, what, format!("write `{users}`")))
}

/// The crates whose manifests name the dependency, as the table writes them.
fn users(tree: &Tree, dependency: &str) -> String {
    let mut users = Vec::new();
    for (path, text) in tree.files() {
        let folder = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(folder) = folder else { continue };
        if Manifest::read(path, text)
            .dependencies
            .iter()
            .any(|used| used.name == dependency)
        {
            users.push(folder.strip_prefix("dhow-").unwrap_or(folder));
        }
    }
    users.sort_unstable();
    if users.is_empty() {
        "–".to_owned()
    } else {
        users.join(", ")
    }
}

fn reasons(text: &str) -> Vec<Reason<'_>> {
    let rows = text.lines().enumerate().filter_map(|(index, line)| {
        let (name, rest) = line.strip_prefix("| `")?.split_once('`')?;
        let users = rest.split('|').nth(1)?.trim();
        Some(Reason {
            name,
            users,
            line: index + 1,
        })
    });
    rows.collect()
}

#[test]
fn every_dependency_has_a_reason() {
    assert_clean(check(&Tree::workspace()));
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let root =
        "[workspace.dependencies]\ndhow-core = { path = \"x\" }\nserde = \"1\"\nanyhow = \"1\"\nz = \"1\"\n";
    let reasons = "| crate | where | why |\n|---|---|---|\n| `anyhow` | a, dhow | errors |\n| `gone` | a | once |\n\
                   | `z` | – | not yet |\n";
    let user = "[dev-dependencies]\nanyhow.workspace = true\n";
    let tree = Tree::of(&[
        (ROOT, root),
        (REASONS, reasons),
        ("crates/dhow/Cargo.toml", user),
        ("crates/dhow-a/Cargo.toml", user),
    ]);
    assert_found(
        check(&tree),
        &["Cargo.toml:3", "Cargo.toml:4", "docs/dependencies.md:4"],
    );

    let tree = Tree::of(&[
        (ROOT, root),
        (REASONS, reasons),
        ("crates/dhow-b/Cargo.toml", user),
    ]);
    let places = [
        "Cargo.toml:3",
        "Cargo.toml:4",
        "docs/dependencies.md:3",
        "docs/dependencies.md:4",
    ];
    assert_found(check(&tree), &places);
}
