//! What peers of a static cluster write into requests beside the messages of the log: copies of entries, where a whole
//! copy ends, and who leaves.
//!
//! Copies are a line of JSON that says whose they are, then each entry's length and bytes. They are read strictly: a body
//! that is cut or too long is refused as a whole.

use axum::http::HeaderName;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::plane::log::copied::Copies;
use crate::plane::log::store::Entry;

/// The longest line of JSON.
const HEAD_BYTES_MAX: usize = 1024;

/// The header that says where a whole copy ends, with a [`PositionHead`], beside its bytes.
pub(crate) static POSITION: HeaderName = HeaderName::from_static("x-dhow-position");

/// The position that a whole state is of, in a header of the answer that carries it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PositionHead {
    pub epoch: u64,
    pub index: u64,
}

/// The body with which a peer says that it is about to end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Leaving {
    pub node: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    node: u64,
    epoch: u64,
    /// The index of the first entry.
    first: u64,
    count: u32,
}

/// Why a body with copies was refused.
#[derive(Debug, thiserror::Error)]
#[error("the copies cannot be read: {0}")]
pub(crate) struct BadFrame(&'static str);

pub(super) fn encode(copies: &Copies) -> Bytes {
    let head = Head {
        node: copies.node,
        epoch: copies.epoch,
        first: copies.entries.first().map_or(0, |entry| entry.index),
        count: u32::try_from(copies.entries.len()).unwrap_or(u32::MAX),
    };
    let size: usize = copies.entries.iter().map(|entry| entry.payload.len() + 4).sum();
    // Numbers can always be written.
    let head = serde_json::to_vec(&head).unwrap_or_default();
    let mut bytes = BytesMut::with_capacity(size + head.len() + 1);
    bytes.put_slice(&head);
    bytes.put_u8(b'\n');
    for entry in &copies.entries {
        // Payloads are at most 8 MiB.
        bytes.put_u32_le(entry.payload.len() as u32);
        bytes.put_slice(&entry.payload);
    }
    bytes.freeze()
}

pub(crate) fn decode(mut bytes: Bytes) -> Result<Copies, BadFrame> {
    let end = bytes.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n');
    let end = end.ok_or(BadFrame("they do not begin with a line of JSON"))?;
    let head = bytes.split_to(end);
    bytes.advance(1);
    let head: Head = serde_json::from_slice(&head).map_err(|_| BadFrame("the first line is no head"))?;
    let mut entries = Vec::new();
    for number in 0..u64::from(head.count) {
        if bytes.remaining() < 4 {
            return Err(BadFrame("an entry is missing"));
        }
        let length = bytes.get_u32_le() as usize;
        if bytes.remaining() < length {
            return Err(BadFrame("an entry is cut off"));
        }
        entries.push(Entry {
            index: head.first.saturating_add(number),
            term: head.epoch,
            payload: bytes.split_to(length),
        });
    }
    match bytes.is_empty() {
        true => Ok(Copies {
            node: head.node,
            epoch: head.epoch,
            entries,
        }),
        false => Err(BadFrame("there is something after the last entry")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(count: u64) -> Copies {
        let entries = (5..5 + count).map(|index| Entry {
            index,
            term: 9,
            payload: Bytes::from(vec![index as u8; index as usize]),
        });
        Copies {
            node: 2,
            epoch: 9,
            entries: entries.collect(),
        }
    }

    #[test]
    fn copies_read_back_and_cut_ones_are_refused() {
        for count in [0, 1, 3] {
            let sent = copies(count);
            let bytes = encode(&sent);
            assert_eq!(decode(bytes.clone()).unwrap(), sent);
            for cut in 0..bytes.len() {
                assert!(decode(bytes.slice(..cut)).is_err(), "{count} {cut}");
            }
            let longer = [bytes.as_ref(), b"x"].concat();
            assert!(decode(Bytes::from(longer)).is_err());
        }
    }
}
