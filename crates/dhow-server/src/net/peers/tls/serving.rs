//! One connection of a member: its questions, and the answers as they come.

use std::io;
use std::sync::Arc;

use dhow_wire::ByteStream;
use tokio::io::BufReader;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use super::connection::write;
use super::contacts::Contacts;
use super::frame::{self, Numbered};
use super::limits::{ANSWERING_MAX, QUEUE_MAX, READ_BUFFER_BYTES};
use crate::net::peers::{FRAME_BYTES_MAX, PeerHandler};

/// Until the connection ends. An error is something that no member sends.
pub(super) async fn serve(
    stream: Box<dyn ByteStream>,
    from: u64,
    handler: Arc<dyn PeerHandler>,
    contacts: Arc<Contacts>,
    tasks: &TaskTracker,
) -> Result<(), String> {
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
    let (answers, frames) = mpsc::channel(QUEUE_MAX);
    let questions = async {
        let room = Arc::new(Semaphore::new(ANSWERING_MAX));
        loop {
            let question = frame::read_numbered(&mut reader).await?;
            contacts.heard(from);
            contacts.was_asked(from);
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                return Ok(());
            };
            let (handler, answers) = (Arc::clone(&handler), answers.clone());
            // An answer that has begun is finished even where nobody waits for it: it may be in the middle of a
            // change.
            tasks.spawn(async move {
                let _place = place;
                let body = handler.answer(from, question.body).await;
                if body.len() > FRAME_BYTES_MAX {
                    tracing::error!(
                        size_bytes = body.len(),
                        "an answer is larger than any may be; this is a bug"
                    );
                    return;
                }
                let id = question.id;
                // Where the connection has ended, nobody waits.
                let _ = answers.send(Numbered { id, body }).await;
            });
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = questions => ended,
        error = write(writer, frames) => Err(error),
    };
    match ended {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
        Ok(()) | Err(_) => Ok(()),
    }
}
