//! Configs and secrets as files: their names, where they are mounted, and what happens when they change.

use std::collections::BTreeMap;

use super::finding::{FieldPath, SpecFinding};
use super::health::signal_problem;
use super::limits::{CONFIG_BYTES_MAX, CONFIGS_MAX};
use super::names::{config_name_problem, secret_name_problem};
use super::storage::{RESERVED_TARGETS, plain};
use super::suggest::nearest;
use super::words::{path_problem, quoted};
use crate::spec::{
    ByteSize, ConfigSpec, DeploymentSpec, FileKind, FileMount, OnChange, Runtime, SECRETS_FOLDER, ServiceSpec,
};

/// Folders that no container does without: none of them is hidden behind files that change under it.
const FOLDERS_KEPT: [&str; 15] = [
    "/",
    "/bin",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/opt",
    "/root",
    "/run",
    "/sbin",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/sbin",
    "/var",
];

/// The longest name that file systems take.
const NAME_MAX_BYTES: usize = 255;

/// Names in a mounted folder that are Dhow's own: they begin so.
const OWN_NAMES: &str = "..";

pub(super) fn check_deployment(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    let at = FieldPath::of("configs");
    if deployment.configs.len() > CONFIGS_MAX {
        let message = format!(
            "a deployment has at most {CONFIGS_MAX} configs, this one has {}",
            deployment.configs.len()
        );
        findings.push(SpecFinding::at(at.clone(), message).hint("join some of them to one file"));
    }
    for (name, config) in &deployment.configs {
        let place = at.key(name.clone());
        if let Some((message, hint)) = config_name_problem(name) {
            findings.push(SpecFinding::at(place.clone(), message).hint(hint).on_key());
        }
        if matches!(config, ConfigSpec::ContentBase64(_)) && config.bytes().is_none() {
            let message = "this is not base64";
            let hint = "write what `base64 -w0 FILE` prints, or the text itself as `content`";
            findings.push(SpecFinding::at(place.key("content_base64"), message).hint(hint));
        }
    }
    let total = deployment.configs.values().map(ConfigSpec::size_bytes);
    let total = total.fold(0_u64, u64::saturating_add);
    if total > CONFIG_BYTES_MAX {
        let message = format!(
            "the configs of a deployment have at most {} together, these have {}",
            ByteSize(CONFIG_BYTES_MAX),
            ByteSize(total)
        );
        let hint = "keep what is larger in the image or in a volume";
        findings.push(SpecFinding::at(at, message).hint(hint));
    }
    for (name, spec) in &deployment.services {
        let at = FieldPath::of("services").key(name.to_string()).key("configs");
        check_sources(&at, &spec.configs, deployment, findings);
    }
}

fn check_sources(
    at: &FieldPath,
    mounts: &[FileMount],
    deployment: &DeploymentSpec,
    findings: &mut Vec<SpecFinding>,
) {
    for (position, mount) in mounts.iter().enumerate() {
        if deployment.configs.contains_key(&mount.source) || mount.source.is_empty() {
            continue;
        }
        let near = nearest(&mount.source, deployment.configs.keys().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "add it at the top of the file: `configs: {{ {}: {{ file: … }} }}`",
                mount.source.chars().take(40).collect::<String>()
            ),
        };
        let message = format!("the deployment has no config {}", quoted(&mount.source));
        findings.push(SpecFinding::at(at.index(position).key("source"), message).hint(hint));
    }
}

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    for (kind, mounts) in [
        (FileKind::Config, &spec.configs),
        (FileKind::Secret, &spec.secrets),
    ] {
        let list = at.key(field(kind));
        if mounts.len() > CONFIGS_MAX {
            let message = format!("a service mounts at most {CONFIGS_MAX} {}s", kind.word());
            findings.push(SpecFinding::at(list.clone(), message).hint("join some of them to one file"));
        }
        for (position, mount) in mounts.iter().enumerate() {
            check_mount(&list.index(position), kind, mount, spec, findings);
        }
    }
    check_places(at, spec, findings);
}

fn field(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Config => "configs",
        FileKind::Secret => "secrets",
    }
}

fn check_mount(
    at: &FieldPath,
    kind: FileKind,
    mount: &FileMount,
    spec: &ServiceSpec,
    findings: &mut Vec<SpecFinding>,
) {
    let problem = match kind {
        FileKind::Config => config_name_problem(&mount.source),
        FileKind::Secret => secret_name_problem(&mount.source),
    };
    if let Some((message, hint)) = problem {
        findings.push(SpecFinding::at(at.key("source"), message).hint(hint));
    }
    check_target(at, mount, spec.runtime(), findings);
    for (name, id) in [("uid", mount.uid), ("gid", mount.gid)] {
        if id == Some(u32::MAX) {
            let message = format!("{} is no id: the kernel reads it as none", u32::MAX);
            findings.push(SpecFinding::at(at.key(name), message).hint("such as `1000`"));
        }
    }
    match (mount.on_change, &mount.signal) {
        (OnChange::Signal, None) => findings.push(
            SpecFinding::at(at.key("on_change"), "`on_change: signal` needs to know which")
                .hint("write `signal: SIGHUP` beside it"),
        ),
        (OnChange::Signal, Some(signal)) => findings.extend(signal_problem(&at.key("signal"), signal)),
        (OnChange::Restart | OnChange::None, Some(_)) => findings.push(
            SpecFinding::at(at.key("signal"), "a signal is sent only with `on_change: signal`")
                .hint("write `on_change: signal`, or remove it"),
        ),
        (OnChange::Restart | OnChange::None, None) => {}
    }
    if spec.runs_to_completion() && mount.on_change != OnChange::Restart {
        findings.push(
            SpecFinding::at(
                at.key("on_change"),
                "work that ends by itself is not told of another content",
            )
            .because(at.key("rtype"))
            .hint("remove it: the next run has the new one"),
        );
    }
}

fn check_target(at: &FieldPath, mount: &FileMount, runtime: Runtime, findings: &mut Vec<SpecFinding>) {
    let Some(target) = &mount.target else { return };
    let at = at.key("target");
    let is_path = target.contains('/');
    if runtime == Runtime::Process && is_path {
        findings.push(
            SpecFinding::at(
                at,
                "a process sees the host's files as they are: its files stand in a folder of its own",
            )
            .hint("write a name without `/`; `DHOW_CONFIGS_DIR` and `DHOW_SECRETS_DIR` say where they are"),
        );
        return;
    }
    let whole = match target.starts_with('/') {
        true => target.clone(),
        false => format!("/{target}"),
    };
    if target.is_empty() || target.ends_with('/') || whole.ends_with("/.") {
        let hint = "name the file, such as `/etc/app/app.conf`";
        findings.push(SpecFinding::at(at, "the target is the path of a file").hint(hint));
    } else if let Some((message, hint)) = path_problem(&whole, "the target") {
        findings.push(SpecFinding::at(at, message).hint(hint));
    } else if target.chars().any(char::is_control) {
        findings.push(SpecFinding::at(at, "the target holds a control character").hint("remove it"));
    } else if whole.split('/').any(|part| part.len() > NAME_MAX_BYTES) {
        let message = format!("a name in a path has at most {NAME_MAX_BYTES} bytes");
        findings.push(SpecFinding::at(at, message).hint("shorten it"));
    } else if is_path && !target.starts_with('/') {
        let hint = "write the whole path, or a name alone for the usual folder";
        findings
            .push(SpecFinding::at(at, format!("{} is neither a path nor a name", quoted(target))).hint(hint));
    } else if RESERVED_TARGETS
        .iter()
        .any(|kept| *kept != "/" && plain(&whole).starts_with(&format!("{kept}/")))
        || RESERVED_TARGETS.contains(&plain(&whole).as_str())
    {
        let message = format!("nothing can be mounted at {}", quoted(target));
        findings.push(
            SpecFinding::at(at, message).hint("the kernel's own files are there: choose another place"),
        );
    } else if whole
        .rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with(OWN_NAMES))
    {
        let message = format!("the name of a file does not begin with `{OWN_NAMES}`");
        findings.push(SpecFinding::at(at, message).hint("such names stand for what a folder shows now"));
    }
}

/// Two files in one place, a file where storage is mounted, and folders that would hide what the image needs.
fn check_places(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let mut taken: BTreeMap<(Option<FileKind>, String), FieldPath> = BTreeMap::new();
    for (position, storage) in spec.storage.iter().enumerate() {
        let place = at.key("storage").index(position).key("target");
        taken.insert((None, plain(storage.target())), place);
    }
    let (mut configs, mut secrets) = (0, 0);
    let mut folders: BTreeMap<String, FieldPath> = BTreeMap::new();
    for file in spec.placed_files() {
        let count = match file.kind {
            FileKind::Config => &mut configs,
            FileKind::Secret => &mut secrets,
        };
        let place = at.key(field(file.kind)).index(*count);
        *count += 1;
        let key = match file.target() {
            Some(target) => (None, plain(&target)),
            None => (Some(file.kind), file.name.clone()),
        };
        if let Some(first) = taken.get(&key) {
            findings.push(
                SpecFinding::at(
                    place.key("target"),
                    format!("{} is mounted twice", quoted(&key.1)),
                )
                .also(first.clone(), "first here")
                .hint("give each its own target"),
            );
            continue;
        }
        taken.insert(key, place.clone());
        let Some(folder) = &file.folder else { continue };
        folders.entry(folder.clone()).or_insert_with(|| place.clone());
        let under_change = file.mount.on_change != OnChange::Restart && folder != SECRETS_FOLDER;
        if under_change && FOLDERS_KEPT.contains(&folder.as_str()) {
            findings.push(
                SpecFinding::at(
                    place.key("on_change"),
                    format!(
                        "a file that changes under a running container needs a folder that is mounted as a whole, and {} cannot be",
                        quoted(folder)
                    ),
                )
                .because(place.key("target"))
                .hint("give it a `target` in a folder of its own, such as `/etc/app/app.conf`; what the image has there is hidden"),
            );
        } else if spec.is_folder_mounted(folder)
            && let Some(storage) = taken.get(&(None, folder.clone()))
        {
            findings.push(
                SpecFinding::at(
                    place.key("target"),
                    format!("{} is mounted as a whole for its files", quoted(folder)),
                )
                .also(storage.clone(), "and here as storage")
                .hint("choose another folder for one of them"),
            );
        }
    }
    check_inside(spec, &folders, &taken, findings);
}

/// What is mounted below a folder that is mounted as a whole: nothing can be made in it for that to stand on.
fn check_inside(
    spec: &ServiceSpec,
    folders: &BTreeMap<String, FieldPath>,
    taken: &BTreeMap<(Option<FileKind>, String), FieldPath>,
    findings: &mut Vec<SpecFinding>,
) {
    for (folder, first) in folders
        .iter()
        .filter(|(folder, _)| spec.is_folder_mounted(folder))
    {
        let below = taken.iter().filter(|((_, target), _)| {
            let rest = target
                .strip_prefix(folder.as_str())
                .and_then(|rest| rest.strip_prefix('/'));
            let is_storage = || {
                spec.storage
                    .iter()
                    .any(|storage| plain(storage.target()) == *target)
            };
            rest.is_some_and(|rest| rest.contains('/') || is_storage())
        });
        for ((_, target), place) in below {
            findings.push(
                SpecFinding::at(
                    place.clone(),
                    format!(
                        "{} is inside {}, which is mounted as a whole and read-only",
                        quoted(target),
                        quoted(folder)
                    ),
                )
                .also(first.clone(), "for this file")
                .hint("choose a folder beside it for one of them"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(fields: &str) -> Vec<String> {
        let text = format!(r#"{{"image":"a:1",{fields}}}"#);
        let spec: ServiceSpec = serde_json::from_str(&text).unwrap();
        let mut findings = Vec::new();
        check(&FieldPath::of("web"), &spec, &mut findings);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn files_stand_where_a_container_can_have_them() {
        for fields in [
            r#""configs":[{"source":"a","target":"/etc/passwd"}]"#,
            r#""configs":[{"source":"a","target":"/etc/app/a","on_change":"none"},{"source":"b","target":"/etc/app/b"}]"#,
            r#""secrets":[{"source":"a"},{"source":"b","target":"/run/secrets/other"},{"source":"c","target":"c.pem"}]"#,
            r#""configs":[{"source":"a","target":"/data/a"}],"storage":[{"type":"named","name":"d","target":"/data"}]"#,
        ] {
            assert_eq!(found(fields), Vec::<String>::new(), "{fields}");
        }
    }

    #[test]
    fn targets_that_lead_elsewhere_or_hide_the_system_are_refused() {
        for (target, message) in [
            ("../x", "goes up with `..`"),
            ("/etc/../x", "goes up with `..`"),
            ("a/b", "is neither a path nor a name"),
            ("/", "the target is the path of a file"),
            ("/etc/app/", "the target is the path of a file"),
            (".", "the target is the path of a file"),
            ("/proc/1/comm", "nothing can be mounted at"),
            ("/sys/x", "nothing can be mounted at"),
            ("/dev/null", "nothing can be mounted at"),
            ("/etc/app/..data", "does not begin with `..`"),
            (r"/etc/a\u0000b", "control character"),
        ] {
            let fields = format!(r#""configs":[{{"source":"a","target":"{target}"}}]"#);
            let found = found(&fields);
            assert!(
                found.iter().any(|found| found.contains(message)),
                "{target}: {found:?}"
            );
        }
        for folder in FOLDERS_KEPT {
            let fields = format!(r#""configs":[{{"source":"a","target":"{folder}/a","on_change":"none"}}]"#);
            let found = found(&fields);
            assert!(
                found.iter().any(|found| found.contains("mounted as a whole")),
                "{folder}: {found:?}"
            );
        }
    }

    #[test]
    fn nothing_else_is_mounted_in_a_folder_of_files() {
        let app = r#""configs":[{"source":"a","target":"/etc/app/a","on_change":"none"}]"#;
        for more in [
            r#""storage":[{"type":"named","name":"d","target":"/etc/app/d"}]"#,
            r#""storage":[{"type":"named","name":"d","target":"/etc/app"}]"#,
            r#""secrets":[{"source":"s","target":"/etc/app/sub/s"}]"#,
        ] {
            let found = found(&format!("{app},{more}"));
            assert_eq!(found.len(), 1, "{more}: {found:?}");
        }
    }
}
