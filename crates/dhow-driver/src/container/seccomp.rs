//! Which system calls a container may make. What programs need is allowed; what reaches past the container
//! is refused with EPERM; a call that this list does not know is answered with ENOSYS, so that programs fall
//! back to an older one.

mod calls;

use super::capabilities::CapabilitySet;
use super::oci::{Seccomp, SyscallArg, SyscallRule};

const ALLOW: &str = "SCMP_ACT_ALLOW";
const REFUSE: &str = "SCMP_ACT_ERRNO";
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURES: &[&str] = &[];

/// Flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// Sockets to the hypervisor: no namespace holds them.
const AF_VSOCK: u64 = 40;
/// Execution domains that only change what a program sees of the system: Linux, 32 bit of it, the same
/// without random addresses, and the question which one it is.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The profile for a container with these capabilities.
pub(super) fn profile(capabilities: CapabilitySet) -> Seccomp {
    let mut allowed: Vec<&'static str> = [
        calls::FILES,
        calls::MEMORY,
        calls::PROCESSES,
        calls::WAITING,
        calls::SOCKETS,
    ]
    .into_iter()
    .flat_map(str::split_ascii_whitespace)
    .collect();
    let mut refused: Vec<&'static str> = calls::NEVER.split_ascii_whitespace().collect();
    for (capability, names) in calls::BEHIND {
        let list = if capabilities.has(capability) {
            &mut allowed
        } else {
            &mut refused
        };
        list.extend(names.split_ascii_whitespace());
    }
    for list in [&mut allowed, &mut refused] {
        list.sort_unstable();
        list.dedup();
    }
    refused.retain(|call| allowed.binary_search(call).is_err());
    let mut syscalls = vec![
        rule(allowed, ALLOW, None, Vec::new()),
        rule(refused, REFUSE, Some(EPERM), Vec::new()),
        rule(
            vec!["socket"],
            ALLOW,
            None,
            vec![arg(0, AF_VSOCK, 0, "SCMP_CMP_NE")],
        ),
    ];
    let personalities = PERSONALITIES.into_iter();
    syscalls.extend(personalities.map(|value| {
        rule(
            vec!["personality"],
            ALLOW,
            None,
            vec![arg(0, value, 0, "SCMP_CMP_EQ")],
        )
    }));
    if capabilities.has("SYS_ADMIN") {
        syscalls.push(rule(vec!["clone", "clone3"], ALLOW, None, Vec::new()));
    } else {
        // The flags of the newer call lie in memory, where no filter sees them: programs fall back.
        syscalls.push(rule(vec!["clone3"], REFUSE, Some(ENOSYS), Vec::new()));
        let no_namespaces = vec![arg(0, NAMESPACE_FLAGS, 0, "SCMP_CMP_MASKED_EQ")];
        syscalls.push(rule(vec!["clone"], ALLOW, None, no_namespaces));
    }
    Seccomp {
        default_action: REFUSE,
        default_errno_ret: ENOSYS,
        architectures: ARCHITECTURES,
        syscalls,
    }
}

fn rule(
    names: Vec<&'static str>,
    action: &'static str,
    errno_ret: Option<u32>,
    args: Vec<SyscallArg>,
) -> SyscallRule {
    SyscallRule {
        names,
        action,
        errno_ret,
        args,
    }
}

fn arg(index: u32, value: u64, value_two: u64, op: &'static str) -> SyscallArg {
    SyscallArg {
        index,
        value,
        value_two,
        op,
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::Capabilities;

    use super::*;

    fn action(profile: &Seccomp, call: &str) -> Option<&'static str> {
        let rules = profile.syscalls.iter().filter(|rule| rule.args.is_empty());
        let found: Vec<_> = rules
            .filter(|rule| rule.names.contains(&call))
            .map(|rule| rule.action)
            .collect();
        assert!(found.len() <= 1, "{call} is in several rules");
        found.first().copied()
    }

    #[test]
    fn capabilities_open_their_calls_and_nothing_is_both() {
        let set = |add: &[&str]| {
            let add = add.iter().map(|name| (*name).to_owned()).collect();
            let wanted = Capabilities {
                add,
                drop: Vec::new(),
            };
            CapabilitySet::of(&wanted, false, CapabilitySet::EVERY).0
        };
        let usual = profile(set(&[]));
        for (call, expected) in [
            ("read", ALLOW),
            ("mount", REFUSE),
            ("bpf", REFUSE),
            ("clone3", REFUSE),
        ] {
            assert_eq!(action(&usual, call), Some(expected), "{call}");
        }
        assert_eq!(action(&usual, "a_call_of_tomorrow"), None);
        let admin = profile(set(&["SYS_ADMIN"]));
        for call in ["mount", "bpf", "clone3", "unshare"] {
            assert_eq!(action(&admin, call), Some(ALLOW), "{call}");
        }
        assert_eq!(action(&profile(set(&["BPF"])), "bpf"), Some(ALLOW));
    }
}
