//! From a spec and an image to what the runtime reads.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dhow_core::spec::ServiceSpec;

use crate::cgroup::CgroupHost;
use crate::driver::{Cause, ReplicaStart};
use crate::image::ImageConfig;
use crate::process::limits;
use crate::shim::protocol::Rlimit;

use super::capabilities::CapabilitySet;
use super::filters::{Filter, Filters};
use super::mounts::Bound;
use super::network::ServiceNetwork;
use super::root_view::RootView;
use super::{command, devices, mounts, names, oci, seccomp, user};

/// What all runtimes of the last years read.
pub(super) const OCI_VERSION: &str = "1.0.2";
pub(super) const CONFIG_FILE: &str = "config.json";
/// The link to the namespace of a container's processes, where it has an init.
pub(super) const PID_NAMESPACE: &str = "pidns";

/// Holds the files that name hosts, in the replica's folder.
pub(super) const NAMES_DIR: &str = "names";

/// Shows more of the host than a container needs.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/scsi",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Changes the host's kernel.
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// What of a container is known before its configuration.
pub(super) struct Parts<'a> {
    pub start: &'a ReplicaStart,
    pub image: &'a ImageConfig,
    /// The bundle's folder.
    pub dir: &'a Path,
    /// The replica's own folder, beside what it writes.
    pub replica_dir: &'a Path,
    pub rootfs: &'a Path,
    pub address: Ipv4Addr,
    /// How it reaches services by name.
    pub services: Option<&'a ServiceNetwork>,
    pub network_namespace: PathBuf,
    pub cgroups: &'a CgroupHost,
    pub cgroups_path: Option<PathBuf>,
    /// Where the runtime takes finished filters.
    pub filters: Option<&'a Filters>,
}

/// What came of writing a bundle.
pub(super) struct Written {
    /// What the host carries out differently.
    pub notices: Vec<String>,
    /// The rules of a filter that is not known yet.
    pub new_filter: Option<String>,
    /// What mounts have to show before the container starts.
    pub bound: Vec<Bound>,
}

/// Writes the bundle. Blocks.
pub(super) fn write(parts: &Parts<'_>) -> Result<Written, Cause> {
    let (mut notices, mut bound) = (Vec::new(), Vec::new());
    let mut config = config(parts, &mut notices, &mut bound)?;
    let filter = config.linux.seccomp.as_ref().zip(parts.filters);
    let new_filter = match filter.and_then(|(rules, filters)| filters.of(rules)) {
        Some(Filter::Known(name, filter)) => {
            config.annotations.insert(name, filter);
            None
        }
        Some(Filter::New(rules)) => Some(rules),
        None => None,
    };
    let path = parts.dir.join(CONFIG_FILE);
    let bytes = serde_json::to_vec(&config).map_err(|error| Cause::file("writing", &path)(error.into()))?;
    write_private(&path, &bytes)?;
    Ok(Written {
        notices,
        new_filter,
        bound,
    })
}

/// Secrets may be in it. It lies in memory and is made anew at each start: a power cut takes all of it.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Cause> {
    let opened = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path);
    opened
        .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
        .map_err(Cause::file("writing", path))
}

fn config(
    parts: &Parts<'_>,
    notices: &mut Vec<String>,
    bound: &mut Vec<Bound>,
) -> Result<oci::Config, Cause> {
    let (start, spec) = (parts.start, &*parts.start.spec);
    let root = RootView::open(parts.rootfs).map_err(Cause::file("opening", parts.rootfs))?;
    let hostname = names::hostname(spec, &start.name);
    let (capabilities, missing) =
        CapabilitySet::of(&spec.capabilities, spec.privileged, CapabilitySet::own());
    notices.extend(missing);
    let mut granted = if spec.privileged {
        devices::all()
    } else {
        Vec::new()
    };
    granted.extend(devices::granted(&spec.devices)?);
    let mut mounts = mounts::usual(spec.privileged);
    mounts.extend(name_files(parts, &hostname, notices)?);
    mounts.extend(mounts::of_storage(start, &root, parts.replica_dir, bound)?);
    let files = start.files.iter();
    mounts.extend(files.map(|file| mounts::bind(&file.source, &file.target, true)));
    // A folder inside another is mounted after it.
    mounts.sort_by_key(|mount| Path::new(&mount.destination).components().count());
    let process = process(parts, &root, &hostname, capabilities, notices)?;
    Ok(oci::Config {
        oci_version: OCI_VERSION,
        process,
        root: oci::Root {
            path: parts.rootfs.display().to_string(),
            readonly: spec.read_only_root_fs,
        },
        hostname,
        mounts,
        linux: oci::Linux {
            namespaces: namespaces(
                Some(&parts.network_namespace),
                spec.init.then(|| parts.dir.join(PID_NAMESPACE)).as_deref(),
            ),
            cgroups_path: parts.cgroups_path.as_ref().map(|path| path.display().to_string()),
            resources: oci::LinuxResources {
                devices: devices::rules(&granted, spec.privileged),
            },
            // The kernel's files write them with slashes; runtimes want dots.
            sysctl: spec
                .sysctls
                .iter()
                .map(|(key, value)| (key.replace('/', "."), value.clone()))
                .collect(),
            devices: granted.into_iter().map(|granted| granted.device).collect(),
            seccomp: (!spec.privileged).then(|| seccomp::profile(capabilities)),
            masked_paths: if spec.privileged { &[] } else { MASKED },
            readonly_paths: if spec.privileged { &[] } else { READ_ONLY },
            rootfs_propagation: "rprivate",
        },
        annotations: BTreeMap::new(),
    })
}

fn process(
    parts: &Parts<'_>,
    root: &RootView,
    hostname: &str,
    capabilities: CapabilitySet,
    notices: &mut Vec<String>,
) -> Result<oci::Process, Cause> {
    let (start, spec, image) = (parts.start, &*parts.start.spec, parts.image);
    let who = user::resolve(spec.user.as_deref().unwrap_or(&image.user), root)?;
    let env = command::env(image, hostname, &who.home, [&start.env, &start.secret_env]);
    let names = capabilities.names();
    Ok(oci::Process {
        terminal: false,
        console_size: None,
        user: who.user,
        args: command::args(spec.command.as_ref(), image)?,
        env,
        cwd: command::workdir(spec.command.as_ref(), image),
        capabilities: oci::CapabilitySets {
            bounding: names.clone(),
            effective: names.clone(),
            permitted: names,
        },
        rlimits: rlimits(spec, parts.cgroups, notices)?,
        no_new_privileges: spec.has_no_new_privileges(),
    })
}

fn rlimits(
    spec: &ServiceSpec,
    cgroups: &CgroupHost,
    notices: &mut Vec<String>,
) -> Result<Vec<oci::Rlimit>, Cause> {
    let (limits, cut) = limits::build(&spec.ulimits, &spec.resources, cgroups)?;
    notices.extend(cut);
    let named = |limit: Rlimit| oci::Rlimit {
        kind: format!("RLIMIT_{}", format!("{:?}", limit.kind).to_ascii_uppercase()),
        hard: limit.hard,
        soft: limit.soft,
    };
    Ok(limits.into_iter().map(named).collect())
}

/// The files that name hosts, mounted over those of the image.
fn name_files(
    parts: &Parts<'_>,
    hostname: &str,
    notices: &mut Vec<String>,
) -> Result<Vec<oci::Mount>, Cause> {
    let spec = &*parts.start.spec;
    let deployment = parts.start.name.deployment.as_str();
    let by_name = parts.services.map(|services| (services.dns, deployment));
    let (resolv_conf, missing) = names::resolv_conf(&spec.dns, by_name);
    notices.extend(missing);
    let host = parts.services.map(|services| services.host);
    let files = [
        (
            "hosts",
            names::hosts(hostname, parts.address, host, &spec.extra_hosts),
        ),
        ("hostname", format!("{hostname}\n")),
        ("resolv.conf", resolv_conf),
    ];
    // What a replica writes to them lies where the rest of what it writes does, not in the host's memory.
    let dir = parts.replica_dir.join(NAMES_DIR);
    fs::create_dir_all(&dir).map_err(Cause::file("making", &dir))?;
    // Storage at one of these places wins.
    let is_covered = |target: &str| spec.storage.iter().any(|storage| storage.target() == target);
    let mut mounts = Vec::new();
    for (name, text) in files {
        let target = format!("/etc/{name}");
        if is_covered(&target) {
            continue;
        }
        let path = dir.join(name);
        fs::write(&path, text).map_err(Cause::file("writing", &path))?;
        // Whatever mask the daemon has: users inside read them.
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(&path, mode).map_err(Cause::file("opening", &path))?;
        mounts.push(mounts::bind(&path, &target, spec.read_only_root_fs));
    }
    Ok(mounts)
}

/// All of its own; the network's was made before, and that of processes where there is an init in it.
pub(super) fn namespaces(network: Option<&Path>, pid: Option<&Path>) -> Vec<oci::Namespace> {
    let own = ["mount", "ipc", "uts", "cgroup"].map(|kind| oci::Namespace { kind, path: None });
    let mut namespaces = Vec::from(own);
    let made = [("network", network), ("pid", pid)].map(|(kind, path)| oci::Namespace {
        kind,
        path: path.map(|path| path.display().to_string()),
    });
    namespaces.extend(made);
    namespaces
}
