//! Where the hierarchies are mounted and where this process stands in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::host::Controller;

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount: PathBuf,
    /// The group of this process, as a path below the mount.
    pub own: PathBuf,
}

/// The hierarchies of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    pub unified: Option<Hierarchy>,
    pub v1: BTreeMap<Controller, Hierarchy>,
    /// Hierarchies of version 1 that we limit nothing in, but in which a container runtime makes groups too.
    pub other: Vec<Hierarchy>,
}

impl Mounts {
    pub fn read() -> std::io::Result<Self> {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")?;
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Ok(Self::parse(&mountinfo, &own))
    }

    /// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`. Where a hierarchy is mounted twice the first counts.
    pub fn parse(mountinfo: &str, own_groups: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let mut left = left.split(' ').skip(3);
            let (Some(root), Some(mount)) = (left.next(), left.next()) else {
                continue;
            };
            let mut right = right.split(' ');
            let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
            let hierarchy = |own: &str| Hierarchy {
                mount: PathBuf::from(unescape(mount)),
                own: below(root, own),
            };
            if kind == Some("cgroup2") {
                let own = own_group(own_groups, |names| names.is_empty());
                found.unified.get_or_insert_with(|| hierarchy(own));
            } else if kind == Some("cgroup") {
                if !options
                    .split(',')
                    .any(|name| Controller::from_v1_name(name).is_some())
                {
                    let name = options
                        .split(',')
                        .find(|name| name.starts_with("name="))
                        .unwrap_or("");
                    let own = own_group(own_groups, |names| !name.is_empty() && names == name);
                    found.other.push(hierarchy(own));
                }
                for controller in options.split(',').filter_map(Controller::from_v1_name) {
                    let name = controller.v1_name();
                    let own = own_group(own_groups, |names| names.split(',').any(|n| n == name));
                    found.v1.entry(controller).or_insert_with(|| hierarchy(own));
                }
            }
        }
        found
    }
}

/// The path in the line of `/proc/self/cgroup` whose controllers fit; `/` where there is none.
fn own_group(text: &str, fits: impl Fn(&str) -> bool) -> &str {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    lines
        .into_iter()
        .find(|(names, _)| fits(names))
        .map_or("/", |(_, path)| path)
}

/// A mount may show only a part of its hierarchy: `root` is what lies at the mount point.
fn below(root: &str, own: &str) -> PathBuf {
    let relative = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
    relative.to_owned()
}

/// Spaces, tabs, newlines and backslashes are written as octal numbers there.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}
