//! What is mounted: volumes, folders and files of the host, file systems in memory.

use std::path::{Component, Path, PathBuf};

use dhow_core::spec::{ByteSize, ConfigSpec, FileMount, ServiceSpec, Storage};

use crate::item::Item;
use crate::project::ProjectParts;
use crate::report::Location;
use crate::service::Reader;
use crate::{Nodes, PathKind, duration};

/// A file that becomes a config, where the replica may run on another machine.
const FILE_BYTES_MAX: usize = 512 * 1024;
const NAME_MAX_BYTES: usize = 63;
/// Where engines of containers listen.
const SOCKETS: [&str; 5] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/var/run/docker",
];

/// A mount in the long form.
struct Mount {
    place: Location,
    kind: Kind,
    source: Option<String>,
    target: String,
    read_only: bool,
    size: Option<ByteSize>,
    makes_folder: bool,
    nocopy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Volume,
    Bind,
    Tmpfs,
}

pub(crate) fn read(
    reader: &mut Reader<'_, '_>,
    service: &Item,
    spec: &mut ServiceSpec,
    shared: &mut ProjectParts<'_>,
) {
    if let Some(item) = service.get("volumes") {
        match item.items() {
            Some(items) => {
                for item in items {
                    let mount = match item.fields() {
                        Some(_) => long(reader, item),
                        None => short(reader, item),
                    };
                    if let Some(mount) = mount {
                        add(reader, mount, spec, shared);
                    }
                }
            }
            None => {
                let message = format!("`volumes` takes a list, found {}", item.shown());
                let _: Option<()> = reader.refuse(item.place, "volumes", message, "write `- data:/data`");
            }
        }
    }
    in_memory(reader, service, spec);
    if let Some(item) = service.get("devices") {
        reader.at(&["devices"], item.place);
        for device in item.items().unwrap_or_default() {
            let part = |name: &str| device.get(name).and_then(Item::text);
            match (device.text(), part("source")) {
                (Some(text), _) => spec.devices.push(text.to_owned()),
                (None, Some(source)) => {
                    let parts = [Some(source), part("target"), part("permissions")];
                    spec.devices
                        .push(parts.into_iter().flatten().collect::<Vec<_>>().join(":"));
                }
                (None, None) => {
                    let hint = "write `/dev/fuse` or `/dev/sda:/dev/xvda:rw`";
                    let _: Option<()> = reader.refuse(device.place, "devices", "this names no device", hint);
                }
            }
        }
    }
    let binds = |storage: &Storage| matches!(storage, Storage::Bind { read_only: false, .. });
    if spec.storage.iter().any(binds) && spec.rollout.max_surge.is_none() {
        // Two replicas never write to one folder: the old one ends first, as compose does it.
        (spec.rollout.max_surge, spec.rollout.max_unavailable) = (Some(0), Some(1));
    }
}

fn in_memory(reader: &mut Reader<'_, '_>, service: &Item, spec: &mut ServiceSpec) {
    if let Some(item) = service.get("tmpfs") {
        for (text, place) in reader.texts(item, "tmpfs") {
            let (target, options) = text.split_once(':').unwrap_or((&text, ""));
            let mut size = None;
            for option in options.split(',').filter(|option| !option.is_empty()) {
                match option.split_once('=') {
                    Some(("size", text)) => size = duration::size(text),
                    Some(("mode", "1777" | "01777")) | None => {}
                    Some((name, _)) => {
                        reader.note(
                            place,
                            format!("`{name}` of `tmpfs` has no effect: everybody inside may write there"),
                        );
                    }
                }
            }
            mounted(
                reader,
                spec,
                place,
                Storage::Tmpfs {
                    target: target.to_owned(),
                    size,
                },
            );
        }
    }
    if let Some(item) = service.get("shm_size")
        && let Some(size) = reader.size(item, "shm_size")
    {
        let target = "/dev/shm".to_owned();
        mounted(
            reader,
            spec,
            item.place,
            Storage::Tmpfs {
                target,
                size: Some(size),
            },
        );
    }
}

fn mounted(reader: &mut Reader<'_, '_>, spec: &mut ServiceSpec, place: Location, storage: Storage) {
    reader.at(&["storage", &spec.storage.len().to_string()], place);
    spec.storage.push(storage);
}

fn short(reader: &mut Reader<'_, '_>, item: &Item) -> Option<Mount> {
    let text = reader.text(item, "volumes")?;
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default().to_owned();
    let mut mount = Mount {
        place: item.place,
        kind: Kind::Volume,
        source: None,
        target: first.clone(),
        read_only: false,
        size: None,
        makes_folder: true,
        nocopy: false,
    };
    if let Some(target) = parts.next() {
        mount.kind = if first.starts_with(['.', '/', '~']) {
            Kind::Bind
        } else {
            Kind::Volume
        };
        mount.source = Some(first);
        mount.target = target.to_owned();
    }
    for option in parts.flat_map(|options| options.split(',')) {
        match option {
            "ro" => mount.read_only = true,
            "rw" | "" => {}
            "nocopy" => mount.nocopy = true,
            "z" | "Z" | "cached" | "delegated" | "consistent" => {
                reader.note(item.place, format!("`{option}` has no effect here"));
            }
            "private" | "rprivate" => {}
            "shared" | "rshared" | "slave" | "rslave" => return propagation(reader, item.place, option),
            _ => {
                let hint = "write `SOURCE:TARGET` or `SOURCE:TARGET:ro`";
                return reader.refuse(
                    item.place,
                    "volumes",
                    format!("`{option}` is no option of a mount"),
                    hint,
                );
            }
        }
    }
    Some(mount)
}

fn propagation<T>(reader: &mut Reader<'_, '_>, place: Location, which: &str) -> Option<T> {
    let message =
        format!("mounts are not passed on between host and container: `{which}` cannot be carried out");
    reader.refuse(
        place,
        "volumes",
        message,
        "leave it out, where nothing is mounted below it later",
    )
}

/// The fields of a long form.
const KNOWN: [&str; 9] = [
    "type",
    "source",
    "target",
    "read_only",
    "bind",
    "volume",
    "tmpfs",
    "consistency",
    "image",
];

fn long(reader: &mut Reader<'_, '_>, item: &Item) -> Option<Mount> {
    reader.known(item, "volumes", &KNOWN);
    let kind = match item.get("type").and_then(Item::text) {
        Some("volume") | None => Kind::Volume,
        Some("bind") => Kind::Bind,
        Some("tmpfs") => Kind::Tmpfs,
        Some(other) => {
            let hint = "write `volume`, `bind` or `tmpfs`";
            return reader.refuse(
                item.place,
                "volumes",
                format!("mounts of type `{other}` are not carried out"),
                hint,
            );
        }
    };
    let source = item.get("source").and_then(Item::text).map(str::to_owned);
    let Some(target) = item.get("target").and_then(Item::text).map(str::to_owned) else {
        return reader.refuse(
            item.place,
            "volumes",
            "this mount has no `target`",
            "add one, such as `target: /data`",
        );
    };
    let inner = |block: &str, name: &str| item.get(block).and_then(|block| block.get(name)).cloned();
    if let Some(item) = inner("bind", "propagation")
        && let Some(which) = item
            .text()
            .filter(|which| !matches!(*which, "private" | "rprivate"))
    {
        return propagation(reader, item.place, which);
    }
    if let Some(item) = inner("volume", "subpath") {
        let hint = "leave it out, and give the folder a volume of its own";
        return reader.refuse(
            item.place,
            "volumes",
            "a part of a volume cannot be mounted",
            hint,
        );
    }
    for (block, name) in [("bind", "selinux"), ("tmpfs", "mode")] {
        if let Some(item) = inner(block, name) {
            reader.note(item.place, format!("`{name}` has no effect here"));
        }
    }
    Some(Mount {
        place: item.place,
        kind,
        source,
        target,
        read_only: item
            .get("read_only")
            .is_some_and(|item| reader.flag(item, "volumes").unwrap_or_default()),
        nocopy: inner("volume", "nocopy")
            .is_some_and(|item| reader.flag(&item, "volumes").unwrap_or_default()),
        size: inner("tmpfs", "size").and_then(|item| reader.size(&item, "volumes")),
        makes_folder: inner("bind", "create_host_path")
            .is_some_and(|item| reader.flag(&item, "volumes").unwrap_or(true)),
    })
}

fn add(reader: &mut Reader<'_, '_>, mount: Mount, spec: &mut ServiceSpec, shared: &mut ProjectParts<'_>) {
    let storage = match (mount.kind, &mount.source) {
        (Kind::Tmpfs, _) => Some(Storage::Tmpfs {
            target: mount.target.clone(),
            size: mount.size,
        }),
        (Kind::Volume, Some(name)) => {
            let name = name.clone();
            if !shared.volumes.contains(&name) {
                let message = format!("the volume `{name}` is not declared");
                let hint =
                    format!("add it at the top: `volumes: {{ {name}: }}`; a folder begins with `./` or `/`");
                return reader
                    .refuse::<()>(mount.place, "volumes", message, hint)
                    .unwrap_or_default();
            }
            Some(Storage::Named {
                name,
                target: mount.target.clone(),
                read_only: mount.read_only,
                nocopy: mount.nocopy,
                size: None,
            })
        }
        (Kind::Volume, None) => Some(Storage::Named {
            name: derived(&["anonymous", &reader.name, &mount.target]),
            target: mount.target.clone(),
            read_only: mount.read_only,
            nocopy: mount.nocopy,
            size: None,
        }),
        (Kind::Bind, Some(source)) => bind(reader, &mount, source, spec, shared),
        (Kind::Bind, None) => reader.refuse(
            mount.place,
            "volumes",
            "this mount has no `source`",
            "name the folder",
        ),
    };
    if let Some(storage) = storage {
        mounted(reader, spec, mount.place, storage);
    }
}

/// A name made of parts, as short as names may be.
pub(crate) fn derived(parts: &[&str]) -> String {
    let text = parts.join("-");
    let plain: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') {
                c
            } else {
                '-'
            }
        })
        .collect();
    let mut name = String::new();
    for part in plain.split('-').filter(|part| !part.is_empty()) {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(part);
    }
    if name.len() <= NAME_MAX_BYTES {
        return name;
    }
    // The end says more than the beginning; a sum keeps two apart that end alike.
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let sum = format!("v{sum:016x}-");
    let end = &name[name.len() - (NAME_MAX_BYTES - sum.len())..];
    format!("{sum}{}", end.trim_start_matches(['-', '.', '_']))
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                whole.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => whole.push(part),
        }
    }
    whole
}

fn bind(
    reader: &mut Reader<'_, '_>,
    mount: &Mount,
    source: &str,
    spec: &mut ServiceSpec,
    shared: &mut ProjectParts<'_>,
) -> Option<Storage> {
    let path = match source.strip_prefix('~') {
        Some(rest) => {
            let Some(home) = (reader.around.env)("HOME") else {
                return reader.refuse(
                    mount.place,
                    "volumes",
                    "`HOME` is not set, so `~` is nowhere",
                    "write the whole path",
                );
            };
            Path::new(&home).join(rest.trim_start_matches('/'))
        }
        None => reader.report.base(mount.place).join(source),
    };
    let path = plain(&path);
    let shown = path.display().to_string();
    if SOCKETS.contains(&shown.as_str()) || shown.ends_with("/docker.sock") {
        let message = "the Docker socket cannot be mounted: no Docker runs these containers";
        let hint = "leave this mount out, or the service whose work it is; Dhow routes, restarts and updates by itself";
        return reader.refuse(mount.place, "volumes", message, hint);
    }
    let kind = (reader.around.kind)(&path);
    if reader.around.nodes == Nodes::Elsewhere {
        return as_config(reader, mount, &path, kind, spec, shared);
    }
    if kind == PathKind::Nothing {
        if !mount.makes_folder {
            let hint = "make it, or check the path";
            return reader.refuse(mount.place, "volumes", format!("there is no {shown}"), hint);
        }
        reader.note(
            mount.place,
            format!("{shown} is not there: it is made, as a folder"),
        );
        if !shared.missing_folders.contains(&path) {
            shared.missing_folders.push(path.clone());
        }
    }
    Some(Storage::Bind {
        source: shown,
        target: mount.target.clone(),
        read_only: mount.read_only,
    })
}

/// A file that is only read goes with the deployment where the replica may run on another machine.
fn as_config(
    reader: &mut Reader<'_, '_>,
    mount: &Mount,
    path: &Path,
    kind: PathKind,
    spec: &mut ServiceSpec,
    shared: &mut ProjectParts<'_>,
) -> Option<Storage> {
    let shown = path.display();
    let hint = "mount a single file with `:ro`, which then goes along as a config; put folders into the image or a volume";
    let what = match (kind, mount.read_only) {
        (PathKind::File, true) => match (reader.around.file)(path) {
            Ok(bytes) if bytes.len() > FILE_BYTES_MAX => {
                format!("{shown} has more than {} KiB", FILE_BYTES_MAX >> 10)
            }
            Ok(bytes) => {
                let name = derived(&["file", &reader.name, &mount.target]);
                shared.configs.insert(name.clone(), ConfigSpec::of_bytes(bytes));
                reader.note(mount.place, format!("{shown} goes along as the config `{name}`"));
                spec.configs.push(FileMount {
                    source: name,
                    target: Some(mount.target.clone()),
                    ..FileMount::default()
                });
                return None;
            }
            Err(problem) => problem.message,
        },
        (PathKind::File, false) => {
            format!("{shown} is on this machine, and replicas may write to it on others")
        }
        (PathKind::Folder, _) => format!("the folder {shown} is on this machine, and replicas run on others"),
        (PathKind::Other, _) => format!("{shown} is no file that could go along"),
        (PathKind::Nothing, _) => format!("{shown} is not there, and replicas run on other machines"),
    };
    reader.refuse(mount.place, "volumes", what, hint)
}

#[cfg(test)]
mod tests {
    use super::derived;

    #[test]
    fn derived_names_are_names() {
        assert_eq!(
            derived(&["anonymous", "web", "/app/node_modules"]),
            "anonymous-web-app-node_modules"
        );
        let long = derived(&["anonymous", "a-service", &"/long".repeat(30)]);
        assert!(long.len() <= 63 && long.starts_with('v'), "{long}");
        assert_ne!(long, derived(&["anonymous", "b-service", &"/long".repeat(30)]));
    }
}
