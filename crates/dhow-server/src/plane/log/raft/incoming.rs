//! A snapshot that comes from the leader in parts, until it is complete.

use std::io::Write;

use tokio::sync::Mutex;

use super::log_state::RaftLogState;
use super::snapshot_data::write_preamble;
use super::wire::{At, SnapshotPart};
use crate::plane::log::store::{SnapshotWriter, StoreError};

/// One snapshot at a time; a new one takes the place of one that was not finished.
#[derive(Debug, Default)]
pub struct Incoming {
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    from: u64,
    at: At,
    next_offset: u64,
    writer: SnapshotWriter,
}

/// What a part came to.
#[derive(Debug)]
pub enum Received {
    /// More is to come.
    Part,
    /// It was the last: the snapshot is complete, but not in force.
    Whole(Box<SnapshotWriter>),
    /// It does not follow the part before.
    OutOfPlace,
}

impl Incoming {
    /// Writes a part down.
    pub async fn take(
        &self,
        shared: &RaftLogState,
        from: u64,
        part: SnapshotPart,
    ) -> Result<Received, StoreError> {
        let mut current = self.current.lock().await;
        let begun = current.take();
        let known = match begun {
            _ if part.offset == 0 => None,
            Some(begun) if begun.from == from && begun.at == part.at && begun.next_offset == part.offset => {
                Some(begun)
            }
            Some(_) | None => return Ok(Received::OutOfPlace),
        };
        let next_offset = part.offset.saturating_add(part.bytes.0.len() as u64);
        let (at, is_last) = (part.at, part.is_last);
        let writer = shared
            .store
            .blocking(move |store| {
                let mut writer = match known {
                    Some(begun) => begun.writer,
                    None => {
                        let mut writer = store.snapshots().create(at.into())?;
                        let members = part.members.into_stored();
                        write_preamble(&mut writer, &members).map_err(unwritten)?;
                        writer
                    }
                };
                writer.write_all(&part.bytes.0).map_err(unwritten)?;
                Ok(writer)
            })
            .await?;
        if is_last {
            return Ok(Received::Whole(Box::new(writer)));
        }
        *current = Some(Current {
            from,
            at,
            next_offset,
            writer,
        });
        Ok(Received::Part)
    }

    /// Gives up the snapshot that has come in part.
    pub async fn clear(&self) {
        *self.current.lock().await = None;
    }
}

fn unwritten(error: std::io::Error) -> StoreError {
    StoreError::BadOptions {
        why: format!("the snapshot that comes from the leader cannot be written ({error})"),
    }
}
