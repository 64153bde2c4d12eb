//! Which of root's powers a container has: Docker's usual fourteen, with the spec's added and dropped, as
//! far as the daemon has them itself.

use dhow_core::spec::Capabilities;

/// By their numbers in the kernel.
const ALL: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

const USUAL: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// A set of them, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CapabilitySet(u64);

impl CapabilitySet {
    pub const EVERY: Self = Self(u64::MAX);

    /// What a container gets, and what it was to have that the daemon cannot give.
    pub fn of(wanted: &Capabilities, privileged: bool, own: Self) -> (Self, Vec<String>) {
        let mut set = if privileged {
            Self::every()
        } else {
            Self::named(&USUAL)
        };
        // Dropping everything and adding one is how people write "this one alone".
        for name in &wanted.drop {
            match plain(name).as_str() {
                "ALL" => set = Self(0),
                name => set.0 &= !Self::named(&[name]).0,
            }
        }
        let mut asked = Self(0);
        for name in &wanted.add {
            match plain(name).as_str() {
                "ALL" => asked = Self::every(),
                name => asked.0 |= Self::named(&[name]).0,
            }
        }
        let whole = Self(set.0 | asked.0);
        let missing = Self(asked.0 & !own.0).names();
        let notices = missing
            .into_iter()
            .map(|name| format!("capability {name} is left out: the daemon itself does not have it"));
        (Self(whole.0 & own.0), notices.collect())
    }

    fn every() -> Self {
        Self::named(&ALL)
    }

    fn named(names: &[&str]) -> Self {
        let bit = |name: &&str| ALL.iter().position(|known| known == name).map_or(0, |at| 1 << at);
        Self(names.iter().map(bit).fold(0, |all: u64, bit: u64| all | bit))
    }

    pub fn has(self, name: &str) -> bool {
        self.0 & Self::named(&[name]).0 != 0
    }

    /// With the prefix that runtimes want.
    pub fn names(self) -> Vec<String> {
        let names = ALL.iter().enumerate().filter(|(at, _)| self.0 & (1 << at) != 0);
        names.map(|(_, name)| format!("CAP_{name}")).collect()
    }

    /// What this process may hand on at most.
    pub fn own() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let text = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(text.trim(), 16).ok()
        };
        let bits = field("CapBnd:").zip(field("CapPrm:"));
        bits.map_or(Self::EVERY, |(bounding, permitted)| Self(bounding & permitted))
    }
}

fn plain(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    upper.strip_prefix("CAP_").map(str::to_owned).unwrap_or(upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(add: &[&str], drop: &[&str]) -> Capabilities {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Capabilities {
            add: list(add),
            drop: list(drop),
        }
    }

    #[test]
    fn added_and_dropped_ones_change_the_usual_set() {
        let names = |add: &[&str], drop: &[&str]| {
            CapabilitySet::of(&wanted(add, drop), false, CapabilitySet::EVERY)
                .0
                .names()
        };
        assert_eq!(names(&[], &[]).len(), USUAL.len());
        assert_eq!(names(&["cap_net_admin"], &["ALL"]), ["CAP_NET_ADMIN"]);
        assert_eq!(names(&["ALL"], &["ALL"]).len(), ALL.len());
        assert!(!names(&[], &["NET_RAW"]).contains(&"CAP_NET_RAW".to_owned()));
        let all = CapabilitySet::of(&wanted(&[], &[]), true, CapabilitySet::EVERY).0;
        assert_eq!(all.names().len(), ALL.len());
    }

    #[test]
    fn what_the_daemon_lacks_is_left_out_and_said_when_it_was_asked_for() {
        let own = CapabilitySet(CapabilitySet::EVERY.0 & !CapabilitySet::named(&["SYS_TIME", "MKNOD"]).0);
        let (set, notices) = CapabilitySet::of(&wanted(&["SYS_TIME"], &[]), false, own);
        assert_eq!(set.names().len(), USUAL.len() - 1);
        assert_eq!(notices.len(), 1);
        assert!(notices[0].contains("CAP_SYS_TIME"), "{notices:?}");
    }
}
