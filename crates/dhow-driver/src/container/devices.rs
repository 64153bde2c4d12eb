//! Devices of the host in a container: those that every container has are the runtime's to make.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::driver::Cause;

use super::oci::{Device, DeviceRule};

/// Device folders that are the container's own.
const OWN: [&str; 5] = ["/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/fd", "/dev/net"];
/// Devices that every container has: null, zero, full, random, urandom, tty, ptmx, and all terminals.
const USUAL: [(i64, Option<i64>); 8] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(2)),
    (136, None),
];
/// What a privileged container is given of the host's at most; a large server has a few thousand.
const DEVICES_MAX: usize = 16_384;

/// A device, and what may be done with it.
pub(super) struct Granted {
    pub device: Device,
    pub access: String,
}

/// Reads `/dev/x`, `/dev/x:rw`, `/dev/x:/dev/y` or `/dev/x:/dev/y:rwm`.
pub(super) fn granted(texts: &[String]) -> Result<Vec<Granted>, Cause> {
    let one = |text: &String| {
        let mut parts = text.split(':').peekable();
        let host = parts.next().unwrap_or_default();
        let inside = parts.next_if(|part| part.starts_with('/')).unwrap_or(host);
        let access = parts.next().unwrap_or("rwm");
        let device = device(Path::new(host), inside).map_err(Cause::file("looking at the device", host))?;
        let device = device.ok_or_else(|| Cause::Unsupported {
            field: "devices",
            why: format!("{host} is no device"),
        })?;
        Ok(Granted {
            device,
            access: access.to_owned(),
        })
    };
    texts.iter().map(one).collect()
}

/// All devices of the host, for a privileged container.
pub(super) fn all() -> Vec<Granted> {
    let mut found = Vec::new();
    collect(Path::new("/dev"), &mut found);
    found
}

fn collect(dir: &Path, found: &mut Vec<Granted>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if found.len() >= DEVICES_MAX || OWN.iter().any(|own| path == Path::new(own)) {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, found);
        } else if let Ok(Some(device)) = device(&path, &path.display().to_string()) {
            let access = "rwm".to_owned();
            found.push(Granted { device, access });
        }
    }
}

fn device(host: &Path, inside: &str) -> io::Result<Option<Device>> {
    let meta = fs::metadata(host)?;
    let kind = if meta.file_type().is_char_device() {
        "c"
    } else if meta.file_type().is_block_device() {
        "b"
    } else {
        return Ok(None);
    };
    let number = |part: u32| i64::from(part);
    Ok(Some(Device {
        path: inside.to_owned(),
        kind,
        major: number(rustix::fs::major(meta.rdev())),
        minor: number(rustix::fs::minor(meta.rdev())),
        file_mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
    }))
}

/// Nothing, then what is allowed. Making a node is no harm: opening it is what counts.
pub(super) fn rules(granted: &[Granted], privileged: bool) -> Vec<DeviceRule> {
    let rule = |allow, kind, major, minor, access: &str| DeviceRule {
        allow,
        kind,
        major,
        minor,
        access: access.to_owned(),
    };
    if privileged {
        return vec![rule(true, None, None, None, "rwm")];
    }
    let mut rules = vec![
        rule(false, None, None, None, "rwm"),
        rule(true, Some("c"), None, None, "m"),
        rule(true, Some("b"), None, None, "m"),
    ];
    rules.extend(
        USUAL
            .iter()
            .map(|(major, minor)| rule(true, Some("c"), Some(*major), *minor, "rwm")),
    );
    rules.extend(granted.iter().map(|Granted { device, access }| {
        rule(
            true,
            Some(device.kind),
            Some(device.major),
            Some(device.minor),
            access,
        )
    }));
    rules
}
