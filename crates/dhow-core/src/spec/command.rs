//! What a replica runs and how much it may use: image, command, runtime, resources.

use serde::{Deserialize, Serialize, Serializer};

use super::text_or_map::text_or_map;
use super::units::{ByteSize, Cpu};

/// How a replica runs on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    Container,
    Process,
}

/// When an image is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    #[default]
    IfNotPresent,
    Always,
    Never,
}

/// A container image: a registry reference, `oci:<layout dir>[:tag]` or `docker-archive:<file>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    pub name: String,
    pub pull_policy: PullPolicy,
    /// What the name meant when the revision was made, so that all replicas run the same bytes.
    pub digest: Option<String>,
}

impl ImageSpec {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            pull_policy: PullPolicy::default(),
            digest: None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ImageMap {
    name: String,
    #[serde(default)]
    pull_policy: PullPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl From<ImageMap> for ImageSpec {
    fn from(map: ImageMap) -> Self {
        Self {
            name: map.name,
            pull_policy: map.pull_policy,
            digest: map.digest,
        }
    }
}

text_or_map!(
    ImageSpec,
    ImageMap,
    "an image name or `{ name, pull_policy }`",
    |text| Some(ImageSpec::named(text))
);

impl Serialize for ImageSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.pull_policy == PullPolicy::default() && self.digest.is_none() {
            return to.serialize_str(&self.name);
        }
        let map = ImageMap {
            name: self.name.clone(),
            pull_policy: self.pull_policy,
            digest: self.digest.clone(),
        };
        map.serialize(to)
    }
}

/// What is started. A plain list replaces the image's arguments, as with Docker; a process has no image,
/// so there the list is the whole command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandSpec {
    pub entrypoint: Option<Vec<String>>,
    pub args: Option<Vec<String>>,
    pub workdir: Option<String>,
}

impl CommandSpec {
    /// The words that the spec itself names, in order.
    pub fn words(&self) -> impl Iterator<Item = &String> {
        self.entrypoint.iter().flatten().chain(self.args.iter().flatten())
    }
}

#[derive(Serialize, Deserialize)]
struct CommandMap {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workdir: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CommandForm {
    List(Vec<String>),
    Map(CommandMap),
}

impl<'de> Deserialize<'de> for CommandSpec {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match CommandForm::deserialize(from)? {
            CommandForm::List(args) => Self {
                args: Some(args),
                ..Self::default()
            },
            CommandForm::Map(map) => Self {
                entrypoint: map.entrypoint,
                args: map.args,
                workdir: map.workdir,
            },
        })
    }
}

impl Serialize for CommandSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (&self.entrypoint, &self.args, &self.workdir) {
            (None, Some(args), None) => args.serialize(to),
            (entrypoint, args, workdir) => {
                let map = CommandMap {
                    entrypoint: entrypoint.clone(),
                    args: args.clone(),
                    workdir: workdir.clone(),
                };
                map.serialize(to)
            }
        }
    }
}

/// A reservation for placement and a limit on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}
