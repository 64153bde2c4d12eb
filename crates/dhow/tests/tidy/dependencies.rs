//! Every dependency has a reason that is written down, and every reason still has its dependency.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::manifest::Manifest;
use crate::tree::Tree;

const ROOT: &str = "Cargo.toml";
const REASONS: &str = "docs/dependencies.md";

fn check(tree: &Tree) -> Vec<Finding> {
    let manifest = Manifest::read(ROOT, tree.text(ROOT).unwrap_or_default());
    let ours = |name: &str| name.starts_with("dhow-");
    let used: Vec<(String, usize)> = manifest
        .workspace_dependencies
        .into_iter()
        .filter(|(name, _)| !ours(name))
        .collect();
    let reasons = reasons(tree.text(REASONS).unwrap_or_default());

    let mut findings = manifest.findings;
    for (name, line) in &used {
        if !reasons.iter().any(|(listed, _)| listed == name) {
            let mend = format!("add a row for `{name}` to {REASONS}: where it is used and why");
            findings.push(Finding::new(ROOT, *line, format!("`{name}` has no reason"), mend));
        }
    }
    for (name, line) in &reasons {
        if !used.iter().any(|(listed, _)| listed == name) {
            let what = format!("`{name}` is no dependency of the workspace");
            findings.push(Finding::new(REASONS, *line, what, "remove the row"));
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
    findings
}

/// The crates in the first column of the table.
fn reasons(text: &str) -> Vec<(String, usize)> {
    let rows = text.lines().enumerate().filter_map(|(index, line)| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some((name.to_owned(), index + 1))
    });
    rows.collect()
}

#[test]
fn every_dependency_has_a_reason() {
    assert_clean(check(&Tree::workspace()));
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let root = "[workspace.dependencies]\ndhow-core = { path = \"x\" }\nserde = \"1\"\nanyhow = \"1\"\n";
    let reasons = "# Dependencies\n\n| crate | why |\n|---|---|\n| `anyhow` | errors |\n| `gone` | once |\n";
    let tree = Tree::of(&[(ROOT, root), (REASONS, reasons)]);
    assert_found(
        check(&tree),
        &["Cargo.toml:3", "Cargo.toml:4", "docs/dependencies.md:6"],
    );
}
