//! Public items that no production code names: the compiler takes them for somebody's, and nobody is there.
//!
//! Names are compared, not meanings: an item that shares its name with one that is used is not found. What a `use` names
//! does not count, nor what stands below `#[cfg(test)]`, in the folders of tests, or in what is made for tests.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens::{is_ident, is_punct, lex};
use crate::tree::{Place, Tree};

/// Not shipped: whatever it calls is called by tests alone.
const NOT_SHIPPED: &str = "dhow-sim";
/// The binary: the compiler itself finds what nobody calls there.
const BINARY: &str = "dhow";

/// Modules that are made for tests, those of other crates included; each says so in its header.
const FOR_TESTS: &[&str] = &[
    "crates/dhow-agent/src/balance/no_balancer",
    "crates/dhow-driver/src/conformance",
    "crates/dhow-driver/src/fake",
    "crates/dhow-server/src/clock/fake",
    "crates/dhow-server/src/node_door/scripted",
    "crates/dhow-wire/src/testing",
];

/// Items that stay although only tests name them: the path of the file, the name, and why.
const KEPT: &[(&str, &str, &str)] = &[
    (
        "crates/dhow-core/src/lease/table.rs",
        "next_wake_ms",
        "the model of the table is asked when it wakes",
    ),
    (
        "crates/dhow-core/src/lease/table.rs",
        "set_config",
        "a later configuration must not shorten what was promised",
    ),
    (
        "crates/dhow-core/src/placement/unplaced.rs",
        "is_hindered",
        "the laws of placement ask whether a reason is one",
    ),
    (
        "crates/dhow-driver/src/driver/error.rs",
        "is_permanent",
        "the suite that every driver passes asks it",
    ),
    (
        "crates/dhow-driver/src/image/rootfs.rs",
        "is_mounted",
        "the mounts of tests are looked for",
    ),
    (
        "crates/dhow-server/src/api/serve.rs",
        "tcp_addrs",
        "tests bind port 0 and ask where that is",
    ),
    (
        "crates/dhow-server/src/keys/worker_ca.rs",
        "recognise",
        "certificates are recognised with their time by the tests of keys",
    ),
    (
        "crates/dhow-server/src/keys/worker_key.rs",
        "of_pem",
        "tests read when a certificate on disk ends",
    ),
    (
        "crates/dhow-server/src/leases/keeper.rs",
        "session_opened",
        "tests of leases speak as sessions do",
    ),
    (
        "crates/dhow-server/src/log/store.rs",
        "stats",
        "benches and tests count what was written",
    ),
    (
        "crates/dhow-server/src/log/store/disk.rs",
        "with_hook",
        "tests let a disk fail",
    ),
    (
        "crates/dhow-wire/src/config/effective.rs",
        "parse_config",
        "tests have a text in place of files",
    ),
    (
        "crates/dhow-wire/src/problem/code.rs",
        "as_u8",
        "the numbers of exit codes are a promise that tests hold",
    ),
    (
        "crates/dhow-wire/src/worker/poll.rs",
        "into_events_above",
        "what a careless worker takes is a promise that tests hold",
    ),
    (
        "crates/dhow-wire/src/worker/register.rs",
        "is_from_cluster",
        "a worker of another make refuses a foreign cluster with it",
    ),
];

#[derive(Debug, PartialEq, Eq)]
struct Item {
    name: String,
    line: usize,
}

/// What one file defines for others, and what it names.
#[derive(Debug, Default)]
struct Names {
    items: Vec<Item>,
    used: BTreeSet<String>,
}

fn check(tree: &Tree, kept: &[(&str, &str, &str)]) -> Vec<Finding> {
    let is_for_tests = |path: &str| FOR_TESTS.iter().any(|folder| path.starts_with(folder));
    let files = tree.rust_files().filter(|file| {
        file.place == Place::Source && file.crate_name != NOT_SHIPPED && !is_for_tests(file.path)
    });
    let read: Vec<(&str, bool, Names)> = files
        .filter_map(|file| {
            let stream = lex(file.text).ok()?;
            let mut names = Names::default();
            read(&stream, &mut names);
            Some((file.path, file.crate_name != BINARY, names))
        })
        .collect();
    let used: BTreeSet<&str> = read
        .iter()
        .flat_map(|(_, _, names)| names.used.iter().map(String::as_str))
        .collect();
    let mut findings = Vec::new();
    for (path, is_library, names) in &read {
        for item in names
            .items
            .iter()
            .filter(|item| *is_library && !used.contains(item.name.as_str()))
        {
            let is_kept = kept
                .iter()
                .any(|(file, name, _)| file == path && *name == item.name);
            if !is_kept {
                let what = format!("no production code names `{}`", item.name);
                let mend = "use it, remove it, or make it part of a module that is made for tests";
                findings.push(Finding::new(path, item.line, what, mend));
            }
        }
    }
    for (path, name, _) in kept {
        let is_there = read.iter().any(|(file, _, names)| {
            file == path && names.items.iter().any(|item| item.name == *name) && !used.contains(name)
        });
        if !is_there {
            let what = format!("`{name}` is not there or is used: it needs no exception");
            findings.push(Finding::new(path, 0, what, "remove it from the list"));
        }
    }
    findings
}

/// Walks one level of a file.
fn read(stream: &TokenStream, names: &mut Names) {
    let trees: Vec<TokenTree> = stream.clone().into_iter().collect();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        let group = trees.get(at + 1).and_then(brackets);
        if is_punct(tree, '#')
            && let Some(attribute) = group
        {
            at = match is_test(&attribute) {
                true => end_of_item(&trees, at + 2),
                false => {
                    read_attribute(&attribute, names);
                    at + 2
                }
            };
            continue;
        }
        if is_ident(tree, "use") {
            at = read_use(&trees, at, names);
            continue;
        }
        if is_ident(tree, "impl") {
            at = read_impl_head(&trees, at + 1, names);
            continue;
        }
        at = match definition(&trees, at) {
            Some((item, next)) => {
                names.items.extend(item);
                next
            }
            None => {
                match tree {
                    TokenTree::Ident(ident) => {
                        names.used.insert(ident.to_string());
                    }
                    TokenTree::Group(group) => read(&group.stream(), names),
                    TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                }
                at + 1
            }
        };
    }
}

fn brackets(tree: &TokenTree) -> Option<TokenStream> {
    match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(group.stream()),
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    }
}

fn is_test(attribute: &TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "test"
        || text.starts_with("cfg(test")
        || text.starts_with("cfg(all(test")
        || text.ends_with("::test")
}

/// Behind the item that starts here: its attributes, then all up to its block or semicolon.
fn end_of_item(trees: &[TokenTree], mut at: usize) -> usize {
    while let Some(tree) = trees.get(at) {
        at += 1;
        let is_block = matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        if is_block || is_punct(tree, ';') {
            break;
        }
    }
    at
}

/// Attributes name functions inside texts: `#[serde(default = "…")]`.
fn read_attribute(attribute: &TokenStream, names: &mut Names) {
    let mut trees = attribute.clone().into_iter().peekable();
    if trees.peek().is_some_and(|first| is_ident(first, "doc")) {
        return;
    }
    for tree in trees {
        match tree {
            TokenTree::Group(group) => read_attribute(&group.stream(), names),
            TokenTree::Ident(ident) => {
                names.used.insert(ident.to_string());
            }
            TokenTree::Literal(text) => {
                let text = text.to_string();
                let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                names.used.extend(words.map(str::to_owned));
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// What is brought in counts where it is named again; a name that is changed on the way counts here.
fn read_use(trees: &[TokenTree], at: usize, names: &mut Names) -> usize {
    let length = trees
        .iter()
        .skip(at)
        .take_while(|tree| !is_punct(tree, ';'))
        .count();
    let declaration: TokenStream = trees.iter().skip(at).take(length).cloned().collect();
    let text = declaration.to_string();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|w| !w.is_empty())
        .collect();
    for pair in words.windows(2) {
        if let [name, "as"] = pair {
            names.used.insert((*name).to_owned());
        }
    }
    at + length + 1
}

/// What an `impl` is for is no use of it; the trait before `for` is one. Gives the place of the block, or of what
/// follows an `impl` that stands for a type.
fn read_impl_head(trees: &[TokenTree], at: usize, names: &mut Names) -> usize {
    let is_end = |tree: &TokenTree| {
        is_punct(tree, ';')
            || matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    let length = trees.iter().skip(at).take_while(|tree| !is_end(tree)).count();
    let head: Vec<&TokenTree> = trees.iter().skip(at).take(length).collect();
    let traits = head.iter().position(|tree| is_ident(tree, "for")).unwrap_or(0);
    for tree in head.into_iter().take(traits) {
        if let TokenTree::Ident(ident) = tree {
            names.used.insert(ident.to_string());
        }
    }
    at + length
}

/// A definition that starts here: what is for others, and where reading goes on; the name itself is no use of it.
fn definition(trees: &[TokenTree], at: usize) -> Option<(Option<Item>, usize)> {
    const KINDS: [&str; 8] = [
        "fn", "struct", "enum", "trait", "type", "const", "static", "union",
    ];
    let kind = trees.get(at)?;
    let TokenTree::Ident(name) = trees.get(at + 1)? else {
        return None;
    };
    // `const fn` and `const _`.
    let is_kind = KINDS.iter().any(|word| is_ident(kind, word));
    if !is_kind || KINDS.iter().any(|word| name == word) || name == "unsafe" {
        return None;
    }
    let item = is_public(trees, at).then(|| Item {
        name: name.to_string(),
        line: name.span().start().line,
    });
    Some((item, at + 2))
}

/// Whether a plain `pub` stands before the keyword, with nothing but other keywords between.
fn is_public(trees: &[TokenTree], at: usize) -> bool {
    let before = trees.iter().take(at).rev();
    let mut words = before.skip_while(|tree| {
        ["const", "async", "unsafe", "extern"]
            .iter()
            .any(|word| is_ident(tree, word))
            || matches!(tree, TokenTree::Literal(_))
    });
    words.next().is_some_and(|tree| is_ident(tree, "pub"))
}

#[test]
fn every_public_item_has_a_user() {
    assert_clean(check(&Tree::workspace(), KEPT));
}

#[test]
fn an_item_that_only_tests_name_is_found() {
    let lib = "//! x\nmod a;\npub use a::{lonely, Lonely as Other, used};\npub struct Kept;\n";
    let a = "pub fn lonely() {}\npub const fn used() -> u8 { 1 }\n#[serde(default = \"named\")]\npub struct Lonely;\n\
             pub fn named() {}\n/// only_told here\npub fn only_told() {}\nfn own() { used() }\npub(crate) fn inner() {}\n\
             #[cfg(test)]\nmod tests { use super::*; #[test] fn t() { lonely() } }\nimpl X { pub async fn method(&self) {} }\n";
    let binary = "fn main() { dhow_a::Kept; }\npub fn mine() {}\n";
    let sim = "fn main() { only_told(); method(); }\n";
    let tree = Tree::of(&[
        ("crates/dhow-a/src/lib.rs", lib),
        ("crates/dhow-a/src/a.rs", a),
        ("crates/dhow/src/main.rs", binary),
        ("crates/dhow-sim/src/lib.rs", sim),
        ("crates/dhow-a/tests/t.rs", "fn t() { method() }"),
    ]);
    let places = [
        "crates/dhow-a/src/a.rs:1",
        "crates/dhow-a/src/a.rs:7",
        "crates/dhow-a/src/a.rs:12",
    ];
    assert_found(check(&tree, &[]), &places);
    let kept = [
        ("crates/dhow-a/src/a.rs", "lonely", "why"),
        ("crates/dhow-a/src/a.rs", "used", "why"),
    ];
    assert_found(
        check(&tree, &kept),
        &["crates/dhow-a/src/a.rs:0", places[1], places[2]],
    );
}
