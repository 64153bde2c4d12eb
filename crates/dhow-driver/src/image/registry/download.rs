//! Fetching a layer's blob: once for all who want it, resumed where the connection broke, and kept only if
//! the whole has the digest it should have.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};

use super::Repository;
use super::blob_writer::BlobWriter;
use super::pace::Pace;
use super::repository::{Failure, Request};
use crate::image::error::ImageError;
use crate::image::source::LayerRequest;
use crate::image::store::{DigestLock, LockKind, StoreError};
use crate::image::unpack::LayerInput;

/// Attempts for one blob, progress or not: a layer of 10 GiB over a line that breaks every 100 MiB needs 100.
const MAX_TOTAL_ATTEMPTS: u32 = 1_000;
const LAYER: &str = "a layer";

/// A layer that has arrived. Its lock goes along: nobody changes the file while it is read.
struct Transferred {
    file: File,
    _lock: Arc<DigestLock>,
}

impl Read for Transferred {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Repository {
    /// Fetches until the blob is whole and right. Its file stays where it is until the layer is unpacked.
    pub(super) async fn download(&self, request: LayerRequest) -> Result<LayerInput, ImageError> {
        let store_error = |error: StoreError| self.subject.store(error);
        let digest = request.descriptor.digest;
        let lock = request.store.locks.acquire(LockKind::Blob, &digest).await;
        let lock = Arc::new(lock.map_err(store_error)?);
        let mut clean_attempt_made = false;
        loop {
            let partial = request.store.partial_path(&digest);
            let writer = BlobWriter::open(partial, Arc::clone(&lock), request.work.clone()).await;
            let writer = writer.map_err(store_error)?;
            request.progress.add_bytes(writer.size_bytes());
            let (writer, resumed) = self.transfer(writer, &request).await?;
            let (file, found) = writer.finish().await.map_err(store_error)?;
            if found == digest {
                return Ok(Box::new(Transferred { file, _lock: lock }));
            }
            // The part that was resumed may have been damaged on disk: the layer gets one clean attempt.
            request.store.remove_partial(&digest).map_err(store_error)?;
            if !resumed || clean_attempt_made {
                return Err(self.subject.wrong_digest(LAYER, digest, found));
            }
            clean_attempt_made = true;
            request.progress.take_back_bytes(request.descriptor.size);
        }
    }

    /// Fetches until the file has its size; also says whether any part of it was resumed.
    async fn transfer(
        &self,
        mut writer: BlobWriter,
        request: &LayerRequest,
    ) -> Result<(BlobWriter, bool), ImageError> {
        let size_bytes = request.descriptor.size;
        if writer.size_bytes() > size_bytes {
            writer = self.restart(writer, request).await?;
        }
        let mut resumed = writer.size_bytes() > 0;
        let (mut failed_attempts, mut attempts) = (0, 0);
        while writer.size_bytes() < size_bytes {
            let before = writer.size_bytes();
            let failure;
            (writer, failure) = self.attempt(writer, request).await?;
            let Some(failure) = failure else { continue };
            attempts += 1;
            failed_attempts = if writer.size_bytes() > before {
                1
            } else {
                failed_attempts + 1
            };
            if attempts >= MAX_TOTAL_ATTEMPTS {
                failed_attempts = u32::MAX;
            }
            if is_bad_range(&failure) {
                writer = self.restart(writer, request).await?;
            }
            self.wait_or_give_up(failure, failed_attempts).await?;
            resumed |= writer.size_bytes() > 0;
        }
        Ok((writer, resumed))
    }

    /// One request for what is missing.
    async fn attempt(
        &self,
        mut writer: BlobWriter,
        request: &LayerRequest,
    ) -> Result<(BlobWriter, Option<Failure>), ImageError> {
        let from_bytes = writer.size_bytes();
        let asked = Request::blob(&request.descriptor.digest, from_bytes);
        let mut answer = match self.send_once(&asked).await {
            Ok(answer) => answer,
            Err(failure) => return Ok((writer, Some(failure))),
        };
        match range_of(&answer, from_bytes) {
            Range::AsAsked => {}
            Range::Whole => writer = self.restart(writer, request).await?,
            Range::Other => {
                return Err(self
                    .subject
                    .bad_answer("it sent another part of a layer than asked"));
            }
        }
        let size_bytes = request.descriptor.size;
        let mut received_bytes = writer.size_bytes();
        let pipe = writer.start();
        let mut pace = Pace::default();
        let failure = loop {
            let asked = Instant::now();
            match answer.chunk().await {
                Ok(Some(chunk)) => {
                    if pace.is_too_slow(asked.elapsed(), chunk.len() as u64) {
                        break Some(Failure::Final(self.subject.bad_answer(Pace::TOO_SLOW)));
                    }
                    received_bytes += chunk.len() as u64;
                    if received_bytes > size_bytes {
                        let error = self.subject.wrong_size(LAYER, size_bytes, received_bytes);
                        break Some(Failure::Final(error));
                    }
                    request.progress.add_bytes(chunk.len() as u64);
                    if !pipe.send(chunk).await {
                        break None;
                    }
                }
                Ok(None) if received_bytes < size_bytes => {
                    let error = self.subject.wrong_size(LAYER, size_bytes, received_bytes);
                    break Some(Failure::Passing {
                        error: Box::new(error),
                        asked_wait: None,
                    });
                }
                Ok(None) => break None,
                Err(error) => break Some(self.transport_failure(error)),
            }
        };
        let writer = pipe.finish().await.map_err(|error| self.subject.store(error))?;
        Ok((writer, failure))
    }

    async fn restart(&self, writer: BlobWriter, request: &LayerRequest) -> Result<BlobWriter, ImageError> {
        request.progress.take_back_bytes(writer.size_bytes());
        writer
            .restarted()
            .await
            .map_err(|error| self.subject.store(error))
    }
}

/// Which part of a blob an answer carries.
enum Range {
    AsAsked,
    Whole,
    Other,
}

fn range_of(answer: &Response, from_bytes: u64) -> Range {
    if answer.status() != StatusCode::PARTIAL_CONTENT {
        return if from_bytes == 0 {
            Range::AsAsked
        } else {
            Range::Whole
        };
    }
    let range = answer
        .headers()
        .get(CONTENT_RANGE)
        .and_then(|value| value.to_str().ok());
    let first = range.and_then(|range| range.strip_prefix("bytes ")?.split_once('-'));
    match first.and_then(|(first, _)| first.parse::<u64>().ok()) {
        Some(first) if from_bytes == first => Range::AsAsked,
        Some(_) | None => Range::Other,
    }
}

/// The registry has less than was already received: that cannot be the right blob.
fn is_bad_range(failure: &Failure) -> bool {
    let status = StatusCode::RANGE_NOT_SATISFIABLE.as_u16();
    match failure {
        Failure::Passing { error, .. } => {
            matches!(**error, ImageError::RegistryFailed { status: found, .. } if found == status)
        }
        Failure::Final(_) => false,
    }
}
