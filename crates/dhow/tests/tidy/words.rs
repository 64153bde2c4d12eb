//! The tree speaks of the product alone: nothing of the machine it was written on.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tree::Tree;

/// Each word is put together here, so that this file does not contain it.
const FORBIDDEN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/."),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("registry.", "npmjs"),
];

/// Written by a tool or by others: not ours to word.
const EXEMPT: &[&str] = &["Cargo.lock", "LICENSE"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !EXEMPT.contains(path)) {
        for (index, line) in text.lines().enumerate() {
            for word in FORBIDDEN.iter().filter(|word| contains(line, word)) {
                let mend = "name a path relative to the root, or a place that every user has";
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("`{word}` names this machine"),
                    mend,
                ));
            }
        }
    }
    findings
}

/// Whether the word stands there on its own, not as the tail of a longer path or name.
fn contains(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}'))
    })
}

#[test]
fn no_file_names_this_machine() {
    assert_clean(check(&Tree::workspace()));
}

#[test]
fn a_forbidden_word_is_found() {
    let line = format!("see {}notes\n", FORBIDDEN[0]);
    let inside = format!("frame{}x and a relative{}x\n", FORBIDDEN[0], FORBIDDEN[0]);
    let host = format!("\nhttps://{}/x\n", FORBIDDEN[2]);
    let tree = Tree::of(&[
        ("README.md", &line),
        ("a.rs", &inside),
        ("b.sh", &host),
        ("Cargo.lock", &host),
    ]);
    assert_found(check(&tree), &["README.md:1", "b.sh:2"]);
}
