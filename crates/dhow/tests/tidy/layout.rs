//! Where things stand in a crate: no `mod.rs`, a `lib.rs` that is only a table of contents, a header on every
//! file that says what it is for.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens::{is_ident, is_punct, lex};
use crate::tree::{RustFile, Tree};
use proc_macro2::{Delimiter, TokenTree};

fn check_mod_files(tree: &Tree) -> Vec<Finding> {
    let in_tree = tree.rust_files().filter(|file| file.file_name() == "mod.rs");
    let mend =
        "rename `foo/mod.rs` to `foo.rs` beside the folder, so that every tab of an editor has its own name";
    in_tree
        .map(|file| Finding::new(file.path, 1, "a module file is named `mod.rs`", mend))
        .collect()
}

fn check_headers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files().filter(RustFile::in_src) {
        if !file.text.starts_with("//!") {
            let mend = "begin with `//!` sentences: purpose, who calls it, what it must never do";
            findings.push(Finding::new(
                file.path,
                1,
                "the file does not start with a `//!` header",
                mend,
            ));
        }
    }
    findings
}

fn check_lib_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .rust_files()
        .filter(|file| file.path.ends_with("/src/lib.rs"))
    {
        // A file that cannot be read is reported by the rule about functions.
        let Ok(stream) = lex(file.text) else { continue };
        for line in lines_with_logic(stream.into_iter().collect()) {
            let what = "`lib.rs` holds something other than docs, `mod name;` and `use`";
            findings.push(Finding::new(
                file.path,
                line,
                what,
                "move it to a module and re-export it from there",
            ));
        }
    }
    findings
}

/// The first line of every item that is neither `mod name;` nor `use …;` nor `extern crate …;`.
fn lines_with_logic(trees: Vec<TokenTree>) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut rest = trees.as_slice();
    while !rest.is_empty() {
        rest = skip_attributes_and_visibility(rest);
        let Some(first) = rest.first() else { break };
        // An item ends with a semicolon or with its block, whichever comes first.
        let ends_item = |tree: &TokenTree| is_punct(tree, ';') || is_block(tree);
        let is_listing = ["mod", "use", "extern"].iter().any(|word| is_ident(first, word));
        let end = if is_ident(first, "use") {
            rest.iter().position(|tree| is_punct(tree, ';'))
        } else {
            rest.iter().position(ends_item)
        };
        let end = end.unwrap_or(rest.len() - 1);
        if !is_listing || is_block(&rest[end]) {
            lines.push(first.span().start().line);
        }
        rest = &rest[end + 1..];
    }
    lines
}

fn is_block(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn skip_attributes_and_visibility(mut rest: &[TokenTree]) -> &[TokenTree] {
    loop {
        rest = match rest {
            [hash, bang, TokenTree::Group(_), tail @ ..] if is_punct(hash, '#') && is_punct(bang, '!') => {
                tail
            }
            [hash, TokenTree::Group(_), tail @ ..] if is_punct(hash, '#') => tail,
            [public, TokenTree::Group(scope), tail @ ..]
                if is_ident(public, "pub") && scope.delimiter() == Delimiter::Parenthesis =>
            {
                tail
            }
            [public, tail @ ..] if is_ident(public, "pub") => tail,
            settled => return settled,
        };
    }
}

#[test]
fn no_module_file_is_named_mod() {
    assert_clean(check_mod_files(&Tree::workspace()));
}

#[test]
fn every_source_file_has_a_header() {
    assert_clean(check_headers(&Tree::workspace()));
}

#[test]
fn lib_files_are_only_a_table_of_contents() {
    assert_clean(check_lib_files(&Tree::workspace()));
}

#[test]
fn a_mod_file_is_found() {
    let tree = Tree::of(&[("crates/a/src/b/mod.rs", ""), ("crates/a/src/model.rs", "")]);
    assert_found(check_mod_files(&tree), &["crates/a/src/b/mod.rs:1"]);
}

#[test]
fn a_missing_header_is_found() {
    let tree = Tree::of(&[
        ("crates/a/src/good.rs", "//! What it is for.\n"),
        ("crates/a/src/bare.rs", "// A comment is no header.\n"),
        ("crates/a/src/empty.rs", ""),
        ("crates/a/tests/case.rs", "fn case() {}\n"),
    ]);
    assert_found(
        check_headers(&tree),
        &["crates/a/src/bare.rs:1", "crates/a/src/empty.rs:1"],
    );
}

#[test]
fn logic_in_a_lib_file_is_found() {
    let good = "//! Doc.\n#![warn(missing_docs)]\n\nmod a;\n#[cfg(test)]\npub(crate) mod b;\npub use a::{A, c::D};\n";
    let bad = "//! Doc.\npub mod a;\nmod inline { mod b; }\npub struct S;\nimpl S {\n    fn f() {}\n}\nuse a::A;\n\
               m! { x }\nconst C: u8 = 1;\n";
    let tree = Tree::of(&[("crates/a/src/lib.rs", good), ("crates/b/src/lib.rs", bad)]);
    let lines = [3, 4, 5, 9, 10].map(|line| format!("crates/b/src/lib.rs:{line}"));
    let mut found: Vec<Finding> = check_lib_files(&tree);
    found.sort_by_key(|finding| finding.line);
    let places: Vec<String> = found.iter().map(|f| format!("{}:{}", f.path, f.line)).collect();
    assert_eq!(places, lines);
}
