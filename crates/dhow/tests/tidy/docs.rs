//! What the documents name is there: paths and tests in code spans, relative links and the headings they point at.

use std::collections::BTreeSet;

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tree::Tree;

/// A word in a code span that begins like this is a path from the root.
const PATH_BEGINNINGS: &[&str] = &["crates/", "docs/", "examples/", ".ci/", "./"];

/// From here on a path is a pattern; the folder before it must still be there.
const PLACEHOLDERS: &[&str] = &["*", "<", "{", "…", "...", "NNNN", "$"];

fn check_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, code) in code_spans(tree) {
        for word in code.split_whitespace().filter_map(path_in) {
            if !tree.exists(&fixed_part(word)) {
                let mend = "name a path that exists, or write what is named";
                findings.push(Finding::new(path, line, format!("`{word}` does not exist"), mend));
            }
        }
    }
    findings
}

/// A code span that is one word of this many parts is the name of a test, or of something else in the code.
const NAME_PARTS_MIN: usize = 4;

fn check_names(tree: &Tree) -> Vec<Finding> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = tree
        .rust_files()
        .flat_map(|file| file.text.split(|c: char| !is_of_name(c)))
        .collect();
    let spans = code_spans(tree).into_iter();
    let names = spans.filter(|(path, _, code)| {
        let is_name = code.chars().all(is_of_name) && code.split('_').all(|part| !part.is_empty());
        path.ends_with(".md") && is_name && code.split('_').count() >= NAME_PARTS_MIN
    });
    let gone = names.filter(|(_, _, name)| !known.contains(name));
    let mend = "name what exists: a test that was renamed or removed shows nothing any more";
    gone.map(|(path, line, name)| Finding::new(path, line, format!("nothing is called `{name}`"), mend))
        .collect()
}

/// The path that a word names, without what clings to it in a sentence.
fn path_in(word: &str) -> Option<&str> {
    let word = word
        .trim_matches(['"', '\'', '(', ')', ',', ';'])
        .trim_end_matches(['.', ':']);
    PATH_BEGINNINGS
        .iter()
        .any(|beginning| word.starts_with(beginning))
        .then_some(word)
}

fn fixed_part(word: &str) -> String {
    let word = word.trim_start_matches("./");
    let word = word.split(['#', ':']).next().unwrap_or(word);
    match PLACEHOLDERS.iter().filter_map(|mark| word.find(mark)).min() {
        None => word.to_owned(),
        Some(at) => word[..at]
            .rsplit_once('/')
            .map_or(String::new(), |(folder, _)| folder.to_owned()),
    }
}

/// The code spans and fenced blocks of every document, and the code spans in comments of every Rust file.
fn code_spans(tree: &Tree) -> Vec<(&str, usize, &str)> {
    let mut spans = Vec::new();
    for (path, text) in tree.files() {
        let (is_document, is_rust) = (path.ends_with(".md"), path.ends_with(".rs"));
        let mut fenced = false;
        for (index, line) in text.lines().enumerate() {
            let is_fence = is_document && line.trim_start().starts_with("```");
            fenced ^= is_fence;
            let is_comment = is_rust && line.trim_start().starts_with("//");
            if fenced && !is_fence {
                spans.push((path, index + 1, line));
            } else if is_document || is_comment {
                spans.extend(
                    line.split('`')
                        .skip(1)
                        .step_by(2)
                        .map(|code| (path, index + 1, code)),
                );
            }
        }
    }
    spans
}

fn check_links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() {
                path.to_owned()
            } else {
                resolve(folder, file)
            };
            let broken = if !tree.exists(&file) {
                Some(format!("the link `{target}` leads nowhere"))
            } else {
                let headings = tree.text(&file).map(anchors).unwrap_or_default();
                let is_there = heading.is_empty() || headings.iter().any(|anchor| anchor == heading);
                (!is_there).then(|| format!("`{file}` has no heading `#{heading}`"))
            };
            let mend = "links are relative to the file they stand in; an anchor is the heading in lower case";
            findings.extend(broken.map(|what| Finding::new(path, line, what, mend)));
        }
    }
    findings
}

/// The target of every `[text](target)` outside code, with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        // Where the text of a link is code, its target stands in the piece after the code.
        for prose in line.split('`').step_by(2) {
            found.extend(
                prose
                    .split("](")
                    .skip(1)
                    .filter_map(|rest| Some((index + 1, rest.split_once(')')?.0))),
            );
        }
    }
    found
}

fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors that a Markdown renderer gives the headings of a document.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn paths_named_in_documents_exist() {
    assert_clean(check_paths(&Tree::workspace()));
}

#[test]
fn tests_named_in_documents_exist() {
    assert_clean(check_names(&Tree::workspace()));
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let text = "Shown by `it_is_shown_here` and `it_was_shown_once`, with `a_short_name`.\n";
    let code = "#[test]\nfn it_is_shown_here() {}\n";
    let tree = Tree::of(&[("docs/a.md", text), ("crates/a/tests/b.rs", code)]);
    assert_found(check_names(&tree), &["docs/a.md:1"]);
}

#[test]
fn links_lead_somewhere() {
    assert_clean(check_links(&Tree::workspace()));
}

#[test]
fn a_path_that_is_not_there_is_found() {
    let text = "Run `./test --long`, see `crates/a/src/b.rs:12`, `docs/adr/NNNN-name.md` and `crates/*/src`.\n\
                But `crates/a/src/c.rs` is gone, crates/in/prose is prose.\n```\ncat docs/gone.md\n```\n";
    let comment = "// See `docs/gone.md`.\nlet text = \"`docs/gone.md`\";\n";
    let tree = Tree::of(&[
        ("README.md", text),
        ("crates/a/src/b.rs", comment),
        ("docs/adr/README.md", ""),
        ("test", ""),
    ]);
    assert_found(
        check_paths(&tree),
        &["README.md:2", "README.md:4", "crates/a/src/b.rs:1"],
    );
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# A Title: with `code`\n[ok](../README.md) [ok](#a-title-with-code) [ok](https://example.org/x)\n\
                [bad](../gone.md)\n[bad](#no-heading), [`bad`](gone/)\n```\n[fenced](x.md)\n```\n`[code](x.md)`\n";
    let tree = Tree::of(&[("README.md", ""), ("docs/a.md", text)]);
    assert_found(check_links(&tree), &["docs/a.md:3", "docs/a.md:4", "docs/a.md:4"]);
}
