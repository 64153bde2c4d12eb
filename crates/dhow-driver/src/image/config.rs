//! The image configuration: what the image says about how to run it. Read by the container driver when it
//! makes a replica's runtime configuration; unknown fields are ignored, as images carry many.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::manifest::{Platform, null_is_default};

/// What the image says about its process, with Docker's names in snake case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `NAME=value`, in the image's order.
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// Empty means `/`.
    pub working_dir: String,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    pub user: String,
    pub exposed_ports: Vec<ExposedPort>,
    /// Paths that the image wants on a volume.
    pub volumes: Vec<String>,
    /// Such as `SIGQUIT` or `3`.
    pub stop_signal: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub platform: Platform,
}

/// A port that the image says it listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExposedPort {
    pub port: u16,
    pub protocol: PortProtocol,
}

/// The transport of an exposed port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortProtocol {
    Tcp,
    Udp,
    Sctp,
}

/// The configuration blob as registries hold it.
#[derive(Deserialize)]
struct ConfigFile {
    #[serde(flatten)]
    platform: Platform,
    #[serde(default, deserialize_with = "null_is_default")]
    config: ProcessSection,
    rootfs: RootfsSection,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ProcessSection {
    #[serde(deserialize_with = "null_is_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    cmd: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    working_dir: String,
    #[serde(deserialize_with = "null_is_default")]
    user: String,
    #[serde(deserialize_with = "null_is_default")]
    exposed_ports: BTreeMap<String, serde::de::IgnoredAny>,
    #[serde(deserialize_with = "null_is_default")]
    volumes: BTreeMap<String, serde::de::IgnoredAny>,
    stop_signal: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RootfsSection {
    #[serde(default, deserialize_with = "null_is_default")]
    diff_ids: Vec<Digest>,
}

/// Reads a configuration blob: the process section and the digests of the unpacked layers, bottom first.
pub(crate) fn parse(bytes: &[u8]) -> Result<(ImageConfig, Vec<Digest>), serde_json::Error> {
    let file: ConfigFile = serde_json::from_slice(bytes)?;
    let section = file.config;
    let config = ImageConfig {
        env: section.env,
        entrypoint: section.entrypoint,
        cmd: section.cmd,
        working_dir: section.working_dir,
        user: section.user,
        // A port that cannot be read is only a hint lost: it opens nothing by itself.
        exposed_ports: section
            .exposed_ports
            .keys()
            .filter_map(|text| exposed_port(text))
            .collect(),
        volumes: section.volumes.into_keys().collect(),
        stop_signal: section.stop_signal.filter(|signal| !signal.is_empty()),
        labels: section.labels,
        platform: file.platform,
    };
    Ok((config, file.rootfs.diff_ids))
}

/// Reads `80`, `80/tcp` or `53/udp`.
fn exposed_port(text: &str) -> Option<ExposedPort> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => PortProtocol::Tcp,
        "udp" => PortProtocol::Udp,
        "sctp" => PortProtocol::Sctp,
        _ => return None,
    };
    Some(ExposedPort {
        port: port.parse().ok()?,
        protocol,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_read_and_null_means_nothing() {
        let digest = Digest::of(b"layer");
        let text = format!(
            r#"{{"architecture":"amd64","os":"linux","created":"x","config":{{
            "Env":["PATH=/bin"],"Entrypoint":["/e"],"Cmd":null,"WorkingDir":"/w","User":"1:2",
            "ExposedPorts":{{"80/tcp":{{}},"53/udp":{{}},"x":{{}}}},"Volumes":{{"/v":{{}}}},
            "StopSignal":"SIGQUIT","Labels":null,"OnBuild":[]}},
            "rootfs":{{"type":"layers","diff_ids":["{digest}"]}},"history":[]}}"#
        );
        let (config, diff_ids) = parse(text.as_bytes()).unwrap();
        assert_eq!(diff_ids, [digest]);
        assert_eq!(
            (config.env.len(), config.entrypoint.len(), config.cmd.len()),
            (1, 1, 0)
        );
        assert_eq!((config.working_dir.as_str(), config.user.as_str()), ("/w", "1:2"));
        assert_eq!(
            config.exposed_ports,
            [
                ExposedPort {
                    port: 53,
                    protocol: PortProtocol::Udp
                },
                ExposedPort {
                    port: 80,
                    protocol: PortProtocol::Tcp
                }
            ]
        );
        assert_eq!(config.volumes, ["/v"]);
        assert_eq!(config.stop_signal.as_deref(), Some("SIGQUIT"));
        assert_eq!(config.platform.to_string(), "linux/amd64");
    }

    #[test]
    fn a_bare_configuration_is_enough() {
        let (config, diff_ids) = parse(br#"{"rootfs":{"diff_ids":null},"config":null}"#).unwrap();
        assert_eq!((config, diff_ids), (ImageConfig::default(), vec![]));
        assert!(parse(br#"{"config":{}}"#).is_err());
    }
}
