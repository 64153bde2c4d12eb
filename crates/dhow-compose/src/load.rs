//! From the files to one tree: read, variables put in, `extends` and `include` followed, put over each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dhow_wire::document::{Source, parse_mergeable, text_of};
use dhow_wire::{Findings, document::Kind};

use crate::dotenv::{self, Form};
use crate::item::{Field, Item, Tree};
use crate::report::{Location, Report};
use crate::{Around, Asked, extends, interpolate, merge, names};

/// Files of one project: more are a circle that nobody meant.
const FILES_MAX: usize = 200;

/// Whether a text is a compose file: it has `services`, and neither `deployment` nor the version of a deployment file.
pub fn is_compose(text: &str, file_name: &str) -> bool {
    let source = Source::new(file_name, text);
    let mut findings = Findings::of(source.clone());
    let root = parse_mergeable(&source, &mut findings).and_then(|document| document.root);
    let Some(root) = root else {
        return false;
    };
    let item = Item::of(0, &root);
    let is_ours = item.get("deployment").is_some() || item.get("version").and_then(Item::text) == Some("v1");
    let has = |key: &str| {
        item.fields()
            .is_some_and(|fields| fields.iter().any(|field| &*field.key == key))
    };
    !is_ours && (has("services") || has("include"))
}

/// The whole project, before anything is made of it.
pub(crate) struct Loaded {
    pub root: Item,
    pub name: String,
    pub variables: Variables,
}

/// The variables of a project: the shell's over those of `.env`.
#[derive(Clone, Default)]
pub(crate) struct Variables(pub BTreeMap<String, String>);

impl Variables {
    pub fn get(&self, around: &Around<'_>, name: &str) -> Option<String> {
        (around.env)(name).or_else(|| self.0.get(name).cloned())
    }
}

/// What files are read with.
pub(crate) struct Loader<'l, 'a> {
    pub around: &'l Around<'a>,
    pub report: &'l mut Report,
    unset: BTreeSet<String>,
    read: usize,
}

pub(crate) fn load(asked: &Asked, around: &Around<'_>, report: &mut Report) -> Option<Loaded> {
    let mut loader = Loader {
        around,
        report,
        unset: BTreeSet::new(),
        read: 0,
    };
    let mut variables = loader.dotenv(&asked.folder, &asked.env_files)?;
    if let Some(project) = asked
        .project
        .clone()
        .or_else(|| variables.get(around, "COMPOSE_PROJECT_NAME"))
    {
        variables
            .0
            .entry("COMPOSE_PROJECT_NAME".into())
            .or_insert(project);
    }
    let mut root = loader.merged(&asked.files, &asked.folder, &variables, &mut Vec::new())?;
    merge::without_resets(&mut root);
    let named = asked
        .project
        .clone()
        .or_else(|| {
            variables
                .get(around, "COMPOSE_PROJECT_NAME")
                .filter(|name| !name.is_empty())
        })
        .or_else(|| root.get("name").and_then(Item::text).map(str::to_owned));
    let folder = || {
        asked
            .folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let name = names::project(&named.or_else(folder).unwrap_or_default());
    Some(Loaded {
        root,
        name,
        variables,
    })
}

impl Loader<'_, '_> {
    /// The variables of `.env`, or of the files that stand in for it.
    fn dotenv(&mut self, folder: &Path, named: &[PathBuf]) -> Option<Variables> {
        let usual = folder.join(".env");
        let is_there = (self.around.kind)(&usual) == crate::PathKind::File;
        let files = match named {
            [] if is_there => vec![usual],
            [] => Vec::new(),
            files => files.to_vec(),
        };
        let mut values = BTreeMap::new();
        for path in files {
            let text = self.text(&path, &path.display().to_string())?;
            let known = |name: &str| (self.around.env)(name).or_else(|| values.get(name).cloned());
            match dotenv::parse(&text, Form::Usual, &known) {
                Ok(found) => {
                    for (name, line) in found.unset {
                        let place = self.line_of(&path, &text, line);
                        self.report.note(place, interpolate::not_set(&name));
                    }
                    values.extend(found.values);
                }
                Err(problem) => {
                    let place = self.line_of(&path, &text, problem.line);
                    self.report.refuse(place, "", problem.message, "");
                    return None;
                }
            }
        }
        Some(Variables(values))
    }

    /// A line of a file of variables, which is of interest only where there is something to say of it.
    fn line_of(&mut self, path: &Path, text: &str, line: u32) -> Location {
        let source = Source::new(&path.display().to_string(), text);
        let before = text.split('\n').take(line.saturating_sub(1) as usize);
        let start = before.map(|line| line.len() + 1).sum();
        Location {
            span: source.span_at(start),
            file: self
                .report
                .add_file(source.clone(), PathBuf::new(), Findings::of(source)),
        }
    }

    fn text(&mut self, path: &Path, name: &str) -> Option<String> {
        self.read += 1;
        if self.read > FILES_MAX {
            let message = format!("this project has more than {FILES_MAX} files");
            self.report.outside(Findings::outside(
                name,
                message,
                "is there a circle of `include`?",
            ));
            return None;
        }
        let bytes = match (self.around.file)(path) {
            Ok(bytes) => bytes,
            Err(problem) => {
                self.report
                    .outside(Findings::outside(name, problem.message, problem.hint));
                return None;
            }
        };
        match text_of(&bytes, name) {
            Ok(text) => Some(text.to_owned()),
            Err(findings) => {
                self.report.outside(findings);
                None
            }
        }
    }

    /// One file, as a tree with its variables put in. Its relative paths start at `base`.
    pub fn file(&mut self, path: &Path, base: &Path, variables: &Variables) -> Option<Item> {
        let name = path.display().to_string();
        let text = self.text(path, &name)?;
        let source = Source::new(&name, &text);
        let mut findings = Findings::of(source.clone());
        let root = parse_mergeable(&source, &mut findings).and_then(|document| document.root);
        let is_sound = findings.is_empty();
        let file = self.report.add_file(source, base.to_owned(), findings);
        let place = Location {
            file,
            span: self.report.source(file).span_at(0),
        };
        let Some(root) = root else {
            if is_sound {
                self.report
                    .refuse(place, "", "the file is empty", "a compose file has `services:`");
            }
            return None;
        };
        let mut item = Item::of(file, &root);
        if item.kind() != Kind::Map {
            let message = format!("a compose file is a map, found {}", item.shown());
            self.report
                .refuse(place, "", message, "it has `services:` and the services below it");
            return None;
        }
        let around = self.around;
        let env = |name: &str| variables.get(around, name);
        interpolate::fill(&mut item, &env, &mut self.unset, self.report);
        Some(item)
    }

    /// Several files, each over those before.
    fn merged(
        &mut self,
        files: &[PathBuf],
        base: &Path,
        variables: &Variables,
        open: &mut Vec<PathBuf>,
    ) -> Option<Item> {
        let mut merged: Option<Item> = None;
        for path in files {
            let mut item = self.file(path, base, variables)?;
            extends::resolve(self, &mut item, path, variables);
            let included = self.included(&mut item, base, variables, open);
            let item = included
                .into_iter()
                .fold(item, |item, included| self.add(item, included));
            merged = Some(match merged {
                None => item,
                Some(before) => merge::files(before, item),
            });
        }
        merged
    }

    /// What `include` brings.
    fn included(
        &mut self,
        item: &mut Item,
        base: &Path,
        variables: &Variables,
        open: &mut Vec<PathBuf>,
    ) -> Vec<Item> {
        let Tree::Map(fields) = &mut item.value else {
            return Vec::new();
        };
        let Some(position) = fields.iter().position(|field| &*field.key == "include") else {
            return Vec::new();
        };
        let field = fields.remove(position);
        let Tree::List(entries) = &field.value.value else {
            self.report.refuse(
                field.key_place,
                "include",
                "`include` takes a list",
                "write `- other.yaml`",
            );
            return Vec::new();
        };
        entries
            .iter()
            .filter_map(|entry| self.include(entry, base, variables, open))
            .collect()
    }

    fn include(
        &mut self,
        entry: &Item,
        base: &Path,
        variables: &Variables,
        open: &mut Vec<PathBuf>,
    ) -> Option<Item> {
        let listed = |item: Option<&Item>| -> Vec<String> {
            let Some(item) = item else { return Vec::new() };
            let one = item.text().map(str::to_owned);
            let several = item.items().unwrap_or_default().iter();
            one.into_iter()
                .chain(several.filter_map(|item| item.text().map(str::to_owned)))
                .collect()
        };
        let paths = match entry.text() {
            Some(text) => vec![text.to_owned()],
            None => listed(entry.get("path")),
        };
        let place = entry.place;
        for field in entry.fields().unwrap_or_default() {
            if !["path", "project_directory", "env_file"].contains(&&*field.key) {
                let message = format!("`include` has no field `{}`", field.key);
                let hint = "its fields are `path`, `project_directory`, `env_file`";
                self.report.refuse(field.key_place, "include", message, hint);
            }
        }
        let Some(first) = paths.first() else {
            self.report
                .refuse(place, "include", "this names no file", "write `- other.yaml`");
            return None;
        };
        if first.contains("://") || first.starts_with("git@") {
            let hint = "fetch it, and name the file here";
            self.report
                .refuse(place, "include", format!("`{first}` is on another machine"), hint);
            return None;
        }
        let paths: Vec<PathBuf> = paths.iter().map(|path| base.join(path)).collect();
        let folder = match entry.get("project_directory").and_then(Item::text) {
            Some(folder) => base.join(folder),
            None => paths[0].parent().unwrap_or(base).to_owned(),
        };
        if open.contains(&paths[0]) {
            self.report
                .refuse(place, "include", "this includes itself", "remove it");
            return None;
        }
        let env_files: Vec<PathBuf> = listed(entry.get("env_file"))
            .iter()
            .map(|path| base.join(path))
            .collect();
        let mut own = self.dotenv(&folder, &env_files)?;
        own.0.extend(variables.0.clone());
        open.push(paths[0].clone());
        let merged = self.merged(&paths, &folder, &own, open);
        open.pop();
        merged
    }

    /// Adds what was included: nothing of it may be there already, unless it says the same.
    fn add(&mut self, item: Item, included: Item) -> Item {
        let (Tree::Map(mut fields), Tree::Map(others)) = (item.value.clone(), included.value) else {
            return item;
        };
        for other in others {
            if matches!(&*other.key, "name" | "version") {
                continue;
            }
            let Some(field) = fields.iter_mut().find(|field| field.key == other.key) else {
                fields.push(other);
                continue;
            };
            let (Tree::Map(own), Tree::Map(theirs)) = (&mut field.value.value, other.value.value) else {
                continue;
            };
            for theirs in theirs {
                let found: Option<&Field> = own.iter().find(|own| own.key == theirs.key);
                match found {
                    None => own.push(theirs),
                    Some(own) if own.value.is_same(&theirs.value) => {}
                    Some(own) => {
                        let message = format!(
                            "`{}` is there already, and an included file has another one",
                            theirs.key
                        );
                        let hint = "rename one of the two, or put the changes into an override file";
                        self.report.refuse(
                            own.key_place,
                            &format!("{}.{}", other.key, theirs.key),
                            message,
                            hint,
                        );
                    }
                }
            }
        }
        Item {
            value: Tree::Map(fields),
            ..item
        }
    }
}
