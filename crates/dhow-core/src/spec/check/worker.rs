//! What a worker says of itself when it joins. It decides where replicas go, so that a name which means nothing, a label
//! that nobody could write elsewhere and an amount that no machine has are refused before anything is kept of them.

use std::sync::Arc;

use super::finding::FieldPath;
use super::limits::MEMORY_MAX_BYTES;
use super::placement::{known_name, os_hint};
use super::words::{label_finding, quoted};
use crate::spec::ByteSize;
use crate::state::NodeInfo;

/// Labels that begin with this are the cluster's own: they say what a server is for.
const OWN_LABELS: &str = "dhow.";

/// More cores than any machine has; the kernel knows at most 8,192.
const CORES_MAX: u64 = 65_536;

/// The longest name of an architecture; the longest that compilers know has 11.
const ARCH_MAX_BYTES: usize = 32;

/// So much of what is wrong is repeated.
const SHOWN_CHARS: usize = 64;

/// Why nobody may join as this, where that is so; names that others use for the same thing become ours.
pub fn check_worker(info: &mut NodeInfo) -> Result<(), String> {
    info.os = Arc::from(known_name(&info.os));
    info.arch = Arc::from(known_name(&info.arch));
    if let Some(hint) = os_hint(&info.os) {
        let os = quoted(&shortened(&info.os));
        return Err(format!(
            "`os`: {os} is not the name of an operating system here; {hint}"
        ));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if info.arch.is_empty() || info.arch.len() > ARCH_MAX_BYTES || !info.arch.bytes().all(is_plain) {
        let arch = quoted(&shortened(&info.arch));
        return Err(format!(
            "`arch`: {arch} is not the name of an architecture; write `x86_64` or `aarch64`"
        ));
    }
    let cores = info.capacity.cpu_milli / 1_000;
    if cores > CORES_MAX {
        return Err(format!(
            "{cores} cores are more than any machine has, at most {CORES_MAX} are allowed; 0 where the worker does not say"
        ));
    }
    if info.capacity.memory_bytes > MEMORY_MAX_BYTES {
        return Err(format!(
            "{} of memory are more than any machine has, at most {} are allowed; it is said in bytes, 0 where the worker \
             does not say",
            ByteSize(info.capacity.memory_bytes),
            ByteSize(MEMORY_MAX_BYTES)
        ));
    }
    info.labels
        .iter()
        .try_for_each(|(key, value)| check_worker_label(key, value))
}

/// Why no worker may carry this label, where that is so.
pub fn check_worker_label(key: &str, value: &str) -> Result<(), String> {
    if let Some(finding) = label_finding(&FieldPath::of("labels"), key, value) {
        let hint = finding.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        return Err(format!(
            "label {}: {}{hint}",
            quoted(&shortened(key)),
            finding.message
        ));
    }
    match key.to_ascii_lowercase().starts_with(OWN_LABELS) {
        false => Ok(()),
        true => Err(format!(
            "label {}: names that begin with `{OWN_LABELS}` are the cluster's own, and no worker brings one; `dhow node \
             label` sets them",
            quoted(key)
        )),
    }
}

/// So much of a text as a message has room for.
fn shortened(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(SHOWN_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::amount::Amount;
    use crate::state::NodeRole;

    fn info() -> NodeInfo {
        NodeInfo {
            role: NodeRole::Worker,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::default(),
            capacity: Amount {
                cpu_milli: 4_000,
                memory_bytes: 8 << 30,
            },
            runs_replicas: true,
            tries_settings: false,
            mounts_files: false,
            runs_steps: false,
            volumes: crate::spec::VolumeSupport::Named,
            mesh_addr: None,
        }
    }

    fn refused(change: impl FnOnce(&mut NodeInfo)) -> String {
        let mut info = info();
        change(&mut info);
        check_worker(&mut info).unwrap_err()
    }

    fn labelled(key: &str, value: &str) -> impl FnOnce(&mut NodeInfo) {
        let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        move |info| info.labels = Arc::new(labels)
    }

    #[test]
    fn what_no_machine_is_does_not_join() {
        assert!(refused(|info| info.os = "beos".into()).contains("`beos`"));
        assert!(refused(|info| info.os = "".into()).contains("`os`"));
        assert!(refused(|info| info.arch = "x86\n".into()).contains("`arch`"));
        assert!(refused(|info| info.arch = "".into()).contains("`arch`"));
        assert!(refused(|info| info.arch = "a".repeat(33).into()).contains("`arch`"));
        assert!(refused(|info| info.capacity.cpu_milli = u64::MAX).contains("cores"));
        assert!(refused(|info| info.capacity.memory_bytes = u64::MAX).contains("memory"));
    }

    #[test]
    fn labels_are_those_that_could_be_written_elsewhere_and_none_of_the_clusters_own() {
        assert!(refused(labelled("", "a")).contains("needs a name"));
        assert!(refused(labelled("a b", "a")).contains("holds no"));
        assert!(refused(labelled(&"k".repeat(254), "a")).contains("at most 253 bytes"));
        assert!(refused(labelled("k", &"v".repeat(4_097))).contains("at most 4096 bytes"));
        assert!(refused(labelled("k", "a\nb")).contains("holds no line break"));
        assert!(refused(labelled("k", "\x1b[2J")).contains("the value of a label holds no"));
        assert!(refused(labelled("dhow.replicas", "true")).contains("the cluster's own"));
        assert!(refused(labelled("DHOW.worker-addr", "x")).contains("the cluster's own"));
        let mut fine = info();
        labelled("team/zone", "a")(&mut fine);
        assert_eq!(check_worker(&mut fine), Ok(()));
    }

    #[test]
    fn other_names_for_the_same_become_ours_and_a_new_architecture_is_one() {
        let mut known = NodeInfo {
            os: "macos".into(),
            arch: "ARM64".into(),
            ..info()
        };
        assert_eq!(check_worker(&mut known), Ok(()));
        assert_eq!((&*known.os, &*known.arch), ("darwin", "aarch64"));
        known.arch = "riscv64".into();
        assert_eq!(check_worker(&mut known), Ok(()));
        known.capacity = Amount::ZERO;
        assert_eq!(check_worker(&mut known), Ok(()), "it does not say");
    }
}
