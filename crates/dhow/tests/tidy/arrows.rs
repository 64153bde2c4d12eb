//! Which crate may use which. The table here is the one in ARCHITECTURE.md.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::manifest::{Dependency, Kind, Manifest};
use crate::tree::Tree;

struct Crate {
    name: &'static str,
    /// How far up the crate stands; tests may use anything that stands lower.
    level: u8,
    uses: &'static [&'static str],
}

const ALL_LIBRARIES: &[&str] = &[
    "dhow-cli",
    "dhow-compose",
    "dhow-core",
    "dhow-disk",
    "dhow-wire",
    "dhow-driver",
    "dhow-agent",
    "dhow-server",
];

const CRATES: &[Crate] = &[
    Crate {
        name: "dhow-core",
        level: 0,
        uses: &[],
    },
    Crate {
        name: "dhow-disk",
        level: 0,
        uses: &[],
    },
    Crate {
        name: "dhow-wire",
        level: 1,
        uses: &["dhow-core"],
    },
    Crate {
        name: "dhow-compose",
        level: 2,
        uses: &["dhow-core", "dhow-wire"],
    },
    Crate {
        name: "dhow-cli",
        level: 2,
        uses: &["dhow-core", "dhow-wire"],
    },
    Crate {
        name: "dhow-driver",
        level: 1,
        uses: &["dhow-core", "dhow-disk"],
    },
    Crate {
        name: "dhow-agent",
        level: 2,
        uses: &["dhow-core", "dhow-disk", "dhow-wire", "dhow-driver"],
    },
    Crate {
        name: "dhow-server",
        level: 2,
        uses: &["dhow-core", "dhow-disk", "dhow-wire"],
    },
    Crate {
        name: "dhow",
        level: 3,
        uses: ALL_LIBRARIES,
    },
    Crate {
        name: "dhow-sim",
        level: 3,
        uses: ALL_LIBRARIES,
    },
];

fn find_crate(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|known| known.name == name)
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        let Some(name) = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let mut manifest = Manifest::read(path, text);
        findings.append(&mut manifest.findings);
        let Some(known) = find_crate(name) else {
            let mend = "add it to ARCHITECTURE.md and to `CRATES` in crates/dhow/tests/tidy/arrows.rs";
            findings.push(Finding::new(
                path,
                1,
                format!("the crate `{name}` is in no table"),
                mend,
            ));
            continue;
        };
        if !manifest.lints_from_workspace {
            let mend = "add `[lints]` with `workspace = true`";
            findings.push(Finding::new(
                path,
                1,
                "the crate does not take the workspace's lints",
                mend,
            ));
        }
        findings.extend(
            manifest
                .dependencies
                .iter()
                .filter_map(|used| check_dependency(path, known, used)),
        );
    }
    findings
}

fn check_dependency(path: &str, user: &Crate, used: &Dependency) -> Option<Finding> {
    if !used.from_workspace {
        let what = format!("`{}` does not take its version from the root manifest", used.name);
        let mend = "put the version into `[workspace.dependencies]` and write `workspace = true` here";
        return Some(Finding::new(path, used.line, what, mend));
    }
    let is_ours = used.name == "dhow" || used.name.starts_with("dhow-");
    if !is_ours {
        return None;
    }
    let allowed = match used.kind {
        Kind::Normal | Kind::Build => user.uses.contains(&used.name.as_str()),
        Kind::Dev => find_crate(&used.name).is_some_and(|below| below.level < user.level),
    };
    if allowed {
        return None;
    }
    let what = format!("`{}` may not use `{}`", user.name, used.name);
    let mend = "move what is shared to a crate that both may use; a new arrow needs a decision record";
    Some(Finding::new(path, used.line, what, mend))
}

#[test]
fn crates_use_only_what_they_may() {
    assert_clean(check(&Tree::workspace()));
}

#[test]
fn a_wrong_arrow_is_found() {
    let manifest = |rest: &str| format!("[lints]\nworkspace = true\n{rest}");
    let core = manifest("[dependencies]\nserde.workspace = true\ndhow-wire.workspace = true\n");
    let server = manifest("[dependencies]\ndhow-wire.workspace = true\ndhow-agent = { workspace = true }\n");
    let agent = manifest("[dev-dependencies]\ndhow-driver.workspace = true\ndhow-server.workspace = true\n");
    let tree = Tree::of(&[
        ("crates/dhow-agent/Cargo.toml", &agent),
        ("crates/dhow-core/Cargo.toml", &core),
        ("crates/dhow-server/Cargo.toml", &server),
        ("crates/dhow-new/Cargo.toml", ""),
        ("crates/dhow-wire/Cargo.toml", "[dependencies]\nserde = \"1\"\n"),
    ]);
    let places = [
        "crates/dhow-agent/Cargo.toml:5",
        "crates/dhow-core/Cargo.toml:5",
        "crates/dhow-new/Cargo.toml:1",
        "crates/dhow-server/Cargo.toml:5",
        "crates/dhow-wire/Cargo.toml:1",
        "crates/dhow-wire/Cargo.toml:2",
    ];
    assert_found(check(&tree), &places);
}
