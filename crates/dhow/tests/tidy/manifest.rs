//! Just enough of a Cargo manifest for the rules: the entries of its tables, with their lines.
//!
//! Manifests here are written one entry per line, a list may go over several. What this reader does not
//! understand it reports, so that nothing slips past it.

use crate::finding::Finding;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Normal,
    /// Used by tests, benches and examples alone.
    Dev,
    Build,
}

/// One line `name = …` of a dependency table, or one table `[dependencies.name]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    pub kind: Kind,
    pub line: usize,
    /// Whether the version comes from the root manifest.
    pub from_workspace: bool,
}

#[derive(Debug, Default)]
pub struct Manifest {
    pub dependencies: Vec<Dependency>,
    /// The names in `[workspace.dependencies]`.
    pub workspace_dependencies: Vec<(String, usize)>,
    pub lints_from_workspace: bool,
    pub findings: Vec<Finding>,
}

enum Table {
    Dependencies(Kind),
    /// `[dependencies.name]`: its entries describe the dependency pushed last.
    OneDependency,
    WorkspaceDependencies,
    Lints,
    Other,
}

impl Manifest {
    pub fn read(path: &str, text: &str) -> Manifest {
        let mut manifest = Manifest::default();
        let mut table = Table::Other;
        let mut open_brackets: usize = 0;
        for (index, raw) in text.lines().enumerate() {
            let line = index + 1;
            let content = without_comment(raw).trim();
            if content.is_empty() {
                continue;
            }
            let inside_list = open_brackets > 0;
            let is_header = !inside_list && content.starts_with('[');
            if is_header {
                table = manifest.enter(content.trim_matches(['[', ']']), line);
                continue;
            }
            open_brackets = (open_brackets + count(content, '[')).saturating_sub(count(content, ']'));
            if inside_list {
                continue;
            }
            match content.split_once('=') {
                Some((key, value)) => manifest.entry(&table, key.trim(), value.trim(), line),
                None => manifest.findings.push(Finding::new(
                    path,
                    line,
                    format!("`{content}` is not understood"),
                    "write one entry per line",
                )),
            }
        }
        manifest
    }

    fn enter(&mut self, header: &str, line: usize) -> Table {
        let parts: Vec<&str> = header.split('.').map(str::trim).collect();
        match parts.as_slice() {
            ["workspace", "dependencies"] => Table::WorkspaceDependencies,
            ["workspace", "dependencies", name] => {
                self.workspace_dependencies.push((unquoted(name), line));
                Table::Other
            }
            ["lints"] => Table::Lints,
            [.., last] if kind_of(last).is_some() => kind_of(last).map_or(Table::Other, Table::Dependencies),
            [.., table, name] => match kind_of(table) {
                Some(kind) => {
                    let name = unquoted(name);
                    self.dependencies.push(Dependency {
                        name,
                        kind,
                        line,
                        from_workspace: false,
                    });
                    Table::OneDependency
                }
                None => Table::Other,
            },
            _ => Table::Other,
        }
    }

    fn entry(&mut self, table: &Table, key: &str, value: &str, line: usize) {
        let (name, suffix) = key.split_once('.').unwrap_or((key, ""));
        let from_workspace =
            (suffix == "workspace" && value == "true") || value.replace(' ', "").contains("workspace=true");
        match table {
            Table::Dependencies(kind) => {
                let name = renamed(value).unwrap_or_else(|| unquoted(name));
                self.dependencies.push(Dependency {
                    name,
                    kind: *kind,
                    line,
                    from_workspace,
                });
            }
            Table::OneDependency => {
                if let Some(dependency) = self.dependencies.last_mut() {
                    dependency.from_workspace |= key == "workspace" && value == "true";
                    if key == "package" {
                        dependency.name = unquoted(value);
                    }
                }
            }
            Table::WorkspaceDependencies => self.workspace_dependencies.push((unquoted(name), line)),
            Table::Lints => self.lints_from_workspace |= key == "workspace" && value == "true",
            Table::Other => {}
        }
    }
}

fn kind_of(table: &str) -> Option<Kind> {
    match table {
        "dependencies" => Some(Kind::Normal),
        "dev-dependencies" => Some(Kind::Dev),
        "build-dependencies" => Some(Kind::Build),
        _ => None,
    }
}

/// The real name behind `alias = { package = "name" }`.
fn renamed(value: &str) -> Option<String> {
    let (_, after) = value.split_once("package")?;
    let quoted = after
        .trim_start()
        .strip_prefix('=')?
        .trim_start()
        .strip_prefix('"')?;
    quoted.split('"').next().map(str::to_owned)
}

fn unquoted(name: &str) -> String {
    name.trim_matches(['"', '\'']).to_owned()
}

fn count(text: &str, wanted: char) -> usize {
    text.chars().filter(|c| *c == wanted).count()
}

fn without_comment(line: &str) -> &str {
    let mut in_string = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => in_string = !in_string,
            '#' if !in_string => return &line[..at],
            _ => {}
        }
    }
    line
}

#[test]
fn a_manifest_is_read_with_all_its_tables() {
    let text = "[package]\nname = \"a\" # [dependencies]\n[lints]\nworkspace = true\n[dependencies]\n\
                serde.workspace = true\nb = { workspace = true, features = [\n  \"x = 1\",\n] }\nc = \"1\"\n\
                alias = { package = \"dhow-core\", version = \"1\" }\n[target.'cfg(unix)'.dev-dependencies]\n\
                d.workspace = true\n[build-dependencies.e]\nworkspace = true\nnonsense\n\
                [workspace.dependencies]\nz = \"1\"\n";
    let manifest = Manifest::read("Cargo.toml", text);
    let read: Vec<(&str, Kind, usize, bool)> = manifest
        .dependencies
        .iter()
        .map(|d| (d.name.as_str(), d.kind, d.line, d.from_workspace))
        .collect();
    let expected = [
        ("serde", Kind::Normal, 6, true),
        ("b", Kind::Normal, 7, true),
        ("c", Kind::Normal, 10, false),
        ("dhow-core", Kind::Normal, 11, false),
        ("d", Kind::Dev, 13, true),
        ("e", Kind::Build, 14, true),
    ];
    assert_eq!(read, expected);
    assert!(manifest.lints_from_workspace);
    assert_eq!(manifest.workspace_dependencies, [("z".to_owned(), 18)]);
    assert_eq!(manifest.findings.iter().map(|f| f.line).collect::<Vec<_>>(), [16]);
}
