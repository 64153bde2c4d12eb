//! What of a spec a host program can be given here, and what not.

use dhow_core::spec::{Runtime, ServiceSpec};

use crate::cgroup::{CgroupHost, Controller};
use crate::driver::{Capabilities, Cause, Enforcement, LimitSupport};

/// Refuses what a process on the host cannot have. Silence would be a promise.
pub(super) fn check(spec: &ServiceSpec) -> Result<(), Cause> {
    let no_container = "a process runs on the host itself; use a container for that";
    let refused: [(&'static str, bool); 10] = [
        ("runtime", spec.runtime() != Runtime::Process),
        ("storage", !spec.storage.is_empty()),
        ("read_only_root_fs", spec.read_only_root_fs),
        (
            "capabilities",
            !spec.capabilities.add.is_empty() || !spec.capabilities.drop.is_empty(),
        ),
        ("sysctls", !spec.sysctls.is_empty()),
        ("hostname", spec.hostname.is_some()),
        ("dns", !spec.dns.is_empty()),
        ("extra_hosts", !spec.extra_hosts.is_empty()),
        ("devices", !spec.devices.is_empty()),
        ("privileged", spec.privileged),
    ];
    match refused.into_iter().find(|(_, is_set)| *is_set) {
        Some((field, _)) => Err(Cause::Unsupported {
            field,
            why: no_container.into(),
        }),
        None => Ok(()),
    }
}

/// What this host enforces.
pub(super) fn capabilities(cgroups: &CgroupHost) -> Capabilities {
    let whole = |controller, otherwise| {
        if cgroups.limits(controller) {
            Enforcement::Whole
        } else {
            otherwise
        }
    };
    let limits = LimitSupport {
        memory: whole(Controller::Memory, Enforcement::PerProcess),
        cpu: whole(Controller::Cpu, Enforcement::Absent),
        pids: whole(Controller::Pids, Enforcement::Absent),
    };
    let mut notices = Vec::new();
    let because = if cgroups.missing().is_empty() {
        "no control groups are in use".to_owned()
    } else {
        cgroups.missing().join("; ")
    };
    let absent: Vec<&str> = [("cpu", limits.cpu), ("pids", limits.pids)]
        .into_iter()
        .filter(|(_, how)| *how == Enforcement::Absent)
        .map(|(name, _)| name)
        .collect();
    if !absent.is_empty() {
        notices.push(format!(
            "limits are not enforced for processes: {} ({because})",
            absent.join(", ")
        ));
    }
    if limits.memory == Enforcement::PerProcess {
        notices.push(format!(
            "memory limits hold for each process by itself, not for a replica as a whole ({because})"
        ));
    }
    if !nix::unistd::geteuid().is_root() {
        notices.push("processes run as the daemon's own user: switching users needs root".into());
    }
    Capabilities {
        available: true,
        limits,
        notices,
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::{ImageSpec, Storage};

    use super::*;

    #[test]
    fn what_a_process_cannot_have_is_refused_by_name() {
        let plain = ServiceSpec::default();
        assert!(check(&plain).is_ok());
        let cases = [
            (
                ServiceSpec {
                    image: Some(ImageSpec::named("nginx")),
                    ..plain.clone()
                },
                "runtime",
            ),
            (
                ServiceSpec {
                    storage: vec![Storage::Tmpfs {
                        target: "/t".into(),
                        size: None,
                    }],
                    ..plain.clone()
                },
                "storage",
            ),
            (
                ServiceSpec {
                    privileged: true,
                    ..plain.clone()
                },
                "privileged",
            ),
            (
                ServiceSpec {
                    hostname: Some("h".into()),
                    ..plain
                },
                "hostname",
            ),
        ];
        for (spec, expected) in cases {
            match check(&spec) {
                Err(Cause::Unsupported { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_host_without_groups_says_so() {
        let found = capabilities(&CgroupHost::none());
        assert!(found.available);
        assert_eq!(found.limits.cpu, Enforcement::Absent);
        assert!(
            found.notices[0].starts_with("limits are not enforced"),
            "{:?}",
            found.notices
        );
    }
}
