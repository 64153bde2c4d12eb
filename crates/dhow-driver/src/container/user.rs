//! Who a container runs as: names are the image's own, not the host's.

use std::io;

use crate::driver::Cause;

use super::oci::User;
use super::root_view::RootView;

/// The user and its home folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub user: User,
    pub home: String,
}

/// Nobody's: the kernel reads it as "leave it as it is", and that is root.
const NO_ID: u32 = u32::MAX;

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// Reads `name`, `uid`, `name:group` or `uid:gid`; empty means root.
pub(super) fn resolve(text: &str, root: &RootView) -> Result<Resolved, Cause> {
    let read = |path: &'static str| {
        root.text(path)
            .map_err(|error: io::Error| Cause::file("reading the image's", path)(error))
    };
    resolve_in(text, &read("/etc/passwd")?, &read("/etc/group")?)
}

fn resolve_in(text: &str, passwd: &str, group: &str) -> Result<Resolved, Cause> {
    let text = if text.is_empty() { "0" } else { text };
    let (user_text, group_text) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (text, None),
    };
    let unknown = |name: &str| Cause::UnknownImageUser {
        name: name.to_owned(),
    };
    let number = user_text.parse::<u32>().ok();
    let entry = passwd.lines().filter_map(entry).find(|entry| match number {
        Some(uid) => entry.uid == uid,
        None => entry.name == user_text,
    });
    let uid = entry
        .as_ref()
        .map(|entry| entry.uid)
        .or(number)
        .ok_or_else(|| unknown(user_text))?;
    let gid = match group_text {
        Some(text) => group_id(text, group).ok_or_else(|| unknown(text))?,
        None => entry.as_ref().map_or(0, |entry| entry.gid),
    };
    // A group that was named is the only one; else all that the user is a member of.
    let additional_gids = match (&entry, group_text) {
        (Some(entry), None) => member_of(entry.name, gid, group),
        (Some(_) | None, _) => Vec::new(),
    };
    if let Some(id) = [uid, gid].into_iter().find(|id| *id == NO_ID) {
        return Err(unknown(&id.to_string()));
    }
    let home = entry.map_or("/", |entry| entry.home);
    Ok(Resolved {
        user: User {
            uid,
            gid,
            additional_gids,
        },
        home: if home.is_empty() { "/" } else { home }.to_owned(),
    })
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let fields: Vec<&str> = line.split(':').collect();
    match fields.as_slice() {
        [name, _, uid, gid, _, home, ..] => Some(Entry {
            name,
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            home,
        }),
        _ => None,
    }
}

fn group_id(text: &str, group: &str) -> Option<u32> {
    if let Ok(gid) = text.parse() {
        return Some(gid);
    }
    let mut lines = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines
        .find(|fields| fields.first() == Some(&text))?
        .get(2)?
        .parse()
        .ok()
}

fn member_of(name: &str, gid: u32, group: &str) -> Vec<u32> {
    let lines = group.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_member = fields.get(3)?.split(',').any(|member| member == name);
        fields
            .get(2)?
            .parse::<u32>()
            .ok()
            .filter(|found| is_member && *found != gid)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1001:w:/srv:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nweb:x:1001:\nlogs:x:7:root,web\n";

    #[test]
    fn names_are_the_images_own_and_numbers_need_no_entry() {
        let resolve = |text: &str| resolve_in(text, PASSWD, GROUP);
        let of = |uid, gid, groups: &[u32], home: &str| Resolved {
            user: User {
                uid,
                gid,
                additional_gids: groups.to_vec(),
            },
            home: home.into(),
        };
        assert_eq!(resolve("").unwrap(), of(0, 0, &[7], "/root"));
        assert_eq!(resolve("web").unwrap(), of(1000, 1001, &[7], "/srv"));
        assert_eq!(resolve("1000").unwrap(), of(1000, 1001, &[7], "/srv"));
        assert_eq!(resolve("web:logs").unwrap(), of(1000, 7, &[], "/srv"));
        assert_eq!(resolve("4242").unwrap(), of(4242, 0, &[], "/"));
        assert_eq!(resolve("4242:4343").unwrap(), of(4242, 4343, &[], "/"));
        // Whoever becomes this number stays root.
        for nobody in ["4294967295", "web:4294967295"] {
            assert!(resolve(nobody).is_err(), "{nobody}");
        }
        let odd = "app:x:4294967295:4294967295::/:/bin/sh\n";
        assert!(resolve_in("app", odd, "").is_err());
        for bad in ["nobody-here", "web:nobody-here"] {
            assert!(
                matches!(resolve(bad), Err(Cause::UnknownImageUser { name }) if name == "nobody-here"),
                "{bad}"
            );
        }
    }
}
