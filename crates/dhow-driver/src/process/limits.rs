//! Limits of a single process: `ulimits`, and memory where no group can hold it.

use std::collections::BTreeMap;

use dhow_core::spec::{Resources, Ulimit};
use nix::sys::resource::getrlimit;

use crate::cgroup::{CgroupHost, Controller};
use crate::driver::Cause;
use crate::shim::protocol::{Rlimit, RlimitKind};
use crate::shim::rlimit_resource;

/// The limits, and what had to be cut.
pub(crate) fn build(
    ulimits: &BTreeMap<String, Ulimit>,
    resources: &Resources,
    cgroups: &CgroupHost,
) -> Result<(Vec<Rlimit>, Vec<String>), Cause> {
    let (mut limits, mut notices) = (Vec::new(), Vec::new());
    let may_raise = has_sys_resource();
    for (name, ulimit) in ulimits {
        let Some(kind) = RlimitKind::from_name(name) else {
            return Err(Cause::Unsupported {
                field: "ulimits",
                why: format!("there is no limit named `{name}`"),
            });
        };
        let mut limit = Rlimit {
            kind,
            soft: ulimit.soft.min(ulimit.hard),
            hard: ulimit.hard,
        };
        let (_, most) = getrlimit(rlimit_resource(kind)).unwrap_or((u64::MAX, u64::MAX));
        if limit.hard > most && !may_raise {
            notices.push(format!(
                "ulimit {name} is cut from {} to {most}: this host allows no more",
                limit.hard
            ));
            limit = Rlimit {
                kind,
                soft: limit.soft.min(most),
                hard: most,
            };
        }
        limits.push(limit);
    }
    let has_data = limits.iter().any(|limit| limit.kind == RlimitKind::Data);
    if let Some(memory) = resources
        .memory
        .filter(|_| !cgroups.limits(Controller::Memory) && !has_data)
    {
        // The heap and private mappings of each process: what a memory limit is mostly about.
        limits.push(Rlimit {
            kind: RlimitKind::Data,
            soft: memory.0,
            hard: memory.0,
        });
    }
    Ok((limits, notices))
}

/// Whether this process may raise hard limits.
fn has_sys_resource() -> bool {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_SYS_RESOURCE != 0)
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::ByteSize;

    use super::*;

    #[test]
    fn unknown_names_are_refused_and_memory_falls_to_each_process() {
        let ulimits = BTreeMap::from([("nofile".to_owned(), Ulimit { soft: 64, hard: 64 })]);
        let resources = Resources {
            memory: Some(ByteSize(1 << 20)),
            ..Resources::default()
        };
        let (limits, notices) = build(&ulimits, &resources, &CgroupHost::none()).unwrap();
        let expected = [
            Rlimit {
                kind: RlimitKind::Nofile,
                soft: 64,
                hard: 64,
            },
            Rlimit {
                kind: RlimitKind::Data,
                soft: 1 << 20,
                hard: 1 << 20,
            },
        ];
        assert_eq!(limits, expected);
        assert!(notices.is_empty());
        let bad = BTreeMap::from([("files".to_owned(), Ulimit { soft: 1, hard: 1 })]);
        assert!(matches!(
            build(&bad, &Resources::default(), &CgroupHost::none()),
            Err(Cause::Unsupported { field: "ulimits", .. })
        ));
    }
}
