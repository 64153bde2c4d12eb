//! This node's own policy, asked before every start: the API that took a file may be another daemon's, with other
//! rules, and only here is it known who a user is and where a path leads.

use std::ffi::CString;
use std::path::Path;

use dhow_core::spec::policy::HostFacts;
use dhow_core::spec::{Policy, ServiceSpec};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// Why a replica must not be started on this node. Asks the user database and looks at files: blocks.
pub fn refusal(policy: &Policy, spec: &ServiceSpec) -> Option<String> {
    let found = policy.check(spec, &ThisHost);
    let first = found.first()?;
    Some(format!("{first}: {}", first.hint))
}

/// The group of a name or number; a name that the host does not know starts nothing.
fn group_id(text: &str) -> Option<Gid> {
    match text.parse::<u32>() {
        Ok(gid) => Some(Gid::from_raw(gid)),
        Err(_) => Group::from_name(text).ok().flatten().map(|group| group.gid),
    }
}

/// The groups that the user database has the user in.
fn groups_of(user: &User) -> Vec<Gid> {
    let name = CString::new(user.name.as_str()).ok();
    let listed = name.and_then(|name| getgrouplist(&name, user.gid).ok());
    listed.unwrap_or_else(|| vec![user.gid])
}

struct ThisHost;

impl HostFacts for ThisHost {
    fn is_root(&self, user: Option<&str>) -> bool {
        let Some(user) = user else {
            return Uid::effective().is_root();
        };
        let name = user.split(':').next().unwrap_or_default();
        let uid = match name.parse::<u32>() {
            Ok(uid) => Some(uid),
            Err(_) => User::from_name(name).ok().flatten().map(|user| user.uid.as_raw()),
        };
        // Nobody's name starts nothing.
        uid == Some(0)
    }

    fn foreign_group(&self, user: &str) -> Option<String> {
        let (name, group) = match user.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (user, None),
        };
        let entry = match name.parse::<u32>() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(name),
        };
        let entry = entry.ok().flatten();
        let gid = match (group, &entry) {
            (Some(group), _) => group_id(group)?,
            // The user's own.
            (None, Some(_)) => return None,
            // A number that the host does not know runs with root's group.
            (None, None) => Gid::from_raw(0),
        };
        let is_own = match &entry {
            Some(user) => groups_of(user).contains(&gid),
            None => gid.as_raw() != 0 && Group::from_gid(gid).ok().flatten().is_none(),
        };
        (!is_own).then(|| group.map_or_else(|| gid.to_string(), str::to_owned))
    }

    fn lies_in(&self, source: &str, folders: &[String]) -> bool {
        // What a link leads to is what would be bound. Something that is not there is not bound either.
        let Ok(source) = Path::new(source).canonicalize() else {
            return false;
        };
        folders
            .iter()
            .filter_map(|folder| Path::new(folder).canonicalize().ok())
            .any(|folder| source.starts_with(folder))
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::{CommandSpec, ImageSpec, Storage};

    use super::*;

    #[test]
    fn links_and_other_names_of_root_are_looked_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(path("allowed")).unwrap();
        std::fs::create_dir(path("secret")).unwrap();
        std::os::unix::fs::symlink(path("secret"), path("allowed/link")).unwrap();
        std::os::unix::fs::symlink(path("allowed"), path("also-allowed")).unwrap();
        let policy = Policy {
            host_binds: Some(vec![path("also-allowed")]),
            root_processes: false,
            ..Policy::default()
        };
        let binding = |source: String| ServiceSpec {
            image: Some(ImageSpec::named("nginx")),
            storage: vec![Storage::Bind {
                source,
                target: "/t".into(),
                read_only: true,
            }],
            ..ServiceSpec::default()
        };
        assert_eq!(refusal(&policy, &binding(path("allowed"))), None);
        for bad in ["allowed/link", "secret", "allowed/../secret", "allowed/none"] {
            let why = refusal(&policy, &binding(path(bad))).unwrap();
            assert!(why.contains("policy.host_binds"), "{bad}: {why}");
        }
        let process = |user: &str| ServiceSpec {
            command: Some(CommandSpec {
                args: Some(vec!["/bin/true".into()]),
                ..CommandSpec::default()
            }),
            user: Some(user.into()),
            ..ServiceSpec::default()
        };
        let root = User::from_uid(Uid::from_raw(0)).unwrap().unwrap().name;
        for user in ["0", "0:0", &root] {
            let why = refusal(&policy, &process(user)).unwrap();
            assert!(why.contains("policy.root_processes"), "{user}: {why}");
        }
        let own = User::from_uid(Uid::from_raw(65534)).unwrap().unwrap();
        for user in [
            "65534",
            &own.name,
            &format!("65534:{}", own.gid),
            "4000000:4000000",
        ] {
            assert_eq!(refusal(&policy, &process(user)), None, "{user}");
        }
        // Whoever has the group of the disks has the disks; a number without a group would have root's.
        let root_group = Group::from_gid(Gid::from_raw(0)).unwrap().unwrap().name;
        for user in [
            "65534:0",
            &format!("{}:{root_group}", own.name),
            "4000000",
            "4000000:0",
        ] {
            let why = refusal(&policy, &process(user)).unwrap();
            assert!(
                why.contains("policy.root_processes") && why.contains("group"),
                "{user}: {why}"
            );
        }
    }
}
