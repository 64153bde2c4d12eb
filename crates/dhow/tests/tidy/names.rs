//! Types say what they are: by their name, and in their own words above it.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens;
use crate::tree::{FileUse, RustFile, Tree};

/// How a comment begins that says nothing itself.
const POINTERS: &[&str] = &["/// See ", "//! See "];

/// Names that say how a type is reached, and nothing of what it holds.
const GENERIC: &[&str] = &["Inner", "Shared", "Told", "Place"];

/// What a name of a type stands behind.
const DECLARED_BY: &[&str] = &["struct", "enum", "union", "trait", "type"];

fn check_pointers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        for (index, line) in file.text.lines().enumerate() {
            if POINTERS
                .iter()
                .any(|pointer| line.trim_start().starts_with(pointer))
            {
                let what = "a comment that only points elsewhere";
                let mend = "say in a sentence or two what it is and who uses it for what";
                findings.push(Finding::new(file.path, index + 1, what, mend));
            }
        }
    }
    findings
}

/// Crates whose readers are people that change them: the command line's own types are read as help.
const OF_THE_COMMAND_LINE: &[&str] = &["dhow", "dhow-cli"];

fn check_documented(tree: &Tree) -> Vec<Finding> {
    let is_read = |file: &RustFile<'_>| {
        let is_help = OF_THE_COMMAND_LINE.contains(&file.crate_name);
        file.file_use == FileUse::Source && file.in_src() && !is_help
    };
    let mut findings = Vec::new();
    for file in tree.rust_files().filter(is_read) {
        // Whether the lines before this one, attributes aside, are a comment on it.
        let (mut is_documented, mut in_attribute) = (false, false);
        for (index, line) in file.text.lines().enumerate() {
            if in_attribute || line.starts_with("#[") {
                in_attribute = !line.ends_with(']');
            } else if line.starts_with("///") {
                is_documented = true;
            } else {
                if is_public_type(line) && !is_documented {
                    let mend = "say above it in a sentence what it is and who uses it for what";
                    findings.push(Finding::new(
                        file.path,
                        index + 1,
                        "a type without a word about it",
                        mend,
                    ));
                }
                is_documented = false;
            }
        }
    }
    findings
}

fn is_public_type(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub") else {
        return false;
    };
    let rest = match rest.strip_prefix('(') {
        Some(scoped) => scoped.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    };
    let mut words = rest.split_whitespace();
    words
        .next()
        .is_some_and(|word| ["struct", "enum", "union", "trait"].contains(&word))
        && rest.starts_with(' ')
}

fn check_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        // A file that is no Rust is found elsewhere.
        let Ok(stream) = tokens::lex(file.text) else {
            continue;
        };
        let tokens = tokens::flatten(&stream);
        for pair in tokens.windows(2) {
            let [before, name] = pair else { continue };
            if DECLARED_BY.contains(&before.text.as_str()) && GENERIC.contains(&name.text.as_str()) {
                let what = format!("a type that is called `{}`", name.text);
                let mend = "name it after what it holds, as `ListenerState` or `RefusedCount` do";
                findings.push(Finding::new(file.path, name.line, what, mend));
            }
        }
    }
    findings
}

#[test]
fn every_type_says_itself_what_it_is() {
    assert_clean(check_pointers(&Tree::workspace()));
}

#[test]
fn every_public_type_says_what_it_is() {
    assert_clean(check_documented(&Tree::workspace()));
}

#[test]
fn every_type_is_named_after_what_it_holds() {
    assert_clean(check_names(&Tree::workspace()));
}

#[test]
fn a_comment_that_points_elsewhere_is_found() {
    let text = "//! See [`super`].\n\n/// See the module; cheap to clone.\npub struct A;\n/// Sees it.\nstruct B;\n\
                impl B {\n    /// See the module.\n    fn b() {}\n}\n// See the test.\n";
    let tree = Tree::of(&[("crates/a/src/a.rs", text), ("README.md", text)]);
    let places = [
        "crates/a/src/a.rs:1",
        "crates/a/src/a.rs:3",
        "crates/a/src/a.rs:8",
    ];
    assert_found(check_pointers(&tree), &places);
}

#[test]
fn a_generic_name_is_found() {
    let text = "struct Inner;\npub(super) enum Told { A }\ntype Shared = u8;\npub trait Place {}\n\
                struct InnerPart { shared: Mode }\nenum Mode { Shared, Place }\n// struct Inner\n";
    let tree = Tree::of(&[
        ("crates/a/src/a.rs", text),
        ("crates/a/tests/b.rs", "struct Told;\n"),
    ]);
    let places = [
        "crates/a/src/a.rs:1",
        "crates/a/src/a.rs:2",
        "crates/a/src/a.rs:3",
        "crates/a/src/a.rs:4",
        "crates/a/tests/b.rs:1",
    ];
    assert_found(check_names(&tree), &places);
}

#[test]
fn a_type_without_a_word_is_found() {
    let text = "//! Words.\n\npub struct A;\n/// A word.\n#[derive(\n    Debug,\n)]\npub enum B {}\n\
                #[derive(Debug)]\npub(crate) trait C {}\nstruct D;\npub fn structure() {}\n";
    let files = ["crates/a/src/a.rs", "crates/a/tests/a.rs", "crates/dhow/src/a.rs"];
    let tree = Tree::of(&files.map(|path| (path, text)));
    assert_found(
        check_documented(&tree),
        &["crates/a/src/a.rs:3", "crates/a/src/a.rs:10"],
    );
}
