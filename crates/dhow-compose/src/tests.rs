//! Sentences of docs/from-compose.md, each with files of its own making.

mod hostile;
mod loading;
mod refusals;
mod services;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dhow_core::spec::{DeploymentSpec, ServiceSpec};
use dhow_wire::{FileProblem, parse_deployment};

use crate::{Around, Asked, Converted, Nodes, PathKind, convert, write_file};

const FOLDER: &str = "/srv/shop";

/// A folder with files in it, and an environment.
struct World {
    files: BTreeMap<PathBuf, String>,
    env: BTreeMap<String, String>,
    nodes: Nodes,
    asked: Asked,
}

fn world(text: &str) -> World {
    let mut world = World {
        files: BTreeMap::new(),
        env: BTreeMap::new(),
        nodes: Nodes::Here,
        asked: Asked {
            files: vec![Path::new(FOLDER).join("compose.yaml")],
            folder: FOLDER.into(),
            ..Asked::default()
        },
    };
    world.add("compose.yaml", text);
    world
}

impl World {
    fn add(&mut self, name: &str, text: &str) {
        self.files.insert(Path::new(FOLDER).join(name), text.to_owned());
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    fn convert(&self) -> Result<Converted, Vec<String>> {
        let around = Around {
            env: &|name| self.env.get(name).cloned(),
            file: &|path| {
                let found = self.files.get(path).map(|text| text.clone().into_bytes());
                found.ok_or_else(|| FileProblem {
                    message: format!("there is no {}", path.display()),
                    hint: "make it".into(),
                })
            },
            kind: &|path| match self.files.contains_key(path) {
                true => PathKind::File,
                false if path == Path::new(FOLDER).join("data") => PathKind::Folder,
                false => PathKind::Nothing,
            },
            nodes: self.nodes,
        };
        convert(&self.asked, &around).map_err(|all| {
            let list = all.iter().flat_map(|findings| findings.list());
            let said = list.map(|found| {
                let place = (found.line.unwrap_or(0), found.column.unwrap_or(0));
                let hint = found.hint.as_deref().unwrap_or_default();
                format!("{}:{} {} | {hint}", place.0, place.1, found.message)
            });
            said.collect()
        })
    }

    /// The deployment, which its written file says again.
    fn deployment(&self) -> DeploymentSpec {
        let converted = self.convert().unwrap();
        let written = write_file(&converted.deployment).unwrap();
        let read = parse_deployment(&written, "written.yaml", &|_| None)
            .unwrap_or_else(|why| panic!("{why}\n{written}"));
        assert_eq!(read, converted.deployment, "{written}");
        converted.deployment
    }

    fn refusals(&self) -> Vec<String> {
        self.convert().unwrap_err()
    }

    fn notes(&self) -> Vec<String> {
        self.convert()
            .unwrap()
            .notes
            .into_iter()
            .map(|note| note.message)
            .collect()
    }
}

/// The one service of a file that has nothing else.
fn service(fields: &str) -> ServiceSpec {
    let deployment = world(&format!("services:\n  web:\n    image: a:1\n{fields}")).deployment();
    deployment.services.values().next().unwrap().as_ref().clone()
}
