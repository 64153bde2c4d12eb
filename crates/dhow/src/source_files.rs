//! The file of a deployment: found, read, and where it is a compose file turned into one.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dhow_cli::source_files::FileArgs;
use dhow_compose::{Around, Asked, Nodes, PathKind, SecretValue};
use dhow_core::spec::DeploymentSpec;
use dhow_wire::document::INPUT_MAX_BYTES;
use dhow_wire::{FileProblem, Findings};

use crate::client::{Client, ClientError, DaemonAddress, Request};
use crate::input::{self, Beside, Input};
use crate::output;

const ENDINGS: [&str; 3] = [".dhow.yaml", ".dhow.yml", ".dhow.json"];

/// Files that are looked for, each with what is put over it.
const USUAL: [(&str, &[&str]); 6] = [
    ("dhow.yaml", &[]),
    ("dhow.yml", &[]),
    ("compose.yaml", &["compose.override.yaml", "compose.override.yml"]),
    ("compose.yml", &["compose.override.yml", "compose.override.yaml"]),
    (
        "docker-compose.yaml",
        &["docker-compose.override.yaml", "docker-compose.override.yml"],
    ),
    (
        "docker-compose.yml",
        &["docker-compose.override.yml", "docker-compose.override.yaml"],
    ),
];

/// A deployment as a file says it.
pub struct FromFile {
    /// The file's name for findings.
    pub name: String,
    pub spec: DeploymentSpec,
    /// What has to be made and set first.
    missing_folders: Vec<PathBuf>,
    secrets: Vec<SecretValue>,
}

/// Why there is no deployment.
pub enum Unread {
    /// No file was named, and none can be chosen.
    NoFile(String),
    Wrong(Vec<Findings>),
}

impl Unread {
    /// Tells whoever looks at the screen.
    pub fn show(&self) {
        match self {
            Self::NoFile(why) => output::failure(why),
            Self::Wrong(all) => all.iter().for_each(output::findings),
        }
    }
}

/// What the arguments name, before anything is made of it.
struct Opened {
    files: Vec<PathBuf>,
    input: Input,
    is_compose: bool,
}

/// Reads what the arguments name, and says what of a compose file differs here.
pub fn read(args: &FileArgs, nodes: Nodes) -> Result<FromFile, Unread> {
    open(args)?.read(args, nodes)
}

/// The same for the cluster of a client, which is asked how many nodes it has where a compose file depends on it.
pub async fn read_for(args: &FileArgs, client: &Client) -> Result<Result<FromFile, Unread>, ClientError> {
    let opened = match open(args) {
        Ok(opened) => opened,
        Err(unread) => return Ok(Err(unread)),
    };
    let nodes = match opened.is_compose {
        true => nodes(client).await?,
        false => Nodes::Here,
    };
    Ok(opened.read(args, nodes))
}

fn open(args: &FileArgs) -> Result<Opened, Unread> {
    let files = chosen(args).map_err(Unread::NoFile)?;
    let first = files.first().cloned().unwrap_or_default();
    let input = input::read(&first).map_err(|findings| Unread::Wrong(vec![findings]))?;
    let is_compose = files.len() > 1 || dhow_compose::is_compose(&input.text, &input.name);
    Ok(Opened {
        files,
        input,
        is_compose,
    })
}

impl Opened {
    fn read(self, args: &FileArgs, nodes: Nodes) -> Result<FromFile, Unread> {
        let name = self.input.name.clone();
        if self.is_compose {
            let converted = compose(args, self.files, &self.input, nodes).map_err(Unread::Wrong)?;
            for note in &converted.notes {
                output::note(&note.to_string());
            }
            return Ok(FromFile {
                name,
                spec: converted.deployment,
                missing_folders: converted.missing_folders,
                secrets: converted.secrets,
            });
        }
        if let Some(flag) = compose_flag(args) {
            return Err(Unread::NoFile(format!(
                "{name} is a deployment file: {flag} is for compose files"
            )));
        }
        let first = self.files.first().cloned().unwrap_or_default();
        let spec = parse(&first, &self.input).map_err(|findings| Unread::Wrong(vec![findings]))?;
        Ok(FromFile {
            name,
            spec,
            missing_folders: Vec::new(),
            secrets: Vec::new(),
        })
    }
}

fn compose_flag(args: &FileArgs) -> Option<&'static str> {
    let given = [
        (args.project.is_some(), "--project-name"),
        (!args.profiles.is_empty(), "--profile"),
        (!args.env_files.is_empty(), "--env-file"),
    ];
    given
        .into_iter()
        .find(|(is_given, _)| *is_given)
        .map(|(_, flag)| flag)
}

/// Reads the text of a deployment file, with the environment of this process and the files beside it.
fn parse(file: &Path, input: &Input) -> Result<DeploymentSpec, Findings> {
    let beside = Beside::of(file);
    let client = dhow_wire::Client {
        env: &|name| std::env::var(name).ok(),
        file: &|path| beside.read(path),
    };
    dhow_wire::parse_deployment_beside(&input.text, &input.name, &client)
}

fn compose(
    args: &FileArgs,
    files: Vec<PathBuf>,
    first: &Input,
    nodes: Nodes,
) -> Result<dhow_compose::Converted, Vec<Findings>> {
    let first_file = files.first().cloned().unwrap_or_default();
    let parent = first_file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::path::absolute(parent.unwrap_or(Path::new(".")));
    let folder = folder.unwrap_or_else(|_| PathBuf::from("/"));
    let folder = folder.canonicalize().unwrap_or(folder);
    let stdin = first.text.clone();
    let around = Around {
        env: &|name| std::env::var(name).ok(),
        file: &|path| match path == Path::new("-") {
            // It was read to know what it is.
            true => Ok(stdin.clone().into_bytes()),
            false => bytes_of(path),
        },
        kind: &kind_of,
        nodes,
    };
    let asked = Asked {
        files,
        folder,
        project: args.project.clone(),
        profiles: args.profiles.clone(),
        env_files: args.env_files.clone(),
    };
    dhow_compose::convert(&asked, &around)
}

fn kind_of(path: &Path) -> PathKind {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => PathKind::File,
        Ok(found) if found.is_dir() => PathKind::Folder,
        Ok(_) => PathKind::Other,
        Err(_) => PathKind::Nothing,
    }
}

/// The bytes of a regular file.
fn bytes_of(path: &Path) -> Result<Vec<u8>, FileProblem> {
    let wrong = |what: &str, hint: &str| FileProblem {
        message: format!("{}: {what}", path.display()),
        hint: hint.to_owned(),
    };
    match kind_of(path) {
        PathKind::File => {}
        PathKind::Nothing => return Err(wrong("there is no such file", "make it, or check the path")),
        PathKind::Folder | PathKind::Other => return Err(wrong("this is no file", "name a file")),
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path);
    let read = opened.and_then(|file| file.take(INPUT_MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(wrong(&error.to_string(), "check its owner and mode")),
        Ok(length) if length > INPUT_MAX_BYTES => Err(wrong(
            &format!("it has more than {} MiB", INPUT_MAX_BYTES >> 20),
            "is it the right one?",
        )),
        Ok(_) => Ok(bytes),
    }
}

/// The files that were named, or those of the folder.
fn chosen(args: &FileArgs) -> Result<Vec<PathBuf>, String> {
    if let Some(file) = &args.file {
        return Ok(vec![file.clone()]);
    }
    if !args.files.is_empty() {
        return Ok(args.files.clone());
    }
    if let Some(named) = std::env::var_os("COMPOSE_FILE").filter(|named| !named.is_empty()) {
        return Ok(std::env::split_paths(&named).collect());
    }
    found_in(Path::new("."))
}

fn found_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("this folder cannot be read: {error}"))?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names
        .filter(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
        .collect();
    found.sort();
    match found.as_slice() {
        [only] => return Ok(vec![only.into()]),
        [] => {}
        several => {
            return Err(format!(
                "which one? {}: name it, as in `dhow up {}`",
                several.join(", "),
                several[0]
            ));
        }
    }
    let is_there = |name: &&str| folder.join(name).is_file();
    let Some((file, over)) = USUAL.iter().find(|(file, _)| is_there(file)) else {
        return Err(
            "there is no `*.dhow.yaml` and no `compose.yaml` in this folder: name the file, as in `dhow up FILE`".into(),
        );
    };
    let over = over.iter().find(|name| is_there(name));
    Ok([Some(file), over]
        .into_iter()
        .flatten()
        .map(PathBuf::from)
        .collect())
}

/// Where replicas will run, as the daemon knows it; where none answers, it will be one of this machine.
async fn nodes(client: &Client) -> Result<Nodes, ClientError> {
    match client.fetch(Request::get(&["nodes"])).await {
        Ok(nodes) => {
            let is_one = nodes.as_array().is_some_and(|nodes| nodes.len() <= 1);
            let is_here = matches!(client.host(), DaemonAddress::Unix(_));
            Ok(if is_one && is_here {
                Nodes::Here
            } else {
                Nodes::Elsewhere
            })
        }
        Err(error) if error.is_away() && !client.is_named() => Ok(Nodes::Here),
        // A token for one deployment does not know of nodes, and is not shown on them either.
        Err(error) if error.is_forbidden() => Ok(Nodes::Elsewhere),
        Err(error) => Err(error),
    }
}

impl FromFile {
    /// Makes what is bound and not there, and sets secrets that the cluster does not have. One that it has is left alone: its
    /// value may be newer than the file.
    pub async fn prepare(&self, client: &Client) -> anyhow::Result<()> {
        for folder in &self.missing_folders {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("{} cannot be made", folder.display()))?;
        }
        if self.secrets.is_empty() {
            return Ok(());
        }
        let known = client.fetch(Request::get(&["secrets"])).await?;
        let has = |name: &str| {
            let mut known = known.as_array().into_iter().flatten();
            known.any(|secret| secret.get("name").and_then(serde_json::Value::as_str) == Some(name))
        };
        for SecretValue { name, value } in &self.secrets {
            if has(name) {
                output::note(&format!(
                    "secret {name} is kept; `dhow secret set {name}` changes it"
                ));
                continue;
            }
            client
                .fetch(Request::put(&["secrets", name]).bytes(value.clone()))
                .await?;
            output::note(&format!("secret {name} is set"));
        }
        Ok(())
    }

    /// The names of the secrets that [`Self::prepare`] would set.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(|secret| secret.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::found_in;

    #[test]
    fn the_file_of_a_folder_is_found_with_what_is_put_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), "x").unwrap();
        let found = || {
            let found = found_in(dir.path()).unwrap();
            found
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert!(found_in(dir.path()).unwrap_err().contains("compose.yaml"));
        write("docker-compose.yml");
        write("docker-compose.override.yml");
        assert_eq!(found(), ["docker-compose.yml", "docker-compose.override.yml"]);
        write("compose.yaml");
        assert_eq!(found(), ["compose.yaml"]);
        write("dhow.yaml");
        assert_eq!(found(), ["dhow.yaml"]);
        write("shop.dhow.yaml");
        assert_eq!(found(), ["shop.dhow.yaml"]);
        write("blog.dhow.yaml");
        assert!(found_in(dir.path()).unwrap_err().starts_with("which one?"));
    }
}
