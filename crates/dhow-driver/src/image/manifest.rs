//! Manifests and manifest lists, in Docker's and in OCI's spelling. Read by pulls and imports; it judges what
//! was read (supported kinds, limits, platform) and never fetches.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(crate) const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// The largest manifest or list: what registries promise to take.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 4 << 20;
/// The largest image configuration: those of images with thousands of history lines stay below 1 MiB.
pub(crate) const MAX_CONFIG_BYTES: u64 = 8 << 20;
/// The most layers of an image: overlayfs stacks 500, one of which is kept for the replica's own.
pub(crate) const MAX_LAYERS: usize = 499;

/// A pointer to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub annotations: BTreeMap<String, String>,
}

/// An operating system and an architecture, as images name them (`linux`, `amd64`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// What this machine runs.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    fn matches(&self, wanted: &Self) -> bool {
        self.os == wanted.os && self.architecture == wanted.architecture
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// One image for one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// One image for several platforms, or the entries of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

/// What a manifest digest leads to.
#[derive(Clone, Debug)]
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Index),
}

/// Why a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest is no valid JSON document of a known form ({detail})")]
    Malformed { detail: String },
    #[error("the manifest has the old schema version 1; push the image again with a current tool")]
    SchemaOne,
    #[error("the manifest lists {layers} layers; the limit is {max}")]
    TooManyLayers { layers: usize, max: usize },
    #[error("the image has a layer of the kind `{media_type}`, which is not supported")]
    LayerKind { media_type: String },
    #[error("`{media_type}` is no container image configuration; this is another kind of artifact")]
    NotAnImage { media_type: String },
    #[error("the configuration names {diff_ids} layers and the manifest {layers}")]
    LayerCount { diff_ids: usize, layers: usize },
}

/// The fields that tell the forms apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: Option<u32>,
    manifests: Option<serde::de::IgnoredAny>,
}

impl Document {
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let malformed = |error: serde_json::Error| ManifestError::Malformed {
            detail: error.to_string(),
        };
        let shape: Shape = serde_json::from_slice(bytes).map_err(malformed)?;
        if shape.schema_version == Some(1) {
            return Err(ManifestError::SchemaOne);
        }
        if shape.manifests.is_some() {
            return serde_json::from_slice(bytes).map(Self::Index).map_err(malformed);
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(malformed)?;
        manifest.check()?;
        Ok(Self::Manifest(manifest))
    }
}

impl Manifest {
    fn check(&self) -> Result<(), ManifestError> {
        if self.layers.len() > MAX_LAYERS {
            return Err(ManifestError::TooManyLayers {
                layers: self.layers.len(),
                max: MAX_LAYERS,
            });
        }
        let config_kind = self.config.media_type.as_str();
        if ![OCI_CONFIG, DOCKER_CONFIG, "", "application/octet-stream"].contains(&config_kind) {
            return Err(ManifestError::NotAnImage {
                media_type: config_kind.to_owned(),
            });
        }
        for layer in &self.layers {
            // How a layer is compressed is read from its bytes; the kind only has to be a tar that is not
            // encrypted.
            let kind = layer.media_type.as_str();
            let is_tar = kind.is_empty() || kind.contains(".tar") || kind.contains("rootfs.");
            if !is_tar || kind.contains("encrypted") {
                return Err(ManifestError::LayerKind {
                    media_type: kind.to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl Index {
    /// The entry for this platform, or the platforms on offer.
    pub fn choose(&self, wanted: &Platform) -> Result<&Descriptor, Vec<Platform>> {
        let offered = || self.manifests.iter().filter_map(|entry| entry.platform.as_ref());
        let fits = |entry: &&Descriptor| entry.platform.as_ref().is_some_and(|p| p.matches(wanted));
        if let Some(found) = self.manifests.iter().find(fits) {
            return Ok(found);
        }
        // A list with a single entry of no stated platform leaves no choice to make.
        match self.manifests.as_slice() {
            [only] if only.platform.is_none() => Ok(only),
            _ => Err(offered()
                .filter(|platform| platform.os != "unknown")
                .cloned()
                .collect()),
        }
    }
}

/// Some tools write `null` where they mean nothing.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn manifest(config_kind: &str, layer_kind: &str) -> Result<Document, ManifestError> {
        Document::parse(
            format!(
                r#"{{"schemaVersion":2,"config":{{"mediaType":"{config_kind}","digest":"{DIGEST}","size":1}},
                "layers":[{{"mediaType":"{layer_kind}","digest":"{DIGEST}","size":1,"annotations":null}}]}}"#
            )
            .as_bytes(),
        )
    }

    #[test]
    fn known_kinds_are_accepted_and_others_named() {
        for kind in [
            OCI_LAYER,
            "application/vnd.oci.image.layer.v1.tar+zstd",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
            "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        ] {
            assert!(
                matches!(manifest(OCI_CONFIG, kind), Ok(Document::Manifest(_))),
                "{kind}"
            );
        }
        let encrypted = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
        assert!(matches!(
            manifest(OCI_CONFIG, encrypted),
            Err(ManifestError::LayerKind { .. })
        ));
        let helm = "application/vnd.cncf.helm.config.v1+json";
        assert!(matches!(
            manifest(helm, OCI_LAYER),
            Err(ManifestError::NotAnImage { .. })
        ));
        assert_eq!(
            Document::parse(br#"{"schemaVersion":1}"#).unwrap_err(),
            ManifestError::SchemaOne
        );
        assert!(matches!(
            Document::parse(b"<html>"),
            Err(ManifestError::Malformed { .. })
        ));
    }

    #[test]
    fn the_host_platform_is_chosen() {
        let entry = |os: &str, architecture: &str, size: u64| Descriptor {
            media_type: OCI_MANIFEST.to_owned(),
            digest: Digest::of(b""),
            size,
            platform: Some(Platform {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
                variant: None,
            }),
            annotations: BTreeMap::new(),
        };
        let index = |manifests: Vec<Descriptor>| Index {
            schema_version: 2,
            media_type: OCI_INDEX.to_owned(),
            manifests,
        };
        let wanted = Platform {
            os: "linux".into(),
            architecture: "amd64".into(),
            variant: None,
        };
        let all = index(vec![
            entry("windows", "amd64", 1),
            entry("linux", "arm64", 2),
            entry("linux", "amd64", 3),
            entry("unknown", "unknown", 4),
        ]);
        assert_eq!(all.choose(&wanted).unwrap().size, 3);
        let none = index(vec![entry("linux", "arm64", 2), entry("unknown", "unknown", 4)]);
        assert_eq!(none.choose(&wanted).unwrap_err()[0].to_string(), "linux/arm64");
    }
}
