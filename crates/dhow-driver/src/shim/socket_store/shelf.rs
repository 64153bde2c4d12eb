//! What a socket store holds: sockets by their names, each with the connection that owns it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::protocol::{NAME_MAX_BYTES, NAMES_MAX, SOCKETS_MAX};

/// One connection of a store, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId(pub u64);

struct Kept {
    socket: OwnedFd,
    owner: OwnerId,
}

/// The sockets that a store holds.
#[derive(Default)]
pub struct Shelf {
    kept: BTreeMap<String, Kept>,
}

impl Shelf {
    /// Takes sockets on behalf of an owner: all of them, or none with the reason. One that was there under the same name
    /// is closed, which ends nothing where it is the same socket.
    pub fn keep(&mut self, owner: OwnerId, names: Vec<String>, sockets: Vec<OwnedFd>) -> Result<(), String> {
        if names.len() != sockets.len() {
            let (names, sockets) = (names.len(), sockets.len());
            return Err(format!("{names} names came with {sockets} sockets"));
        }
        if let Some(name) = names
            .iter()
            .find(|name| name.is_empty() || name.len() > NAME_MAX_BYTES)
        {
            let bytes = name.len();
            return Err(format!(
                "a name of {bytes} bytes: 1 to {NAME_MAX_BYTES} are possible"
            ));
        }
        let new = names.iter().filter(|name| !self.kept.contains_key(*name));
        if self.kept.len() + new.count() > SOCKETS_MAX {
            return Err(format!("more than {SOCKETS_MAX} sockets"));
        }
        for (name, socket) in names.into_iter().zip(sockets) {
            self.kept.insert(name, Kept { socket, owner });
        }
        Ok(())
    }

    /// Closes sockets, where it may be done on behalf of their owner.
    pub fn let_go(&mut self, names: &[String], may: impl Fn(OwnerId) -> bool) {
        for name in names {
            if self.kept.get(name).is_some_and(|kept| may(kept.owner)) {
                self.kept.remove(name);
            }
        }
    }

    /// The sockets behind a name, and whether there are more behind these.
    pub fn page(&self, after: Option<&str>) -> (Vec<String>, Vec<BorrowedFd<'_>>, bool) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.kept.range::<str, _>((from, Bound::Unbounded));
        let page: Vec<_> = behind.by_ref().take(NAMES_MAX).collect();
        let names = page.iter().map(|(name, _)| (*name).clone()).collect();
        let sockets = page.iter().map(|(_, kept)| kept.socket.as_fd()).collect();
        (names, sockets, behind.next().is_some())
    }

    /// Whether one of these owns something.
    pub fn is_owned(&self, mut by: impl FnMut(OwnerId) -> bool) -> bool {
        self.kept.values().any(|kept| by(kept.owner))
    }

    pub fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const FIRST: OwnerId = OwnerId(1);
    const SECOND: OwnerId = OwnerId(2);

    fn socket() -> (OwnedFd, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        (listener.into(), addr)
    }

    fn names(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn only_the_owner_lets_go_unless_it_has_gone() {
        let mut shelf = Shelf::default();
        let (held, addr) = socket();
        shelf.keep(FIRST, names(&["a"]), vec![held]).unwrap();
        shelf.let_go(&names(&["a", "unknown"]), |owner| owner == SECOND);
        assert!(TcpListener::bind(addr).is_err(), "it is still held");
        shelf.let_go(&names(&["a"]), |owner| owner == FIRST);
        assert!(shelf.kept.is_empty());
        TcpListener::bind(addr).unwrap();
    }

    #[test]
    fn who_keeps_last_owns() {
        let mut shelf = Shelf::default();
        shelf
            .keep(FIRST, names(&["a", "b"]), vec![socket().0, socket().0])
            .unwrap();
        shelf.keep(SECOND, names(&["a"]), vec![socket().0]).unwrap();
        shelf.let_go(&names(&["a", "b"]), |owner| owner == FIRST);
        assert_eq!(shelf.page(None).0, names(&["a"]));
        assert!(shelf.is_owned(|owner| owner == SECOND));
        assert!(!shelf.is_owned(|owner| owner == FIRST));
    }

    #[test]
    fn pages_are_bounded_and_complete() {
        let mut shelf = Shelf::default();
        for number in 0..NAMES_MAX + 3 {
            shelf
                .keep(FIRST, vec![format!("{number:03}")], vec![socket().0])
                .unwrap();
        }
        let (first, sockets, has_more) = shelf.page(None);
        assert_eq!(
            (first.len(), sockets.len(), has_more),
            (NAMES_MAX, NAMES_MAX, true)
        );
        let (rest, _, has_more) = shelf.page(first.last().map(String::as_str));
        assert_eq!((rest.len(), has_more), (3, false));
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        let mut shelf = Shelf::default();
        assert!(shelf.keep(FIRST, names(&["a", "b"]), vec![socket().0]).is_err());
        assert!(shelf.keep(FIRST, names(&[""]), vec![socket().0]).is_err());
        let long = "n".repeat(NAME_MAX_BYTES + 1);
        assert!(
            shelf
                .keep(FIRST, vec!["good".into(), long], vec![socket().0, socket().0])
                .is_err()
        );
        assert!(shelf.kept.is_empty());
    }
}
