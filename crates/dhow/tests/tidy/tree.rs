//! The files that the rules look at: this workspace read from disk, or a few lines written in a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A text file above this is data, not something that people write: 1 MiB is 20,000 lines of code.
const FILE_SIZE_MAX_BYTES: u64 = 1 << 20;

/// Text files by their path relative to the root, with `/` between the parts.
pub struct Tree {
    files: BTreeMap<String, String>,
}

/// What a Rust file is for, as its path says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUse {
    /// Compiled into the crate itself.
    Source,
    /// Compiled for tests, benches or examples only.
    Test,
}

pub struct RustFile<'a> {
    pub path: &'a str,
    pub text: &'a str,
    pub file_use: FileUse,
    /// The folder below `crates`.
    pub crate_name: &'a str,
}

impl RustFile<'_> {
    /// Whether the file lies below the crate's `src`, tests in there included.
    pub fn in_src(&self) -> bool {
        self.path.split('/').nth(2) == Some("src")
    }

    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

impl Tree {
    /// Reads the workspace that this test belongs to.
    pub fn workspace() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = BTreeMap::new();
        read_folder(&root, "", &mut files);
        assert!(
            files.contains_key("Cargo.toml"),
            "no Cargo.toml at {}",
            root.display()
        );
        Tree { files }
    }

    /// A tree for an example: path and text of each file.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree {
            files: files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect(),
        }
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a file, or a folder with a file in it, is there.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty() || self.files.contains_key(path) || self.files.keys().any(|p| p.starts_with(&folder))
    }

    pub fn rust_files(&self) -> impl Iterator<Item = RustFile<'_>> {
        self.files().filter_map(|(path, text)| {
            let crate_name = path.strip_prefix("crates/")?.split('/').next()?;
            let is_rust = path.ends_with(".rs");
            is_rust.then(|| RustFile {
                path,
                text,
                file_use: use_of(path),
                crate_name,
            })
        })
    }
}

fn use_of(path: &str) -> FileUse {
    let in_src = path.split('/').nth(2) == Some("src");
    let is_test = path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/");
    if in_src && !is_test {
        FileUse::Source
    } else {
        FileUse::Test
    }
}

fn read_folder(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    let listing = fs::read_dir(folder).unwrap_or_else(|e| panic!("cannot list {}: {e}", folder.display()));
    for entry in listing {
        let entry = entry.unwrap_or_else(|e| panic!("cannot list {}: {e}", folder.display()));
        let name = entry.file_name().to_string_lossy().into_owned();
        // A file may vanish between listing and reading while somebody edits: it is then not in the tree.
        let Ok(kind) = entry.file_type() else { continue };
        let path = format!("{prefix}{name}");
        // In a second work tree it is a file.
        if name == ".git" {
            continue;
        }
        if kind.is_dir() {
            let is_built = prefix.is_empty() && name.starts_with("target");
            if !is_built {
                read_folder(&entry.path(), &format!("{path}/"), files);
            }
        } else if kind.is_file()
            && let Some(text) = read_text(entry.path())
        {
            files.insert(path, text);
        }
    }
}

/// The text of a file; what is too large or not UTF-8 counts as present and empty.
fn read_text(path: PathBuf) -> Option<String> {
    let size_bytes = fs::metadata(&path).ok()?.len();
    if size_bytes > FILE_SIZE_MAX_BYTES {
        return Some(String::new());
    }
    let bytes = fs::read(&path).ok()?;
    Some(String::from_utf8(bytes).unwrap_or_default())
}

#[test]
fn the_workspace_is_read_with_its_parts() {
    let tree = Tree::workspace();
    assert!(tree.exists("crates/dhow-core/src/lib.rs"));
    assert!(tree.exists("crates/dhow-core"));
    assert!(tree.exists("./test".trim_start_matches("./")));
    assert!(!tree.exists("crates/dhow-cor"));
    assert!(!tree.exists("target"), "build output is not part of the tree");
}

#[test]
fn a_file_knows_its_place() {
    assert_eq!(use_of("crates/a/src/b.rs"), FileUse::Source);
    assert_eq!(use_of("crates/a/src/b/tests.rs"), FileUse::Test);
    assert_eq!(use_of("crates/a/src/b/tests/c.rs"), FileUse::Test);
    assert_eq!(use_of("crates/a/tests/c.rs"), FileUse::Test);
    assert_eq!(use_of("crates/a/benches/c.rs"), FileUse::Test);
}
