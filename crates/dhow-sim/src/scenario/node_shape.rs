//! What new nodes offer: `cpu=4 memory=8Gi os=linux arch=x86_64 files=yes zone=a,b,c`. A list goes round the nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::spec::{ByteSize, Cpu, VolumeSupport};
use dhow_core::state::{NodeInfo, NodeRole};

/// The capacity and labels of the nodes that a scenario adds.
#[derive(Clone, Debug)]
pub(super) struct NodeShape {
    capacity: Amount,
    os: String,
    arch: String,
    mounts_files: bool,
    volumes: VolumeSupport,
    /// Every label with the values that go round.
    labels: Vec<(String, Vec<String>)>,
}

impl NodeShape {
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut shape = Self {
            capacity: Amount {
                cpu_milli: 4_000,
                memory_bytes: 8 << 30,
            },
            os: "linux".into(),
            arch: "x86_64".into(),
            mounts_files: true,
            volumes: VolumeSupport::Sized,
            labels: Vec::new(),
        };
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("`{word}` is no `key=value`"))?;
            match key {
                "cpu" => {
                    let cpu: Cpu = value
                        .parse()
                        .map_err(|error: dhow_core::spec::UnitError| error.to_string())?;
                    shape.capacity.cpu_milli = cpu.0;
                }
                "memory" => {
                    let size: ByteSize = value
                        .parse()
                        .map_err(|error: dhow_core::spec::UnitError| error.to_string())?;
                    shape.capacity.memory_bytes = size.0;
                }
                "os" => shape.os = value.into(),
                "arch" => shape.arch = value.into(),
                "files" => {
                    shape.mounts_files = match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(format!("`{word}`: a node mounts files, `yes` or `no`")),
                    };
                    if !shape.mounts_files {
                        shape.volumes = VolumeSupport::Named;
                    }
                }
                "sizes" => {
                    shape.volumes = match value {
                        "yes" => VolumeSupport::Sized,
                        "no" => VolumeSupport::Ephemeral,
                        _ => return Err(format!("`{word}`: a node holds volumes to a size, `yes` or `no`")),
                    };
                }
                label => {
                    let values = value.split(',').map(Into::into).collect();
                    shape.labels.push((label.into(), values));
                }
            }
        }
        Ok(shape)
    }

    /// What the node at this place of the list says of itself.
    pub fn info(&self, place: usize, role: NodeRole) -> NodeInfo {
        let labels: BTreeMap<String, String> = self
            .labels
            .iter()
            .filter_map(|(key, values)| Some((key.clone(), values.get(place % values.len())?.clone())))
            .collect();
        NodeInfo {
            role,
            api_addr: None,
            os: self.os.as_str().into(),
            arch: self.arch.as_str().into(),
            labels: Arc::new(labels),
            capacity: self.capacity,
            runs_replicas: true,
            tries_settings: true,
            mounts_files: self.mounts_files,
            runs_steps: self.mounts_files,
            volumes: self.volumes,
            mesh_addr: None,
        }
    }
}
