//! Images for tests: layers, configuration and manifest, written to a layout, an archive or a registry.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use dhow_driver::image::{Digest, Platform};
use serde_json::{Value, json};

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// How a layer is stored.
#[derive(Clone, Copy, Debug)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

#[derive(Clone)]
pub struct TestLayer {
    pub tar: Vec<u8>,
    pub blob: Vec<u8>,
    media_type: &'static str,
}

/// One image, complete.
#[derive(Clone)]
pub struct TestImage {
    pub layers: Vec<TestLayer>,
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
    pub media_type: &'static str,
}

/// A layer of plain files; a name that ends with `/` is a directory.
pub fn layer(files: &[(&str, &str)], compression: Compression) -> TestLayer {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(1_000_000_000);
        header.set_uid(0);
        header.set_gid(0);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o755);
            header.set_size(0);
        } else {
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
        }
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    packed(builder.into_inner().unwrap(), compression)
}

/// A layer with one file of this many bytes that do not compress.
pub fn large_layer(name: &str, size_bytes: usize) -> TestLayer {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = Vec::with_capacity(size_bytes + 8);
    while content.len() < size_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(size_bytes);
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size_bytes as u64);
    builder.append_data(&mut header, name, &*content).unwrap();
    packed(builder.into_inner().unwrap(), Compression::None)
}

pub fn packed(tar: Vec<u8>, compression: Compression) -> TestLayer {
    let (blob, media_type) = match compression {
        Compression::None => (tar.clone(), "application/vnd.oci.image.layer.v1.tar"),
        Compression::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&tar).unwrap();
            (
                gzip.finish().unwrap(),
                "application/vnd.oci.image.layer.v1.tar+gzip",
            )
        }
        Compression::Zstd => (
            zstd::encode_all(&*tar, 1).unwrap(),
            "application/vnd.oci.image.layer.v1.tar+zstd",
        ),
    };
    TestLayer {
        tar,
        blob,
        media_type,
    }
}

impl TestLayer {
    pub fn digest(&self) -> Digest {
        Digest::of(&self.blob)
    }

    pub fn diff_id(&self) -> Digest {
        Digest::of(&self.tar)
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(bytes).to_string(), "size": bytes.len() })
}

impl TestImage {
    pub fn new(layers: Vec<TestLayer>) -> Self {
        Self::with_config(layers, json!({ "Env": ["PATH=/bin"], "Cmd": ["/bin/sh"] }))
    }

    pub fn with_config(layers: Vec<TestLayer>, process: Value) -> Self {
        let platform = Platform::host();
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id().to_string()).collect();
        let config = json!({
            "architecture": platform.architecture,
            "os": platform.os,
            "config": process,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        Self::of_parts(layers, serde_json::to_vec(&config).unwrap(), OCI_MANIFEST)
    }

    pub fn of_parts(layers: Vec<TestLayer>, config: Vec<u8>, media_type: &'static str) -> Self {
        let (config_type, docker) = match media_type {
            DOCKER_MANIFEST => ("application/vnd.docker.container.image.v1+json", true),
            _ => ("application/vnd.oci.image.config.v1+json", false),
        };
        let described = layers.iter().map(|layer| {
            let docker_type = "application/vnd.docker.image.rootfs.diff.tar.gzip";
            descriptor(if docker { docker_type } else { layer.media_type }, &layer.blob)
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": descriptor(config_type, &config),
            "layers": described.collect::<Vec<_>>(),
        });
        Self {
            layers,
            config,
            manifest: serde_json::to_vec(&manifest).unwrap(),
            media_type,
        }
    }

    /// The same image in Docker's own spelling.
    pub fn in_docker_form(self) -> Self {
        Self::of_parts(self.layers, self.config, DOCKER_MANIFEST)
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    pub fn blobs(&self) -> Vec<(Digest, Vec<u8>)> {
        let layers = self
            .layers
            .iter()
            .map(|layer| (layer.digest(), layer.blob.clone()));
        layers
            .chain([(Digest::of(&self.config), self.config.clone())])
            .collect()
    }

    fn index_entry(&self, tag: &str) -> Value {
        let mut entry = descriptor(self.media_type, &self.manifest);
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        entry
    }
}

/// A list of manifests for several platforms.
pub fn list(media_type: &str, entries: &[(&TestImage, &str, &str)]) -> Vec<u8> {
    let manifests = entries.iter().map(|(image, os, architecture)| {
        let mut entry = descriptor(image.media_type, &image.manifest);
        entry["platform"] = json!({ "os": os, "architecture": architecture });
        entry
    });
    let list = json!({
        "schemaVersion": 2,
        "mediaType": media_type,
        "manifests": manifests.collect::<Vec<_>>(),
    });
    serde_json::to_vec(&list).unwrap()
}

/// The files of an OCI layout, by their paths in it.
pub fn layout_files(images: &[(&str, &TestImage)]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    files.insert(
        "oci-layout".to_owned(),
        br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
    );
    let entries: Vec<_> = images.iter().map(|(tag, image)| image.index_entry(tag)).collect();
    let index = json!({ "schemaVersion": 2, "manifests": entries });
    files.insert("index.json".to_owned(), serde_json::to_vec(&index).unwrap());
    for (_, image) in images {
        let manifest = (image.digest(), image.manifest.clone());
        for (digest, bytes) in image.blobs().into_iter().chain([manifest]) {
            files.insert(format!("blobs/sha256/{}", digest.hex()), bytes);
        }
    }
    files
}

pub fn write_layout(dir: &Path, images: &[(&str, &TestImage)]) {
    for (name, bytes) in layout_files(images) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// A tar file with these files.
pub fn archive(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, &**bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// The files that older versions of `docker save` write.
pub fn classic_files(images: &[&TestImage]) -> BTreeMap<String, Vec<u8>> {
    let tagged: Vec<_> = images.iter().map(|image| (&["a:1"][..], *image)).collect();
    tagged_files(&tagged)
}

/// The same with the names that each image has.
pub fn tagged_files(images: &[(&[&str], &TestImage)]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut manifest = Vec::new();
    for (tags, image) in images {
        let config = format!("{}.json", Digest::of(&image.config).hex());
        files.insert(config.clone(), image.config.clone());
        let mut layers = Vec::new();
        for layer in &image.layers {
            let name = format!("{}/layer.tar", layer.diff_id().hex());
            files.insert(name.clone(), layer.tar.clone());
            layers.push(name);
        }
        manifest.push(json!({ "Config": config, "RepoTags": tags, "Layers": layers }));
    }
    files.insert("manifest.json".to_owned(), serde_json::to_vec(&manifest).unwrap());
    files
}
