//! Public items that no production code names: the compiler takes them for somebody's, and nobody is there.
//!
//! Names are compared, not meanings: an item that shares its name with one that is used is not found. A function counts
//! as used where it is called, stands in a path or is handed over as a value; a variable, a field or a word of a message
//! with its name is no use of it. What a `use` names does not count, nor what stands below `#[cfg(test)]`, in the folders
//! and modules of tests, or in what is made for tests.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens::{is_ident, is_punct, lex};
use crate::tree::{FileUse, Tree};

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
    "crates/dhow-server/src/net/node_door/scripted",
    "crates/dhow-wire/src/testing",
];

/// Items that stay although only tests name them: the path of the file, the name, and why.
const KEPT: &[(&str, &str, &str)] = &[
    (
        "crates/dhow-wire/src/grpc/sparing_codec.rs",
        "SparingCodec",
        "the code that the build makes of the protocol names it",
    ),
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
        "crates/dhow-server/src/net/keys/worker_ca.rs",
        "recognise",
        "certificates are recognised with their time by the tests of keys",
    ),
    (
        "crates/dhow-server/src/net/keys/worker_key.rs",
        "of_pem",
        "tests read when a certificate on disk ends",
    ),
    (
        "crates/dhow-server/src/plane/log/store.rs",
        "stats",
        "benches and tests count what was written",
    ),
    (
        "crates/dhow-server/src/plane/log/store/disk.rs",
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
    (
        "crates/dhow-wire/src/deployment.rs",
        "parse_deployment",
        "scenarios, examples and fuzzers read files that stand alone",
    ),
];

#[derive(Debug, PartialEq, Eq)]
struct Item {
    name: String,
    line: usize,
    is_function: bool,
}

/// What one file defines for others, and what it names.
#[derive(Debug, Default)]
struct Names {
    items: Vec<Item>,
    used: BTreeSet<String>,
    /// Of those, what is called or stands in a path.
    called: BTreeSet<String>,
    /// Variables, parameters and fields.
    bound: BTreeSet<String>,
    /// Modules below this file that are compiled for tests alone.
    test_modules: Vec<String>,
}

impl Names {
    fn uses(&self, item: &Item) -> bool {
        let name = &item.name;
        match item.is_function {
            true => self.called.contains(name) || (self.used.contains(name) && !self.bound.contains(name)),
            false => self.used.contains(name),
        }
    }
}

struct ReadFile<'a> {
    path: &'a str,
    is_library: bool,
    names: Names,
}

fn read_files(tree: &Tree) -> Vec<ReadFile<'_>> {
    let is_for_tests = |path: &str| FOR_TESTS.iter().any(|folder| path.starts_with(folder));
    let files = tree.rust_files().filter(|file| {
        file.file_use == FileUse::Source && file.crate_name != NOT_SHIPPED && !is_for_tests(file.path)
    });
    let files = files.filter_map(|file| {
        let mut names = Names::default();
        read(&lex(file.text).ok()?, &mut names);
        Some(ReadFile {
            path: file.path,
            is_library: file.crate_name != BINARY,
            names,
        })
    });
    let mut read: Vec<ReadFile<'_>> = files.collect();
    let modules = read.iter().flat_map(|file| {
        let folder = file.path.trim_end_matches(".rs");
        let folder = folder
            .trim_end_matches("/lib")
            .trim_end_matches("/main")
            .to_owned();
        let modules = file.names.test_modules.iter();
        modules.map(move |module| format!("{folder}/{module}"))
    });
    let modules: Vec<String> = modules.collect();
    let is_below = |path: &str, module: &String| {
        let rest = path.strip_prefix(module.as_str());
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    read.retain(|file| !modules.iter().any(|module| is_below(file.path, module)));
    read
}

fn check(tree: &Tree, kept: &[(&str, &str, &str)]) -> Vec<Finding> {
    let read = read_files(tree);
    let is_used = |item: &Item| read.iter().any(|file| file.names.uses(item));
    let mut findings = Vec::new();
    for file in read.iter().filter(|file| file.is_library) {
        for item in file.names.items.iter().filter(|item| !is_used(item)) {
            let is_kept = kept
                .iter()
                .any(|(path, name, _)| *path == file.path && *name == item.name);
            if !is_kept {
                let what = format!("no production code names `{}`", item.name);
                let mend = "use it, remove it, or make it part of a module that is made for tests";
                findings.push(Finding::new(file.path, item.line, what, mend));
            }
        }
    }
    for (path, name, _) in kept {
        let is_there = read.iter().any(|file| {
            let mut items = file.names.items.iter();
            file.path == *path && items.any(|item| item.name == *name && !is_used(item))
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
                true => {
                    names.test_modules.extend(module(&trees, at + 2));
                    end_of_item(&trees, at + 2)
                }
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
                let is_trait = is_ident(tree, "trait") && item.is_some();
                names.items.extend(item);
                if is_trait {
                    names.items.extend(methods(&trees, next));
                }
                next
            }
            None => {
                read_tree(&trees, at, names);
                at + 1
            }
        };
    }
}

fn read_tree(trees: &[TokenTree], at: usize, names: &mut Names) {
    let Some(tree) = trees.get(at) else { return };
    match tree {
        TokenTree::Ident(ident) => read_name(ident.to_string(), trees, at, names),
        TokenTree::Group(group) => {
            if at > 0 && is_ident(&trees[at - 1], "let") {
                bind_all(&group.stream(), names);
            }
            read(&group.stream(), names);
        }
        TokenTree::Literal(text) => names.used.extend(captured(&text.to_string())),
        TokenTree::Punct(_) => {}
    }
}

/// What a name at this place says: that it is called, bound, or just named.
fn read_name(name: String, trees: &[TokenTree], at: usize, names: &mut Names) {
    let before = |back: usize| at.checked_sub(back).and_then(|at| trees.get(at));
    let after = |ahead: usize| trees.get(at + ahead);
    let is = |tree: Option<&TokenTree>, punct: char| tree.is_some_and(|tree| is_punct(tree, punct));
    let follows_path = is(before(1), ':') && is(before(2), ':');
    let leads_path = is(after(1), ':') && is(after(2), ':');
    let has_arguments = after(1).is_some_and(
        |tree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis),
    );
    let is_bound = ["let", "mut", "ref", "for"]
        .iter()
        .any(|word| before(1).is_some_and(|tree| is_ident(tree, word)))
        || (is(after(1), ':') && !leads_path)
        || (is(after(1), '|') && (is(before(1), '|') || is(before(1), ',')));
    let is_field = is(before(1), '.') && !is(before(2), '.') && !has_arguments && !leads_path;
    if is_bound {
        names.bound.insert(name.clone());
    } else if follows_path || leads_path || has_arguments {
        names.called.insert(name.clone());
    }
    match is_field {
        // It is one somewhere, and may be a type's or a constant's name there.
        true => names.bound.insert(name.clone()),
        false => names.used.insert(name),
    };
}

/// The names of a pattern.
fn bind_all(pattern: &TokenStream, names: &mut Names) {
    for tree in pattern.clone() {
        match tree {
            TokenTree::Ident(ident) => {
                names.bound.insert(ident.to_string());
            }
            TokenTree::Group(group) => bind_all(&group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// What a text names between braces: `"{LIMIT} bytes"`.
fn captured(text: &str) -> Vec<String> {
    let parts = text.split('{').skip(1);
    let names = parts.filter_map(|part| {
        let name: String = part
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        (!name.is_empty()).then_some(name)
    });
    names.collect()
}

/// The module that is declared here, without a body.
fn module(trees: &[TokenTree], at: usize) -> Option<String> {
    let (word, name, end) = (trees.get(at)?, trees.get(at + 1)?, trees.get(at + 2)?);
    match name {
        TokenTree::Ident(name) if is_ident(word, "mod") && is_punct(end, ';') => Some(name.to_string()),
        _ => None,
    }
}

/// What a trait that is for others asks of its types, or gives them.
fn methods(trees: &[TokenTree], at: usize) -> Vec<Item> {
    let is_block =
        |tree: &&TokenTree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let Some(TokenTree::Group(block)) = trees.iter().skip(at).find(is_block) else {
        return Vec::new();
    };
    let inner: Vec<TokenTree> = block.stream().into_iter().collect();
    let functions = inner.windows(2).filter_map(|pair| match pair {
        [word, TokenTree::Ident(name)] if is_ident(word, "fn") => Some(Item {
            name: name.to_string(),
            line: name.span().start().line,
            is_function: true,
        }),
        _ => None,
    });
    functions.collect()
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

/// Attributes name functions inside texts: `#[serde(default = "…")]`. The words of a message are no names, but for what
/// stands between braces.
fn read_attribute(attribute: &TokenStream, names: &mut Names) {
    let mut trees = attribute.clone().into_iter().peekable();
    let first = trees.peek().map(ToString::to_string).unwrap_or_default();
    if first != "doc" {
        read_attribute_tokens(attribute, first == "serde", names);
    }
}

fn read_attribute_tokens(attribute: &TokenStream, has_paths: bool, names: &mut Names) {
    let trees: Vec<TokenTree> = attribute.clone().into_iter().collect();
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => read_attribute_tokens(&group.stream(), has_paths, names),
            TokenTree::Ident(ident) => read_name(ident.to_string(), &trees, at, names),
            TokenTree::Literal(text) if has_paths => {
                let text = text.to_string();
                let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                names.called.extend(words.clone().map(str::to_owned));
                names.used.extend(words.map(str::to_owned));
            }
            TokenTree::Literal(text) => names.used.extend(captured(&text.to_string())),
            TokenTree::Punct(_) => {}
        }
    }
}

/// What is brought in counts where it is named again; a name that is changed on the way counts here, and one that others
/// get with it is a new name for them.
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
    let is_for_others = at > 0 && is_ident(&trees[at - 1], "pub");
    for renamed in words.windows(3) {
        if let [name, "as", other] = renamed {
            names.used.insert((*name).to_owned());
            names.called.insert((*name).to_owned());
            let item = Item {
                name: (*other).to_owned(),
                line: trees[at].span().start().line,
                is_function: false,
            };
            names
                .items
                .extend(Some(item).filter(|item| is_for_others && item.name != "_"));
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
        is_function: is_ident(kind, "fn"),
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
        "crates/dhow-a/src/lib.rs:3",
    ];
    assert_found(check(&tree, &[]), &places);
    let kept = [
        ("crates/dhow-a/src/a.rs", "lonely", "why"),
        ("crates/dhow-a/src/a.rs", "used", "why"),
    ];
    assert_found(
        check(&tree, &kept),
        &["crates/dhow-a/src/a.rs:0", places[1], places[2], places[3]],
    );
}

/// What a reader takes for a use, and is none.
#[test]
fn a_namesake_is_no_use() {
    let lib = "//! x\nmod a;\n#[cfg(test)]\nmod samples;\npub use a::Renamed as NewName;\n";
    let a = "pub fn variable() {}\npub fn field() {}\npub fn told() {}\npub fn parameter() {}\npub fn sampled() {}\n\
             pub fn handed() {}\npub struct Renamed;\npub const LIMIT: u8 = 1;\npub const LONELY: u8 = 1;\n\
             pub trait Way { fn called(&self); fn asked_by_tests(&self); }\n\
             #[error(\"told {LIMIT}\")]\nfn own(x: X, parameter: u8) {\n    let variable = 1;\n    let (a, field) = x;\n\
             x.field = variable;\n    x.called();\n    each(handed);\n    own(x, parameter);\n}\n\
             impl Way for X { fn asked_by_tests(&self) {} }\n";
    let tree = Tree::of(&[
        ("crates/dhow-a/src/lib.rs", lib),
        ("crates/dhow-a/src/a.rs", a),
        ("crates/dhow-a/src/samples.rs", "fn s() { sampled(); LONELY; }"),
    ]);
    let places = [
        "crates/dhow-a/src/a.rs:1",
        "crates/dhow-a/src/a.rs:2",
        "crates/dhow-a/src/a.rs:3",
        "crates/dhow-a/src/a.rs:4",
        "crates/dhow-a/src/a.rs:5",
        "crates/dhow-a/src/a.rs:9",
        "crates/dhow-a/src/a.rs:10",
        "crates/dhow-a/src/lib.rs:5",
    ];
    assert_found(check(&tree, &[]), &places);
}
