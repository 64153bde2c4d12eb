//! Files that replicas see: the configs of a deployment, and where a service mounts configs and secrets.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::DeploymentSpec;
use super::command::Runtime;
use super::service::ServiceSpec;

/// Where a container finds its secrets, and a config that names no other place.
pub const SECRETS_FOLDER: &str = "/run/secrets";
const CONFIGS_FOLDER: &str = "/";

/// Which bytes: the BLAKE3 hash of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text).ok()?;
        Some(Self(*hash.as_bytes()))
    }

    /// Enough of it to tell two contents of one name apart, for people.
    pub fn short(&self) -> String {
        self.to_string().chars().take(8).collect()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.collect_str(self),
            false => self.0.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return <[u8; 32]>::deserialize(from).map(Self);
        }
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("the hash of a content has 64 hexadecimal digits"))
    }
}

/// One config of a deployment: its content on the way into the cluster, and which content it is once the cluster has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigSpec {
    Content(Arc<str>),
    /// What is no text, in the standard alphabet with its padding.
    ContentBase64(Arc<str>),
    /// The deployment in State has the bytes.
    Kept {
        hash: ContentHash,
        size_bytes: u64,
    },
}

impl ConfigSpec {
    /// As text where it is one that JSON writes with at most two bytes for each.
    pub fn of_bytes(content: Vec<u8>) -> Self {
        let is_short = |text: &str| {
            !text
                .chars()
                .any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        };
        match std::str::from_utf8(&content) {
            Ok(text) if is_short(text) => Self::Content(text.into()),
            Ok(_) | Err(_) => Self::ContentBase64(STANDARD.encode(&content).into()),
        }
    }

    /// The bytes, where they are here. None for what only names them, and for base64 that is none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Content(text) => Some(text.as_bytes().to_vec()),
            Self::ContentBase64(text) => STANDARD.decode(text.as_bytes()).ok(),
            Self::Kept { .. } => None,
        }
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Content(text) => text.len() as u64,
            Self::ContentBase64(text) => {
                let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
                (text.len() / 4 * 3).saturating_sub(padding) as u64
            }
            Self::Kept { size_bytes, .. } => *size_bytes,
        }
    }

    /// Which content it is, where it can be read.
    pub fn hash(&self) -> Option<ContentHash> {
        match self {
            Self::Kept { hash, .. } => Some(*hash),
            Self::Content(_) | Self::ContentBase64(_) => self.bytes().map(|bytes| ContentHash::of(&bytes)),
        }
    }
}

/// A content may be a password that somebody put into the wrong place: no message shows it.
impl fmt::Debug for ConfigSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigSpec({} bytes)", self.size_bytes())
    }
}

/// What becomes of running replicas when the content of a file changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    /// They are replaced by new ones, as for any other change of what runs.
    #[default]
    Restart,
    /// The file is replaced under them, and they get a signal.
    Signal,
    /// The file is replaced under them, and they find out by themselves.
    None,
}

impl OnChange {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The bits of who may read, write and run a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FileMode {
    /// Where a service says nothing: everybody in its container may read, nobody may write.
    pub const READ_ONLY: Self = Self(0o444);
    /// The same for a host program: only its user may read.
    pub const OWN: Self = Self(0o400);

    /// Reads `0440`, `440` and `0o440`: always octal.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let fits = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = u32::from_str_radix(digits, 8).ok().filter(|_| fits)?;
        (bits <= 0o777).then_some(Self(bits))
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("the mode of a file is such as `0440`"))
    }
}

/// A config or a secret that a service sees as a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMount {
    /// The config of the deployment, or the secret of the cluster.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    #[serde(default, skip_serializing_if = "OnChange::is_default")]
    pub on_change: OnChange,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Which content a config has. Never in a file: `step` fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentHash>,
    /// Which value a secret has. Never in a file: `step` fills it in where there is such a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

impl FileMount {
    /// The mount without which content it shows, where that can change under a running replica.
    pub(super) fn template(&self) -> Self {
        match self.on_change {
            OnChange::Restart => self.clone(),
            OnChange::Signal | OnChange::None => Self {
                content: None,
                version: None,
                ..self.clone()
            },
        }
    }
}

/// What a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    Config,
    Secret,
}

impl FileKind {
    /// The word of the field and of messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Secret => "secret",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Config => CONFIGS_FOLDER,
            Self::Secret => SECRETS_FOLDER,
        }
    }
}

/// A file of a service, and where it stands: in a folder of the container, or of a host program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedFile<'a> {
    pub kind: FileKind,
    pub mount: &'a FileMount,
    /// None for a host program, which gets a folder of its own for each kind.
    pub folder: Option<String>,
    pub name: String,
}

impl PlacedFile<'_> {
    /// The whole path in a container.
    pub fn target(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        Some(match folder {
            "/" => format!("/{}", self.name),
            folder => format!("{folder}/{}", self.name),
        })
    }
}

impl DeploymentSpec {
    /// Whether it has configs, or services that see configs or secrets as files: these came with feature level 4.
    pub fn has_files(&self) -> bool {
        !self.configs.is_empty() || self.services.values().any(|service| service.has_files())
    }
}

impl ServiceSpec {
    /// Its files, configs first, in the order of the spec.
    pub fn files(&self) -> impl Iterator<Item = (FileKind, &FileMount)> {
        let configs = self.configs.iter().map(|mount| (FileKind::Config, mount));
        let secrets = self.secrets.iter().map(|mount| (FileKind::Secret, mount));
        configs.chain(secrets)
    }

    /// Whether it mounts configs or secrets.
    pub fn has_files(&self) -> bool {
        !self.configs.is_empty() || !self.secrets.is_empty()
    }

    /// Its files, and where each of them is seen.
    pub fn placed_files(&self) -> Vec<PlacedFile<'_>> {
        let runtime = self.runtime();
        self.files()
            .map(|(kind, mount)| {
                let target = mount.target.as_deref().unwrap_or(&mount.source);
                let whole = match target.starts_with('/') {
                    true => target.to_owned(),
                    false => format!("{}/{target}", kind.folder()),
                };
                let parts = whole.split('/').filter(|part| !matches!(*part, "" | "."));
                let mut parts: Vec<&str> = parts.collect();
                let name = parts.pop().unwrap_or_default().to_owned();
                let folder = match runtime {
                    Runtime::Container => Some(format!("/{}", parts.join("/"))),
                    Runtime::Process => None,
                };
                PlacedFile {
                    kind,
                    mount,
                    folder,
                    name,
                }
            })
            .collect()
    }

    /// Whether it needs a secret: in a variable, as a file, or for the certificate of an endpoint.
    pub fn names_secret(&self, name: &str) -> bool {
        let groups = self.replica_groups.iter().map(|group| &group.env);
        let steps = self.init_steps.iter().map(|step| &step.env);
        let mut values = std::iter::once(&self.env)
            .chain(groups)
            .chain(steps)
            .flat_map(|env| env.values());
        let is_named = |value: &String| value.strip_prefix("$S:") == Some(name);
        let is_mounted = self.secrets.iter().any(|mount| mount.source == name);
        let mut certificates = self.endpoints.iter().filter_map(|endpoint| endpoint.tls.as_ref());
        is_mounted || values.any(is_named) || certificates.any(|tls| tls.secret.as_str() == name)
    }

    /// Whether a folder of a container is mounted as a whole, so that its files can be replaced under a running replica.
    /// Otherwise each file is mounted by itself, and the folder keeps what the image has there.
    pub fn is_folder_mounted(&self, folder: &str) -> bool {
        let mut files = self.placed_files().into_iter();
        folder == SECRETS_FOLDER
            || files.any(|file| {
                file.folder.as_deref() == Some(folder) && file.mount.on_change != OnChange::Restart
            })
    }

    /// Which contents it shows that were replaced without a word to its replicas: equal for equal ones, 0 for none.
    pub fn silent_files(&self) -> u64 {
        let silent: Vec<_> = self
            .files()
            .filter(|(_, mount)| mount.on_change == OnChange::None)
            .map(|(kind, mount)| (kind.word(), &mount.source, mount.content, mount.version))
            .collect();
        if silent.is_empty() {
            return 0;
        }
        let hash = blake3::hash(format!("{silent:?}").as_bytes());
        let first: [u8; 8] = std::array::from_fn(|place| hash.as_bytes()[place]);
        u64::from_le_bytes(first).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;

    fn mount(source: &str, target: Option<&str>, on_change: OnChange) -> FileMount {
        FileMount {
            source: source.into(),
            target: target.map(str::to_owned),
            on_change,
            ..FileMount::default()
        }
    }

    fn container() -> ServiceSpec {
        ServiceSpec {
            image: Some(ImageSpec {
                name: "web".into(),
                pull_policy: Default::default(),
                digest: None,
            }),
            ..ServiceSpec::default()
        }
    }

    #[test]
    fn a_content_is_text_where_it_is_one_and_survives_where_it_is_none() {
        for content in [&b"plain"[..], b"", b"\xff\x00\x01", "grüß".as_bytes()] {
            let config = ConfigSpec::of_bytes(content.to_vec());
            assert_eq!(config.bytes().as_deref(), Some(content));
            assert_eq!(config.size_bytes(), content.len() as u64, "{config:?}");
            assert_eq!(config.hash(), Some(ContentHash::of(content)));
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<ConfigSpec>(&json).unwrap(), config);
        }
        let hash = ContentHash::of(b"x");
        assert_eq!(ContentHash::parse(&hash.to_string()), Some(hash));
        assert_eq!(ContentHash::parse("zz"), None);
        assert!(!format!("{:?}", ConfigSpec::of_bytes(b"hunter2".to_vec())).contains("hunter2"));
    }

    #[test]
    fn a_mode_is_octal_however_it_is_written() {
        for (text, mode) in [("0440", 0o440), ("440", 0o440), ("0o400", 0o400), ("0", 0)] {
            assert_eq!(FileMode::parse(text), Some(FileMode(mode)), "{text}");
        }
        for text in ["", "888", "01000", "-1", "0x1", "rw", "0o", "000000777"] {
            assert_eq!(FileMode::parse(text), None, "{text}");
        }
        assert_eq!(FileMode(0o40).to_string(), "0040");
    }

    #[test]
    fn files_have_their_places() {
        let mut spec = container();
        spec.configs = vec![
            mount("app.conf", None, OnChange::Restart),
            mount("site", Some("/etc/nginx/conf.d/site.conf"), OnChange::Signal),
        ];
        spec.secrets = vec![
            mount("key", None, OnChange::Restart),
            mount("pass", Some("db"), OnChange::None),
        ];
        let targets: Vec<_> = spec.placed_files().iter().map(|file| file.target()).collect();
        let expected = [
            "/app.conf",
            "/etc/nginx/conf.d/site.conf",
            "/run/secrets/key",
            "/run/secrets/db",
        ];
        assert_eq!(targets, expected.map(|target| Some(target.to_owned())));
        assert!(!spec.is_folder_mounted("/") && spec.is_folder_mounted("/etc/nginx/conf.d"));
        assert!(spec.is_folder_mounted(SECRETS_FOLDER));
        let process = ServiceSpec { image: None, ..spec };
        assert!(process.placed_files().iter().all(|file| file.folder.is_none()));
    }

    #[test]
    fn a_content_that_restarts_nobody_is_no_part_of_what_runs() {
        let with = |on_change, content: &[u8]| {
            let mut spec = container();
            spec.configs = vec![FileMount {
                content: Some(ContentHash::of(content)),
                ..mount("app", Some("/etc/app/app"), on_change)
            }];
            spec
        };
        for (on_change, rolls) in [
            (OnChange::Restart, true),
            (OnChange::Signal, false),
            (OnChange::None, false),
        ] {
            let (old, new) = (with(on_change, b"1"), with(on_change, b"2"));
            for level in [1, 2, 4] {
                assert_eq!(old.rolls_into_at(&new, level), rolls, "{on_change:?}");
            }
            assert_eq!(
                old.silent_files() != new.silent_files(),
                on_change == OnChange::None
            );
        }
        assert!(with(OnChange::None, b"1").rolls_into(&with(OnChange::Signal, b"1")));
    }
}
