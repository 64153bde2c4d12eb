//! Which user a process runs as.

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::driver::Cause;
use crate::shim::protocol::UserIds;

/// The user to switch to and its home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// None where the daemon is that user already.
    pub ids: Option<UserIds>,
    pub home: String,
}

/// Reads `name`, `uid`, `name:group` or `uid:gid`. Asks the host's user database: blocks.
pub(super) fn resolve(text: Option<&str>) -> Result<Resolved, Cause> {
    let Some(text) = text else {
        let own = User::from_uid(Uid::effective()).ok().flatten();
        return Ok(Resolved {
            ids: None,
            home: home_of(own.as_ref()),
        });
    };
    let (user_text, group_text) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let unknown = |name: &str| Cause::UnknownUser {
        name: name.to_owned(),
    };
    let entry = match user_text.parse::<u32>() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(user_text),
    };
    let entry = entry.map_err(|_| unknown(user_text))?;
    let uid = match (&entry, user_text.parse::<u32>()) {
        (Some(user), _) => user.uid.as_raw(),
        (None, Ok(uid)) => uid,
        (None, Err(_)) => return Err(unknown(user_text)),
    };
    let gid = match group_text {
        Some(group) => group_id(group).ok_or_else(|| unknown(group))?,
        // A number that the host does not know has no group either: group 0, as in Docker.
        None => entry.as_ref().map_or(0, |user| user.gid.as_raw()),
    };
    // The kernel reads it as "leave it as it is", and that is the daemon's own.
    if let Some(id) = [uid, gid].into_iter().find(|id| *id == u32::MAX) {
        return Err(unknown(&id.to_string()));
    }
    let home = home_of(entry.as_ref());
    if Uid::effective().as_raw() == uid && nix::unistd::getegid().as_raw() == gid {
        return Ok(Resolved { ids: None, home });
    }
    Ok(Resolved {
        ids: Some(UserIds {
            uid,
            gid,
            groups: groups_of(entry.as_ref(), gid),
        }),
        home,
    })
}

fn group_id(text: &str) -> Option<u32> {
    match text.parse::<u32>() {
        Ok(gid) => Some(gid),
        Err(_) => Group::from_name(text)
            .ok()
            .flatten()
            .map(|group| group.gid.as_raw()),
    }
}

fn groups_of(entry: Option<&User>, gid: u32) -> Vec<u32> {
    let name = entry.and_then(|user| std::ffi::CString::new(user.name.as_str()).ok());
    let listed = name.and_then(|name| getgrouplist(&name, Gid::from_raw(gid)).ok());
    match listed {
        Some(groups) => groups.into_iter().map(Gid::as_raw).collect(),
        None => vec![gid],
    }
}

fn home_of(entry: Option<&User>) -> String {
    let home = entry.map(|user| user.dir.display().to_string());
    home.filter(|home| !home.is_empty())
        .unwrap_or_else(|| "/".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_names_or_numbers_with_or_without_a_group() {
        let ids = resolve(Some("4321:8765")).unwrap().ids.unwrap();
        assert_eq!((ids.uid, ids.gid, ids.groups), (4321, 8765, vec![8765]));
        assert!(
            matches!(resolve(Some("no-such-user")), Err(Cause::UnknownUser { name }) if name == "no-such-user")
        );
        assert!(
            matches!(resolve(Some("0:no-such-group")), Err(Cause::UnknownUser { name }) if name == "no-such-group")
        );
        for nobody in ["4294967295", "4321:4294967295"] {
            assert!(
                matches!(resolve(Some(nobody)), Err(Cause::UnknownUser { name }) if name == "4294967295"),
                "{nobody}"
            );
        }
        assert_eq!(resolve(None).unwrap().ids, None);
    }
}
