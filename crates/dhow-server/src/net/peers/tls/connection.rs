//! One connection to a peer: many questions at once, each with its number.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use dhow_wire::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::contacts::Contacts;
use super::frame::{self, Numbered};
use super::limits::{PENDING_MAX, QUEUE_MAX, READ_BUFFER_BYTES, SILENCE_MAX, WRITE_BUFFER_BYTES};

/// One open connection to another server, on which questions and answers carry numbers. Dropping the last reference
/// ends it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Of the process at the other end.
    pub incarnation: u64,
    queue: mpsc::Sender<Numbered>,
    shared: Arc<ConnectionState>,
}

/// Why a question of a connection has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// It was not sent.
    NotSent(String),
    Broken(String),
}

/// What the callers of a connection and the task that reads from it share.
#[derive(Debug)]
struct ConnectionState {
    waiting: Mutex<Waiting>,
    end: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    next_id: u64,
    answers: BTreeMap<u64, oneshot::Sender<Bytes>>,
    /// Since when a question is open and not a byte has come.
    silent_since: Option<Instant>,
    /// Why the connection is over.
    over: Option<String>,
}

impl ConnectionState {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection. Each caller that waits for an answer sees the end of its channel.
    fn finish(&self, why: String) {
        let mut waiting = self.lock();
        waiting.over.get_or_insert(why);
        waiting.answers.clear();
        drop(waiting);
        self.end.cancel();
    }

    fn why_over(&self) -> Option<String> {
        self.lock().over.clone()
    }
}

impl Connection {
    /// Starts on a stream whose other end is known. `end` ends it from outside.
    pub fn start(
        stream: Box<dyn ByteStream>,
        node: u64,
        incarnation: u64,
        contacts: Arc<Contacts>,
        end: &CancellationToken,
    ) -> Self {
        let (queue, frames) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(ConnectionState {
            waiting: Mutex::default(),
            end: end.child_token(),
        });
        tokio::spawn(run(stream, node, frames, Arc::clone(&shared), contacts));
        Self {
            incarnation,
            queue,
            shared,
        }
    }

    pub fn is_over(&self) -> bool {
        self.shared.lock().over.is_some() || self.shared.end.is_cancelled()
    }

    pub fn drop_it(&self, why: &str) {
        self.shared.finish(why.to_owned());
    }

    /// After a question that was not answered in time: ends the connection where nothing else was heard either.
    pub fn judge_silence(&self) {
        let silent_since = self.shared.lock().silent_since;
        if silent_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX) {
            self.drop_it("nothing was heard on it");
        }
    }

    pub async fn ask(&self, question: Bytes) -> Result<Bytes, Unanswered> {
        let (answer, answered) = oneshot::channel();
        let asked = self.enter(answer)?;
        let frame = Numbered {
            id: asked.id,
            body: question,
        };
        if self.queue.send(frame).await.is_err() {
            return Err(Unanswered::NotSent(self.why_over()));
        }
        answered.await.map_err(|_| Unanswered::Broken(self.why_over()))
    }

    fn why_over(&self) -> String {
        let why = self.shared.why_over();
        why.unwrap_or_else(|| "this server is shutting down".into())
    }

    fn enter(&self, answer: oneshot::Sender<Bytes>) -> Result<Asked<'_>, Unanswered> {
        let mut waiting = self.shared.lock();
        if let Some(why) = &waiting.over {
            return Err(Unanswered::NotSent(why.clone()));
        }
        if waiting.answers.len() >= PENDING_MAX {
            let why = format!("{PENDING_MAX} questions wait for their answers already");
            return Err(Unanswered::NotSent(why));
        }
        let id = waiting.next_id;
        waiting.next_id = id.wrapping_add(1);
        waiting.answers.insert(id, answer);
        waiting.silent_since.get_or_insert_with(Instant::now);
        Ok(Asked {
            id,
            shared: &self.shared,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.end.cancel();
    }
}

/// A question that is forgotten when nobody waits for it any more.
struct Asked<'a> {
    id: u64,
    shared: &'a ConnectionState,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.shared.lock().answers.remove(&self.id);
    }
}

async fn run(
    stream: Box<dyn ByteStream>,
    node: u64,
    frames: mpsc::Receiver<Numbered>,
    shared: Arc<ConnectionState>,
    contacts: Arc<Contacts>,
) {
    let (reader, writer) = tokio::io::split(stream);
    // Small frames come in one read, and not in one for each of their parts.
    let reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
    let why = tokio::select! {
        error = read(reader, node, &shared, &contacts) => match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the other end closed it".to_owned(),
            _ => error.to_string(),
        },
        error = write(writer, frames) => error.to_string(),
        () = shared.end.cancelled() => "it was ended here".to_owned(),
    };
    shared.finish(why);
}

async fn read(
    mut from: impl AsyncRead + Unpin,
    node: u64,
    shared: &ConnectionState,
    contacts: &Contacts,
) -> std::io::Error {
    loop {
        let answer = match frame::read_numbered(&mut from).await {
            Ok(answer) => answer,
            Err(error) => return error,
        };
        contacts.heard(node);
        let mut waiting = shared.lock();
        waiting.silent_since = None;
        // Nobody waits any more for an answer that comes late.
        if let Some(waiter) = waiting.answers.remove(&answer.id) {
            let _ = waiter.send(answer.body);
        }
        if !waiting.answers.is_empty() {
            waiting.silent_since = Some(Instant::now());
        }
    }
}

/// Writes what is queued, and flushes when there is nothing more.
pub(super) async fn write(
    to: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Numbered>,
) -> std::io::Error {
    let mut to = BufWriter::with_capacity(WRITE_BUFFER_BYTES, to);
    while let Some(frame) = frames.recv().await {
        let mut next = Some(frame);
        while let Some(frame) = next {
            if let Err(error) = frame::write_numbered(&mut to, &frame).await {
                return error;
            }
            next = frames.try_recv().ok();
        }
        if let Err(error) = to.flush().await {
            return error;
        }
    }
    std::io::Error::other("nobody asks any more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_on_which_nothing_is_heard_is_given_up() {
        let (near, _far) = tokio::io::duplex(1_024);
        let end = CancellationToken::new();
        let connection = Connection::start(Box::new(near), 2, 7, Arc::default(), &end);
        let asking = connection.ask(Bytes::from_static(b"?"));
        tokio::pin!(asking);
        assert!(futures_util::poll!(asking.as_mut()).is_pending());
        connection.judge_silence();
        assert!(!connection.is_over(), "not after a moment");
        let long_ago = Instant::now().checked_sub(SILENCE_MAX * 2);
        connection.shared.lock().silent_since = long_ago;
        connection.judge_silence();
        assert!(connection.is_over());
        let broken = Unanswered::Broken("nothing was heard on it".into());
        assert_eq!(asking.await, Err(broken));
        let refused = connection.ask(Bytes::new()).await;
        assert!(matches!(refused, Err(Unanswered::NotSent(_))));
    }

    #[tokio::test]
    async fn only_so_many_questions_wait() {
        let (near, _far) = tokio::io::duplex(64);
        let end = CancellationToken::new();
        let connection = Connection::start(Box::new(near), 2, 7, Arc::default(), &end);
        let mut asking: Vec<_> = (0..PENDING_MAX)
            .map(|_| Box::pin(connection.ask(Bytes::new())))
            .collect();
        for question in &mut asking {
            assert!(futures_util::poll!(question.as_mut()).is_pending());
        }
        assert!(matches!(
            connection.ask(Bytes::new()).await,
            Err(Unanswered::NotSent(_))
        ));
        asking.pop();
        assert!(futures_util::poll!(Box::pin(connection.ask(Bytes::new()))).is_pending());
        end.cancel();
        assert!(asking.remove(0).await.is_err());
    }
}
