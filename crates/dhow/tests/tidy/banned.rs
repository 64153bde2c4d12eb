//! What may not be written, and where: impurity in the core, unfinished work and unbounded queues anywhere.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens::{self, Token, find};
use crate::tree::{RustFile, Tree};

/// A pattern of tokens, and what to do instead.
struct Ban {
    pattern: &'static str,
    mend: &'static str,
}

const PASS_IT_IN: &str = "the core is pure: take it as a parameter or carry it inside the command";
const NO_IO: &str = "the core is pure: do this in the crate that calls it";
const ORDERED: &str = "iteration order must not depend on a seed: use a BTree map or `imbl::OrdMap`";
const FINISH: &str = "carry it out, or refuse it with an error that says so";
const EXPECT: &str = "use `#[expect(.., reason = \"..\")]`, which complains once it is no longer needed";
const BOUND: &str = "bound it with a named constant and its arithmetic in a comment";

/// In the sources of `dhow-core`. Addresses of `std::net` are plain data and may be used; sockets may not.
const IN_CORE: &[Ban] = &[
    Ban {
        pattern: "HashMap",
        mend: ORDERED,
    },
    Ban {
        pattern: "HashSet",
        mend: ORDERED,
    },
    Ban {
        pattern: "Instant :: now",
        mend: PASS_IT_IN,
    },
    Ban {
        pattern: "SystemTime",
        mend: PASS_IT_IN,
    },
    Ban {
        pattern: "rand",
        mend: PASS_IT_IN,
    },
    Ban {
        pattern: "std :: env",
        mend: PASS_IT_IN,
    },
    Ban {
        pattern: "std :: fs",
        mend: NO_IO,
    },
    Ban {
        pattern: "TcpListener",
        mend: NO_IO,
    },
    Ban {
        pattern: "TcpStream",
        mend: NO_IO,
    },
    Ban {
        pattern: "UdpSocket",
        mend: NO_IO,
    },
    Ban {
        pattern: "ToSocketAddrs",
        mend: NO_IO,
    },
    Ban {
        pattern: "std :: process",
        mend: NO_IO,
    },
    Ban {
        pattern: "std :: thread",
        mend: NO_IO,
    },
    Ban {
        pattern: "tokio",
        mend: NO_IO,
    },
    Ban {
        pattern: "print !",
        mend: NO_IO,
    },
    Ban {
        pattern: "println !",
        mend: NO_IO,
    },
    Ban {
        pattern: "eprint !",
        mend: NO_IO,
    },
    Ban {
        pattern: "eprintln !",
        mend: NO_IO,
    },
];

/// Rooms of other crates that are as pure as the core: what of the agent's keeper only decides, and what a seed or a script
/// drives in one thread. Their tests may ask the environment how long to run.
const PURE_ROOMS: &[&str] = &[
    "crates/dhow-agent/src/keeper/core",
    "crates/dhow-sim/src/lab",
    "crates/dhow-sim/src/world",
];

/// In every Rust file.
const ANYWHERE: &[Ban] = &[
    Ban {
        pattern: "todo !",
        mend: FINISH,
    },
    Ban {
        pattern: "unimplemented !",
        mend: FINISH,
    },
    Ban {
        pattern: "dbg !",
        mend: "remove it, or use `tracing`",
    },
    Ban {
        pattern: "# [ allow",
        mend: EXPECT,
    },
    Ban {
        pattern: "# ! [ allow",
        mend: EXPECT,
    },
    Ban {
        pattern: "# [ ignore",
        mend: "make the test quick and safe, or let it run under DHOW_TEST_LONG=1",
    },
];

/// In every crate's sources. A test may collect what it likes.
const IN_SOURCES: &[Ban] = &[
    Ban {
        pattern: "unbounded_channel",
        mend: BOUND,
    },
    Ban {
        pattern: "mpsc :: unbounded",
        mend: BOUND,
    },
    Ban {
        pattern: "std :: sync :: mpsc :: channel",
        mend: "use `sync_channel` with a bound",
    },
];

/// The one place that names the consensus library: `plane/log/raft.rs` and what lies below `plane/log/raft/`.
const OPENRAFT_HOME: &str = "crates/dhow-server/src/plane/log/raft";

fn check_tokens(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        // A file that cannot be read is reported by the rule about functions.
        let Ok(stream) = tokens::lex(file.text) else {
            continue;
        };
        let tokens = tokens::flatten(&stream);
        let in_room = PURE_ROOMS.iter().any(|room| file.path.starts_with(room));
        let in_room = in_room && !file.path.ends_with("/tests.rs");
        let in_core = (file.crate_name == "dhow-core" && file.in_src()) || in_room;
        let in_sources = if file.in_src() { IN_SOURCES } else { &[] };
        let in_core = if in_core { IN_CORE } else { &[] };
        let bans = ANYWHERE.iter().chain(in_sources).chain(in_core);
        for ban in bans {
            let what = format!("`{}` is banned here", ban.pattern.replace(' ', ""));
            findings.extend(at_each(&file, &tokens, ban.pattern, &what, ban.mend));
        }
        if file.in_src() {
            findings.extend(endless_channels(&file, &tokens));
        }
        if file.in_src() && !file.path.starts_with(OPENRAFT_HOME) {
            let what = "`openraft` is named outside its home";
            let mend =
                "only `plane/log/raft` of `dhow-server` names it: put what you need behind a type there";
            findings.extend(at_each(&file, &tokens, "openraft", what, mend));
        }
    }
    findings
}

/// A finding at each place of the pattern.
fn at_each(file: &RustFile<'_>, tokens: &[Token], pattern: &str, what: &str, mend: &str) -> Vec<Finding> {
    let places = find(tokens, pattern).into_iter();
    places
        .map(|at| Finding::new(file.path, tokens[at].line, what, mend))
        .collect()
}

/// `mpsc::channel()` without an argument is the standard library's, which has no bound.
fn endless_channels(file: &RustFile<'_>, tokens: &[Token]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in find(tokens, "mpsc :: channel") {
        let mut rest = tokens[at + 1..]
            .iter()
            .map(|token| token.text.as_str())
            .peekable();
        if rest.next_if_eq(&"::").is_some() {
            let mut depth = 0_i32;
            for text in rest.by_ref() {
                depth += i32::from(text == "<") - i32::from(text == ">");
                if depth == 0 {
                    break;
                }
            }
        }
        if (rest.next(), rest.next()) == (Some("("), Some(")")) {
            let what = "a channel without a bound";
            findings.push(Finding::new(file.path, tokens[at].line, what, BOUND));
        }
    }
    findings
}

/// Marks of unfinished work, which stand in comments and so escape the tokens.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

fn check_marks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        for (index, line) in file.text.lines().enumerate() {
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if let Some(mark) = words.find(|word| MARKS.contains(word)) {
                let mend = "do it now, or say in a sentence what is deliberately left out and why";
                findings.push(Finding::new(
                    file.path,
                    index + 1,
                    format!("a mark `{mark}`"),
                    mend,
                ));
            }
        }
    }
    findings
}

#[test]
fn nothing_banned_is_written() {
    assert_clean(check_tokens(&Tree::workspace()));
}

#[test]
fn nothing_is_marked_as_unfinished() {
    assert_clean(check_marks(&Tree::workspace()));
}

#[test]
fn impurity_in_the_core_is_found() {
    let text = "//! HashMap in words is fine.\nuse std::{collections::HashMap, fs};\n\
                fn f() { std::time::Instant::now(); }\nfn g() { println!(\"rand\") }\nuse std::net::IpAddr;\n\
                fn h() { std::env::var(\"X\"); tokio::spawn(()); }\n";
    let tree = Tree::of(&[
        ("crates/dhow-core/src/a.rs", text),
        ("crates/dhow-wire/src/a.rs", text),
    ]);
    let mut found: Vec<(usize, String)> = check_tokens(&tree)
        .into_iter()
        .map(|finding| (finding.line, finding.what))
        .collect();
    found.sort();
    found.dedup();
    let banned = [
        (2, "HashMap"),
        (2, "std::fs"),
        (3, "Instant::now"),
        (4, "println!"),
        (6, "std::env"),
        (6, "tokio"),
    ];
    assert_eq!(
        found,
        banned.map(|(line, name)| (line, format!("`{name}` is banned here")))
    );
}

#[test]
fn impurity_in_a_pure_room_is_found_and_its_tests_may_ask_the_environment() {
    let text = "fn f() { std::env::var(\"X\"); }\n";
    let tree = Tree::of(&[
        ("crates/dhow-agent/src/keeper/core.rs", text),
        ("crates/dhow-agent/src/keeper/core/reports.rs", text),
        ("crates/dhow-agent/src/keeper/core/tests.rs", text),
        ("crates/dhow-agent/src/keeper.rs", text),
    ]);
    let found: Vec<String> = check_tokens(&tree)
        .into_iter()
        .map(|finding| finding.path)
        .collect();
    let impure = ["core.rs", "core/reports.rs"].map(|file| format!("crates/dhow-agent/src/keeper/{file}"));
    assert_eq!(found, impure);
}

#[test]
fn every_ban_can_fire() {
    for ban in IN_CORE.iter().chain(IN_SOURCES).chain(ANYWHERE) {
        // An attribute needs its closing bracket to be read at all.
        let close = if ban.pattern.contains('[') { "]" } else { "" };
        let tree = Tree::of(&[("crates/dhow-core/src/a.rs", &format!("{} {close}", ban.pattern))]);
        assert!(
            !check_tokens(&tree).is_empty(),
            "`{}` is never found",
            ban.pattern
        );
    }
}

#[test]
fn unfinished_work_is_found() {
    let mark = format!("// {}: later\n// {}s as a part of a word\n", MARKS[0], MARKS[0]);
    let tree = Tree::of(&[("crates/a/src/a.rs", &mark)]);
    assert_found(check_marks(&tree), &["crates/a/src/a.rs:1"]);

    let text = "#[allow(dead_code)]\nfn f() { todo!() }\n#[ignore = \"slow\"]\n#[expect(dead_code)]\n";
    let tree = Tree::of(&[("crates/a/tests/a.rs", text)]);
    let places = [
        "crates/a/tests/a.rs:1",
        "crates/a/tests/a.rs:2",
        "crates/a/tests/a.rs:3",
    ];
    assert_found(check_tokens(&tree), &places);
}

#[test]
fn an_endless_channel_is_found() {
    let text = "fn f() { let c = mpsc::channel(); }\nfn g() { mpsc::channel::<Vec<u8>>(); }\n\
                fn h() { mpsc::channel(8); mpsc::channel::<u8>(8); }\nuse tokio::sync::mpsc;\n\
                use std::sync::mpsc::{self, channel};\n";
    let tree = Tree::of(&[("crates/a/src/a.rs", text), ("crates/a/tests/a.rs", text)]);
    assert_found(
        check_tokens(&tree),
        &[
            "crates/a/src/a.rs:1",
            "crates/a/src/a.rs:2",
            "crates/a/src/a.rs:5",
        ],
    );
}

#[test]
fn openraft_away_from_home_is_found() {
    let text = "use openraft::Raft;\n";
    let tree = Tree::of(&[
        ("crates/dhow-server/src/plane/log/raft.rs", text),
        ("crates/dhow-server/src/plane/log/raft/store.rs", text),
        ("crates/dhow-server/src/plane/log/static.rs", text),
        ("crates/dhow-server/tests/storage_suite.rs", text),
    ]);
    assert_found(
        check_tokens(&tree),
        &["crates/dhow-server/src/plane/log/static.rs:1"],
    );
}
