//! The runtime's configuration, `config.json`, as far as this driver fills it in. Names are the
//! specification's; what is empty is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The whole of `config.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    pub oci_version: &'static str,
    pub process: Process,
    pub root: Root,
    pub hostname: String,
    pub mounts: Vec<Mount>,
    pub linux: Linux,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<&'static str, Arc<str>>,
}

/// Read back from the file for a command beside the workload: it gets the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process {
    pub terminal: bool,
    /// How large the terminal is, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_size: Option<ConsoleSize>,
    pub user: User,
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    pub capabilities: CapabilitySets,
    pub rlimits: Vec<Rlimit>,
    pub no_new_privileges: bool,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ConsoleSize {
    pub height: u16,
    pub width: u16,
}

/// The user that the workload runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct User {
    pub uid: u32,
    pub gid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// The capabilities of the workload's first process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CapabilitySets {
    pub bounding: Vec<String>,
    pub effective: Vec<String>,
    pub permitted: Vec<String>,
}

/// A limit of the kernel, by the specification's name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rlimit {
    #[serde(rename = "type")]
    pub kind: String,
    pub hard: u64,
    pub soft: u64,
}

/// The root file system.
#[derive(Debug, Serialize)]
pub(super) struct Root {
    pub path: String,
    pub readonly: bool,
}

/// One mount inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mount {
    pub destination: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub source: String,
    pub options: Vec<String>,
}

/// What is particular to Linux: namespaces, groups, devices, system calls.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Linux {
    pub namespaces: Vec<Namespace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroups_path: Option<String>,
    pub resources: LinuxResources,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub masked_paths: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub readonly_paths: &'static [&'static str],
    pub rootfs_propagation: &'static str,
}

/// A namespace that the runtime makes, or joins where a path is given.
#[derive(Debug, Serialize)]
pub(super) struct Namespace {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Memory, CPU and processes are limited through the group itself; devices only a runtime can.
#[derive(Debug, Serialize)]
pub(super) struct LinuxResources {
    pub devices: Vec<DeviceRule>,
}

/// A rule of the device filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DeviceRule {
    pub allow: bool,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    pub access: String,
}

/// A device node that the runtime makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub major: i64,
    pub minor: i64,
    pub file_mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// The filter of system calls.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Seccomp {
    pub default_action: &'static str,
    pub default_errno_ret: u32,
    pub architectures: &'static [&'static str],
    pub syscalls: Vec<SyscallRule>,
}

/// What the filter does with some system calls.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SyscallRule {
    pub names: Vec<&'static str>,
    pub action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<SyscallArg>,
}

/// A condition on an argument of a system call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SyscallArg {
    pub index: u32,
    pub value: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub value_two: u64,
    pub op: &'static str,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
