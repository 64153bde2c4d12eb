//! Packs: many objects, compressed, some as the difference to others. What a pack says of its own sizes is not believed: it
//! is counted while it is unpacked.

use std::collections::BTreeMap;

use flate2::{Decompress, FlushDecompress, Status};

use super::delta::applied;
use super::object::{ID_BYTES, Kind, Object, ObjectId};
use crate::plane::remote_sets::error::RemoteError;
use crate::plane::remote_sets::limits::{OBJECTS_MAX, UNPACKED_BYTES_MAX};

const HEAD_BYTES: usize = 12;
/// How much is unpacked at a time, before it is counted.
const PIECE_BYTES: usize = 64 << 10;

/// The objects of some packs.
#[derive(Debug, Default)]
pub(super) struct Pack {
    objects: BTreeMap<ObjectId, Object>,
    unpacked_bytes: u64,
}

/// Where the base of a delta is.
#[derive(Clone, Copy)]
enum Base {
    At(usize),
    Named(ObjectId),
}

/// What stands in one place of a pack.
enum Entry {
    Whole(Object),
    Delta(Base, Vec<u8>),
}

fn malformed(what: &str) -> RemoteError {
    RemoteError::Malformed(format!("a pack with {what}"))
}

impl Pack {
    pub fn get(&self, id: &ObjectId) -> Option<&Object> {
        self.objects.get(id)
    }

    /// Unpacks another pack.
    pub fn add(&mut self, pack: &[u8]) -> Result<(), RemoteError> {
        let count = head(pack)?;
        let body = &pack[..pack.len() - ID_BYTES];
        let mut entries: BTreeMap<usize, Entry> = BTreeMap::new();
        let mut at = HEAD_BYTES;
        for _ in 0..count {
            let (entry, next) = self.entry(body, at)?;
            entries.insert(at, entry);
            at = next;
        }
        if at != body.len() {
            return Err(malformed("something behind its last object"));
        }
        self.join(entries)
    }

    /// Reads the object at a place, and says where the next one begins.
    fn entry(&mut self, pack: &[u8], at: usize) -> Result<(Entry, usize), RemoteError> {
        let cut = || malformed("an object that is cut off");
        let mut rest = pack.get(at..).ok_or_else(cut)?;
        let kind = kind_and_size(&mut rest).ok_or_else(cut)?;
        let base = match kind {
            6 => {
                let back = distance(&mut rest).ok_or_else(cut)?;
                let base = at.checked_sub(back).filter(|base| *base < at);
                Some(Base::At(
                    base.ok_or_else(|| malformed("a base before its beginning"))?,
                ))
            }
            7 => {
                let (id, after) = rest.split_at_checked(ID_BYTES).ok_or_else(cut)?;
                rest = after;
                ObjectId::from_bytes(id).map(Base::Named)
            }
            _ => None,
        };
        let (bytes, taken) = self.inflated(rest)?;
        let next = pack.len() - rest.len() + taken;
        let kind = match (kind, base) {
            (_, Some(base)) => return Ok((Entry::Delta(base, bytes), next)),
            (1, None) => Kind::Commit,
            (2, None) => Kind::Tree,
            (3, None) => Kind::Blob,
            (4, None) => Kind::Tag,
            _ => return Err(malformed("an object of no known kind")),
        };
        Ok((Entry::Whole(Object { kind, bytes }), next))
    }

    fn count(&mut self, bytes: usize) -> Result<(), RemoteError> {
        self.unpacked_bytes = self.unpacked_bytes.saturating_add(bytes as u64);
        match self.unpacked_bytes > UNPACKED_BYTES_MAX {
            true => Err(RemoteError::TooLarge {
                what: "the unpacked repository".into(),
                max: UNPACKED_BYTES_MAX,
            }),
            false => Ok(()),
        }
    }

    /// What a compressed piece holds, and how long it is.
    fn inflated(&mut self, from: &[u8]) -> Result<(Vec<u8>, usize), RemoteError> {
        let mut inflate = Decompress::new(true);
        let mut bytes = Vec::new();
        loop {
            let read = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
            let rest = from.get(read..).unwrap_or_default();
            let before = (inflate.total_in(), bytes.len());
            bytes.reserve(PIECE_BYTES.min(from.len().saturating_mul(4)).max(64));
            let status = inflate
                .decompress_vec(rest, &mut bytes, FlushDecompress::None)
                .map_err(|_| malformed("bytes that cannot be unpacked"))?;
            self.count(bytes.len() - before.1)?;
            match status {
                Status::StreamEnd => {
                    let taken = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
                    bytes.shrink_to_fit();
                    return Ok((bytes, taken));
                }
                Status::Ok | Status::BufError if (inflate.total_in(), bytes.len()) != before => {}
                Status::Ok | Status::BufError => return Err(malformed("an object that is cut off")),
            }
        }
    }

    /// Makes objects of deltas, until none is left whose base is known.
    fn join(&mut self, entries: BTreeMap<usize, Entry>) -> Result<(), RemoteError> {
        let mut ids: BTreeMap<usize, ObjectId> = BTreeMap::new();
        let mut open = Vec::new();
        for (at, entry) in entries {
            match entry {
                Entry::Whole(object) => {
                    ids.insert(at, self.keep(object));
                }
                Entry::Delta(base, delta) => open.push((at, base, delta)),
            }
        }
        // A base comes before its deltas nearly always, so that one round is enough; each further one has fewer left.
        while !open.is_empty() {
            let before = open.len();
            let mut left = Vec::new();
            for (at, base, delta) in open {
                let known = match base {
                    Base::At(place) => ids.get(&place).copied(),
                    Base::Named(id) => Some(id),
                };
                let Some(base_object) = known.and_then(|id| self.objects.get(&id)) else {
                    left.push((at, base, delta));
                    continue;
                };
                let kind = base_object.kind;
                let bytes = applied(&base_object.bytes, &delta, UNPACKED_BYTES_MAX)
                    .ok_or_else(|| malformed("a difference that does not fit its base"))?;
                self.count(bytes.len())?;
                ids.insert(at, self.keep(Object { kind, bytes }));
            }
            if left.len() == before {
                return Err(malformed("a difference to an object that is not there"));
            }
            open = left;
        }
        Ok(())
    }

    fn keep(&mut self, object: Object) -> ObjectId {
        let id = object.id();
        self.objects.insert(id, object);
        id
    }
}

/// How many objects a pack has, once it is seen to be whole.
fn head(pack: &[u8]) -> Result<u32, RemoteError> {
    let body = pack
        .len()
        .checked_sub(ID_BYTES)
        .filter(|body| *body >= HEAD_BYTES);
    let (body, sum) = pack.split_at(body.ok_or_else(|| malformed("no beginning or no end"))?);
    if ObjectId::from_bytes(sum) != Some(ObjectId::of(&[body])) {
        return Err(malformed(
            "another checksum than its own: it is half of one, or was changed",
        ));
    }
    let (Some(b"PACK"), Some([0, 0, 0, 2]), Some(count)) = (body.get(..4), body.get(4..8), body.get(8..12))
    else {
        return Err(malformed("an unknown beginning"));
    };
    let count = count.iter().fold(0, |count, byte| count << 8 | u32::from(*byte));
    match count > OBJECTS_MAX {
        true => Err(RemoteError::TooLarge {
            what: "the number of objects in the repository".into(),
            max: u64::from(OBJECTS_MAX),
        }),
        false => Ok(count),
    }
}

/// The kind of an object. Its size stands there as well; what counts is what it is unpacked to.
fn kind_and_size(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    let mut more = first & 0x80 != 0;
    while more {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        more = byte & 0x80 != 0;
    }
    Some(first >> 4 & 7)
}

/// How far back the base of a delta is: seven bits a byte, the highest first, each further byte counting from one.
fn distance(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for place in 0..9 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        let more = usize::from(place > 0);
        value = (value + more).checked_mul(if place > 0 { 128 } else { 1 })? | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;

    use super::*;

    fn with_sum(mut pack: Vec<u8>) -> Vec<u8> {
        let sum = ObjectId::of(&[&pack]);
        pack.extend_from_slice(&sum.0);
        pack
    }

    fn packed(count: u8, entries: &[u8]) -> Vec<u8> {
        let mut pack = b"PACK\0\0\0\x02\0\0\0".to_vec();
        pack.push(count);
        pack.extend_from_slice(entries);
        with_sum(pack)
    }

    fn deflated(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_small_pack_that_unpacks_to_much_is_refused() {
        // 16 MiB of zeros take some kilobytes.
        let large = deflated(&vec![0; 16 << 20]);
        let count = 1 + u8::try_from(UNPACKED_BYTES_MAX >> 24).unwrap();
        let mut entries = Vec::new();
        for _ in 0..count {
            // A blob that says to have no byte.
            entries.push(3 << 4);
            entries.extend_from_slice(&large);
        }
        let refused = Pack::default().add(&packed(count, &entries)).unwrap_err();
        assert!(matches!(refused, RemoteError::TooLarge { .. }), "{refused}");
    }

    #[test]
    fn half_a_pack_and_one_that_was_changed_are_refused() {
        let mut entries = vec![3 << 4];
        entries.extend_from_slice(&deflated(b"hello"));
        let whole = packed(1, &entries);
        let mut pack = Pack::default();
        pack.add(&whole).unwrap();
        let id = ObjectId::from_text("b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0").unwrap();
        assert_eq!(pack.get(&id).unwrap().bytes, b"hello");
        for end in 0..whole.len() {
            assert!(Pack::default().add(&whole[..end]).is_err(), "up to {end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(Pack::default().add(&changed).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn a_difference_to_nothing_or_to_itself_is_refused() {
        for head in [
            vec![7 << 4; 1]
                .into_iter()
                .chain([9; ID_BYTES])
                .collect::<Vec<u8>>(),
            vec![6 << 4, 0],
        ] {
            let mut entries = head;
            entries.extend_from_slice(&deflated(&[0, 0]));
            let refused = Pack::default().add(&packed(1, &entries)).unwrap_err();
            assert!(matches!(refused, RemoteError::Malformed(_)), "{refused}");
        }
    }

    proptest! {
        /// Whatever is in a pack, reading it ends without a panic; and a sum that fits makes it no better.
        #[test]
        fn any_bytes_are_read_to_an_end(count in 0..4u8, entries in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Pack::default().add(&packed(count, &entries));
            let _ = Pack::default().add(&entries);
        }

        #[test]
        fn any_difference_is_applied_or_refused(
            base in prop::collection::vec(any::<u8>(), 0..64),
            delta in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let made = applied(&base, &delta, 1_000);
            prop_assert!(made.is_none_or(|made| made.len() <= 1_000));
        }
    }
}
