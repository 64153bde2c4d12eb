//! What of a spec a container can be given here, and what this host lacks.

use dhow_core::spec::{Runtime, ServiceSpec};

use crate::cgroup::{CgroupHost, Controller};
use crate::driver::{Cause, Enforcement, LimitSupport};

/// Refuses what this driver does not carry out. Silence would be a promise.
pub(super) fn check(spec: &ServiceSpec) -> Result<(), Cause> {
    let refused = |field, why: &str| {
        Err(Cause::Unsupported {
            field,
            why: why.to_owned(),
        })
    };
    if spec.runtime() != Runtime::Container {
        return refused(
            "runtime",
            "this is a process, and the container driver runs containers",
        );
    }
    Ok(())
}

/// Why containers cannot be run here at all.
pub(super) fn missing(cgroups: &CgroupHost) -> Result<(), Cause> {
    let no = |why: String| Err(Cause::NoContainers { why });
    if !nix::unistd::geteuid().is_root() {
        return no("they need root; run the daemon as root, or use services with `runtime: process`".into());
    }
    if !cgroups.is_usable() {
        let why = if cgroups.missing().is_empty() {
            "none are in use".to_owned()
        } else {
            cgroups.missing().join("; ")
        };
        return no(format!("they need control groups ({why})"));
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_overlay = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some("overlay"));
    // A module is loaded by the first mount.
    if !has_overlay && !std::path::Path::new("/lib/modules").exists() {
        return no("the kernel has no overlayfs; load the module `overlay`".into());
    }
    Ok(())
}

pub(super) fn limits(cgroups: &CgroupHost) -> LimitSupport {
    let whole = |controller, otherwise| {
        if cgroups.limits(controller) {
            Enforcement::Whole
        } else {
            otherwise
        }
    };
    LimitSupport {
        memory: whole(Controller::Memory, Enforcement::PerProcess),
        cpu: whole(Controller::Cpu, Enforcement::Absent),
        pids: whole(Controller::Pids, Enforcement::Absent),
    }
}

/// What is not enforced, in words.
pub(super) fn limit_notices(limits: LimitSupport, cgroups: &CgroupHost) -> Vec<String> {
    let all = [
        ("memory", limits.memory),
        ("cpu", limits.cpu),
        ("pids", limits.pids),
    ];
    let absent: Vec<&str> = all
        .into_iter()
        .filter(|(_, how)| *how != Enforcement::Whole)
        .map(|(name, _)| name)
        .collect();
    if absent.is_empty() {
        return Vec::new();
    }
    let why = cgroups.missing().join("; ");
    vec![format!(
        "limits are not enforced for containers as a whole: {} ({why})",
        absent.join(", ")
    )]
}
