//! Which room of the server may use which. The table here is the one in ARCHITECTURE.md.
//!
//! A room is a module right below the root of `dhow-server`. Its tests keep the arrows too. Inside the rooms that hold
//! separate things, `net` and `plane`, production code has no circle of modules.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens::{Token, flatten, lex};
use crate::tree::{FileUse, Tree};

const ROOT: &str = "crates/dhow-server/src/";

struct Room {
    name: &'static str,
    uses: &'static [&'static str],
    /// Whether the modules of the room must be free of circles.
    is_in_order: bool,
}

const ROOMS: &[Room] = &[
    Room {
        name: "clock",
        uses: &[],
        is_in_order: false,
    },
    Room {
        name: "net",
        uses: &["clock"],
        is_in_order: true,
    },
    Room {
        name: "plane",
        uses: &["clock", "net"],
        is_in_order: true,
    },
    Room {
        name: "gateway",
        uses: &["clock", "net", "plane"],
        is_in_order: false,
    },
    Room {
        name: "api",
        uses: &["clock", "net", "plane", "gateway"],
        is_in_order: false,
    },
    Room {
        name: "page",
        uses: &["clock", "net", "plane", "api"],
        is_in_order: false,
    },
];

/// That a file names a module: which one, by its path from the root, and in which line.
struct Mention {
    module: Vec<String>,
    line: usize,
}

/// Every path of a file that begins at the root of the crate, or climbs by `super` and does not leave the crate.
fn mentions(own: &[&str], tokens: &[Token]) -> Vec<Mention> {
    let mut found = Vec::new();
    let is_path = |at: usize| tokens.get(at).is_some_and(|token| token.text == "::");
    for (at, token) in tokens.iter().enumerate() {
        let is_inside = at > 0 && is_path(at - 1);
        let (above, mut next) = match token.text.as_str() {
            "crate" if is_path(at + 1) => (0, at + 2),
            "super" if !is_inside && is_path(at + 1) => (own.len().saturating_sub(1), at + 2),
            _ => continue,
        };
        let mut module: Vec<String> = own[..above].iter().map(|part| (*part).to_owned()).collect();
        let text = |at: usize| tokens.get(at).map(|token| token.text.as_str());
        while text(next) == Some("super") && is_path(next + 1) {
            module.pop();
            next += 2;
        }
        let mut line = token.line;
        // Two steps below the root are all that the rules look at.
        while module.len() < 2
            && let Some(part) = tokens.get(next)
        {
            module.push(part.text.clone());
            line = part.line;
            if !is_path(next + 1) {
                break;
            }
            next += 2;
        }
        found.push(Mention { module, line });
    }
    found
}

/// That one module of a room uses another, and where.
struct Arrow<'a> {
    from: String,
    to: String,
    path: &'a str,
    line: usize,
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut arrows: BTreeMap<&str, Vec<Arrow<'_>>> = BTreeMap::new();
    for file in tree.rust_files() {
        let own = file
            .path
            .strip_prefix(ROOT)
            .map(|path| path.trim_end_matches(".rs"));
        let Some(own) = own.filter(|own| *own != "lib") else {
            continue;
        };
        let own: Vec<&str> = own.split('/').collect();
        let Some(room) = ROOMS.iter().find(|room| room.name == own[0]) else {
            let what = format!("the module `{}` is no room of the server", own[0]);
            let mend = "put it into the room that it is part of; a new one stands in ARCHITECTURE.md and in `ROOMS` \
                        of crates/dhow/tests/tidy/rooms.rs";
            findings.push(Finding::new(file.path, 1, what, mend));
            continue;
        };
        // A file that cannot be read is reported by the rule about functions.
        let Ok(stream) = lex(file.text) else { continue };
        for Mention { module, line } in mentions(&own, &flatten(&stream)) {
            let Some(used) = module.first() else { continue };
            let is_known = ROOMS.iter().any(|known| known.name == used);
            if is_known && used != room.name && !room.uses.contains(&used.as_str()) {
                let what = format!("`{}` may not use `{used}`", room.name);
                let mend = "move what both need to the lower room, or hand it in from above";
                findings.push(Finding::new(file.path, line, what, mend));
            }
            let is_inner = used == room.name && room.is_in_order && file.file_use == FileUse::Source;
            if is_inner
                && let (Some(from), Some(to)) = (own.get(1), module.get(1))
                && from != to
                && tree.exists(&format!("{ROOT}{used}/{to}.rs"))
            {
                arrows.entry(room.name).or_default().push(Arrow {
                    from: (*from).to_owned(),
                    to: to.clone(),
                    path: file.path,
                    line,
                });
            }
        }
    }
    findings.extend(arrows.values().flat_map(|arrows| circles(arrows)));
    findings
}

/// The arrows that lead back to where they come from.
fn circles(arrows: &[Arrow<'_>]) -> Vec<Finding> {
    let reaches = |from: &str, to: &str| {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            let next = arrows.iter().filter(|arrow| arrow.from == module);
            open.extend(next.map(|arrow| arrow.to.as_str()).filter(|to| seen.insert(to)));
        }
        seen.contains(to)
    };
    let circular = arrows.iter().filter(|arrow| reaches(&arrow.to, &arrow.from));
    let found = circular.map(|Arrow { from, to, path, line }| {
        let what = format!("`{from}` uses `{to}`, and `{to}` comes back to `{from}`");
        Finding::new(path, *line, what, "move what both need below both")
    });
    found.collect()
}

#[test]
fn rooms_use_only_what_they_may() {
    assert_clean(check(&Tree::workspace()));
}

#[test]
fn every_room_is_there_and_none_is_above_what_uses_it() {
    let tree = Tree::workspace();
    for (at, room) in ROOMS.iter().enumerate() {
        assert!(tree.exists(&format!("{ROOT}{}.rs", room.name)), "{}", room.name);
        let below: Vec<&str> = ROOMS[..at].iter().map(|room| room.name).collect();
        assert!(room.uses.iter().all(|used| below.contains(used)), "{}", room.name);
    }
}

#[test]
fn a_wrong_arrow_between_rooms_is_found() {
    let lib = "pub mod api;\npub mod net;\npub mod new;\npub mod plane;\n";
    let keys = "use crate::clock::Clock;\nuse crate::{\n    net::tcp,\n    plane::log,\n};\n";
    let tests = "fn f() { crate::api::Peer::new(); }\n// crate::api\n";
    let log =
        "use crate::net::keys::Key;\nuse crate::plane::runtime::View;\nuse super::super::gateway::Door;\n";
    let runtime = "use crate::plane::log::Log;\nuse super::storage::Storage;\nuse super::Unknown;\n";
    let storage = "use self::runtime::Own;\nuse crate::plane::storage::Itself;\n";
    let cron = "use super::runtime::View;\n";
    let tree = Tree::of(&[
        ("crates/dhow-server/src/api.rs", "use crate::gateway::Door;\n"),
        ("crates/dhow-server/src/lib.rs", lib),
        ("crates/dhow-server/src/net/keys.rs", keys),
        ("crates/dhow-server/src/net/keys/tests.rs", tests),
        ("crates/dhow-server/src/new.rs", ""),
        ("crates/dhow-server/src/plane/cron.rs", cron),
        ("crates/dhow-server/src/plane/log.rs", log),
        (
            "crates/dhow-server/src/plane/log/tests.rs",
            "use crate::plane::cron::Table;\n",
        ),
        ("crates/dhow-server/src/plane/runtime.rs", runtime),
        ("crates/dhow-server/src/plane/storage.rs", storage),
        ("crates/dhow-wire/src/plane/log.rs", "use crate::api::Document;\n"),
    ]);
    let places = [
        "crates/dhow-server/src/net/keys.rs:4",
        "crates/dhow-server/src/net/keys/tests.rs:1",
        "crates/dhow-server/src/new.rs:1",
        "crates/dhow-server/src/plane/log.rs:2",
        "crates/dhow-server/src/plane/log.rs:3",
        "crates/dhow-server/src/plane/runtime.rs:1",
    ];
    assert_found(check(&tree), &places);
}
