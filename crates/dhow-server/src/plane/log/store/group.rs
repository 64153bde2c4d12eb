//! Requests that go into one frame together.

use super::batch::{Ack, Done, Request};
use super::error::StoreError;
use super::record::{Checkpoint, Record};
use super::state::Bounds;

/// A frame in the making and the callers that wait for it. Requests are tried one after another against what
/// the log will be by then; one that is refused leaves no trace in the frame.
pub struct Group {
    bounds: Bounds,
    frame: u64,
    /// The records' bytes.
    pub records: Vec<u8>,
    /// Records in `records`.
    pub record_count: u32,
    /// The same records with their offsets, to be applied once they are durable.
    pub staged: Vec<(u32, Record)>,
    answers: Vec<(Done, Result<Ack, StoreError>)>,
}

impl Group {
    /// An empty group for this frame, in a buffer that is used again. The checkpoint comes first where the
    /// frame opens a segment.
    pub fn begin(bounds: Bounds, frame: u64, checkpoint: Option<Checkpoint>, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        let record_count = u32::from(checkpoint.is_some());
        if let Some(checkpoint) = checkpoint {
            Record::Checkpoint(checkpoint).encode(&mut buffer);
        }
        Group {
            bounds,
            frame,
            records: buffer,
            record_count,
            staged: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Tries a request and adds it, or notes its refusal.
    pub fn add(&mut self, request: Request) {
        let before = (
            self.bounds,
            self.records.len(),
            self.staged.len(),
            self.record_count,
        );
        let answer = self.try_ops(request.ops);
        if answer.is_err() {
            self.bounds = before.0;
            self.records.truncate(before.1);
            self.staged.truncate(before.2);
            self.record_count = before.3;
        }
        self.answers.push((request.done, answer));
    }

    fn try_ops(&mut self, ops: Vec<super::batch::Op>) -> Result<Ack, StoreError> {
        let mut first_entry = None;
        let before = self.bounds.next_index;
        for op in ops {
            let record = op.into_record(self.bounds.next_index);
            self.bounds.apply(&record)?;
            if let Record::Append(entry) = &record {
                first_entry.get_or_insert(entry.index);
            }
            let offset = self.records.len() as u32;
            record.encode(&mut self.records);
            self.record_count += 1;
            self.staged.push((offset, record));
        }
        let first_index = first_entry.unwrap_or(before);
        Ok(Ack {
            first_index,
            next_index: self.bounds.next_index,
            frame: self.frame,
        })
    }

    /// Tells every caller its outcome, in the order in which they came.
    pub fn answer(self) -> Vec<u8> {
        for (done, answer) in self.answers {
            done(answer);
        }
        self.records
    }

    /// Tells every caller that was accepted that the disk failed. Whether their records are on disk is not
    /// known until the store is opened again.
    pub fn fail(self, error: &StoreError) -> Vec<u8> {
        for (done, answer) in self.answers {
            done(answer.and_then(|_| Err(error.clone())));
        }
        self.records
    }
}
