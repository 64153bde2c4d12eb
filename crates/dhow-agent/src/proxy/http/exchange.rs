//! One connection to a replica that speaks HTTP/1.1, and one request with its answer on it. Everything happens in the
//! task of the client's connection: no other one is woken for a request.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::body::{RequestBody, RequestError};
use super::chunks::{Chunks, Step};
use super::head::{self, AnswerHead, AnswerLength, BadAnswer, RequestLength};
use super::usual::answer::{self, PassedHead};
use crate::proxy::reach::BackendStream;

/// What is read at first, and kept by an idle connection; most answers fit.
const READ_MIN_BYTES: usize = 8 << 10;
/// What is read of an answer that goes on.
const READ_MAX_BYTES: usize = 64 << 10;

/// A connection to a replica. Between two requests nobody reads from it: whoever takes it looks whether it is still quiet.
pub struct BackendConnection {
    stream: BackendStream,
    made: Instant,
    input: BytesMut,
    /// Read and not used yet.
    ahead: Bytes,
    read_bytes: usize,
    upload: Upload,
    /// The last answer had a body, behind which a replica that knows HTTP has nothing more to say.
    had_body: bool,
    /// Nobody has asked the kernel for it since, and nothing has come of an answer.
    is_trusted: bool,
}

/// A request on its way to the replica.
#[derive(Default)]
struct Upload {
    /// The head, or what stands before a chunk.
    head: Vec<u8>,
    head_sent: usize,
    frame: Bytes,
    tail: &'static [u8],
    /// What is left of a body whose length was said; `None` for one in chunks.
    left: Option<u64>,
    /// All of the body is here.
    has_all: bool,
    has_sent: bool,
    is_unflushed: bool,
    is_done: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("nothing of the request was sent")]
    Unsent,
    #[error("the request's body is broken")]
    Body,
    #[error("the request's body has stalled")]
    Stalled,
    #[error("the replica went away")]
    Lost,
    /// A connection that was trusted in had been closed.
    #[error("the connection had been closed while it was idle")]
    Stale,
    /// What an HTTP/2 library finds bad it says in no way of ours.
    #[error("the replica's answer is not understood")]
    Bad(Option<BadAnswer>),
}

/// The head of an answer with its status and how many bytes it has; nothing where some are still to come.
type ReadHead<H> = Result<Option<(StatusCode, H, usize)>, BadAnswer>;

enum UploadError {
    Body,
    Stalled,
    Write,
}

/// The body of an answer, read from its connection as it comes.
pub struct AnswerBody {
    connection: Box<BackendConnection>,
    left: Left,
    is_kept: bool,
}

enum Left {
    Nothing,
    Exact(u64),
    Chunks(Chunks),
    UntilClose,
}

impl BackendConnection {
    pub fn new(stream: BackendStream) -> Box<Self> {
        Box::new(Self {
            stream,
            made: Instant::now(),
            input: BytesMut::new(),
            ahead: Bytes::new(),
            read_bytes: READ_MIN_BYTES,
            upload: Upload::default(),
            had_body: false,
            is_trusted: false,
        })
    }

    pub fn made(&self) -> Instant {
        self.made
    }

    /// Whether it is open and the replica has said nothing since the last answer.
    pub fn is_quiet(&self) -> bool {
        self.ahead.is_empty() && self.stream.is_quiet()
    }

    /// Whether it seems so without asking the kernel: nothing that the runtime has heard says otherwise, and nothing more is
    /// to be expected. Whoever trusts in it may find it closed by its first answer.
    pub fn seems_quiet(&mut self) -> bool {
        self.is_trusted = self.had_body && self.ahead.is_empty() && self.stream.seems_quiet();
        self.is_trusted
    }

    /// Closes one that is idle, so that the way to another node can be used again.
    pub fn let_go(self: Box<Self>) {
        self.stream.let_go();
    }

    /// Sends a request and waits for the head of its answer. The body of the request may be on its way even then.
    pub async fn exchange(
        mut self: Box<Self>,
        parts: &Parts,
        body: &mut RequestBody,
    ) -> Result<(Response<()>, AnswerBody), ExchangeError> {
        self.upload.begin(parts, body);
        let mut read = |bytes: &Bytes| -> ReadHead<AnswerHead> {
            let found = head::read(bytes, &parts.method)?;
            Ok(found.map(|(head, count)| (head.response.status(), head, count)))
        };
        let head = poll_fn(|cx| self.poll_exchange(cx, &mut read, body)).await;
        let AnswerHead {
            response,
            length,
            is_kept,
        } = head.inspect_err(|error| {
            if let ExchangeError::Unsent = error {
                body.put_back(std::mem::take(&mut self.upload.frame));
            }
        })?;
        Ok((response, AnswerBody::new(self, length, is_kept)))
    }

    /// The same for a request all of whose bytes are here. The head of the answer is written for the client behind what
    /// `out` has; `is_head` is whether the request asks for a head alone.
    pub async fn ask(
        mut self: Box<Self>,
        request: &[u8],
        is_head: bool,
        out: &mut Vec<u8>,
    ) -> Result<(PassedHead, AnswerBody), ExchangeError> {
        self.upload.begin_whole(request);
        let begin = out.len();
        let mut read = |bytes: &Bytes| -> ReadHead<PassedHead> {
            // What was written of one that the client does not get, or that has not come to its end.
            out.truncate(begin);
            let found = answer::pass(bytes, is_head, out)?;
            Ok(found.map(|(head, count)| (head.status, head, count)))
        };
        let mut body = RequestBody::Empty;
        let head = poll_fn(|cx| self.poll_exchange(cx, &mut read, &mut body)).await?;
        let answer = AnswerBody::new(self, head.length, head.is_kept);
        Ok((head, answer))
    }

    fn poll_exchange<H>(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut impl FnMut(&Bytes) -> ReadHead<H>,
        body: &mut RequestBody,
    ) -> Poll<Result<H, ExchangeError>> {
        match self.poll_upload(cx, body) {
            Poll::Ready(Ok(())) | Poll::Pending => {}
            Poll::Ready(Err(UploadError::Body)) => return Poll::Ready(Err(ExchangeError::Body)),
            Poll::Ready(Err(UploadError::Stalled)) => return Poll::Ready(Err(ExchangeError::Stalled)),
            Poll::Ready(Err(UploadError::Write)) if !self.upload.has_sent => {
                return Poll::Ready(Err(ExchangeError::Unsent));
            }
            // It may have answered before it stopped reading.
            Poll::Ready(Err(UploadError::Write)) => self.upload.has_all = true,
        }
        self.poll_head(cx, read)
    }

    fn poll_head<H>(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut impl FnMut(&Bytes) -> ReadHead<H>,
    ) -> Poll<Result<H, ExchangeError>> {
        loop {
            if !self.ahead.is_empty() {
                match read(&self.ahead).map_err(|why| ExchangeError::Bad(Some(why)))? {
                    Some((status, head, count)) => {
                        self.ahead.advance(count);
                        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                            continue;
                        }
                        return Poll::Ready(Ok(head));
                    }
                    None => self.input = BytesMut::from(std::mem::take(&mut self.ahead)),
                }
            }
            match ready!(self.poll_fill(cx)) {
                Ok(true) => self.is_trusted = false,
                Ok(false) | Err(_) if self.is_trusted => return Poll::Ready(Err(ExchangeError::Stale)),
                Ok(false) | Err(_) => return Poll::Ready(Err(ExchangeError::Lost)),
            }
        }
    }

    /// Reads what is there; false where the replica has closed.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.input.capacity() - self.input.len() < self.read_bytes / 2 {
            self.input.reserve(self.read_bytes);
        }
        let room = self.input.capacity() - self.input.len();
        let count = ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input))?;
        if count == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_MAX_BYTES);
        }
        self.ahead = self.input.split().freeze();
        Poll::Ready(Ok(count > 0))
    }

    /// Sends as much of the request as goes at once; ready when all of it is sent.
    fn poll_upload(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Poll<Result<(), UploadError>> {
        if self.upload.is_done {
            return Poll::Ready(Ok(()));
        }
        loop {
            let waits = self.upload.poll_pull(cx, body)?.is_pending();
            if self.upload.has_more() {
                ready!(self.upload.poll_write(cx, &mut self.stream)).map_err(|_| UploadError::Write)?;
                continue;
            }
            if self.upload.is_unflushed {
                ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(|_| UploadError::Write)?;
                self.upload.is_unflushed = false;
            }
            if waits {
                return Poll::Pending;
            }
            self.upload.is_done = true;
            return Poll::Ready(Ok(()));
        }
    }
}

impl Upload {
    /// A request that is here as it is sent.
    fn begin_whole(&mut self, request: &[u8]) {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        head.extend_from_slice(request);
        *self = Self {
            head,
            left: Some(0),
            has_all: true,
            ..Self::default()
        };
    }

    fn begin(&mut self, parts: &Parts, body: &RequestBody) {
        let length = match (body.is_end_stream(), body.size_hint().exact()) {
            (true, _) => RequestLength::Empty,
            (false, Some(bytes)) => RequestLength::Exact(bytes),
            (false, None) => RequestLength::Chunked,
        };
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        head::write(parts, length, &mut head);
        *self = Self {
            head,
            left: match length {
                RequestLength::Empty => Some(0),
                RequestLength::Exact(bytes) => Some(bytes),
                RequestLength::Chunked => None,
            },
            has_all: length == RequestLength::Empty,
            ..Self::default()
        };
    }

    fn has_more(&self) -> bool {
        self.head_sent < self.head.len() || !self.frame.is_empty() || !self.tail.is_empty()
    }

    /// Takes the next piece of the body once the one before is sent; pending while there is none.
    fn poll_pull(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Poll<Result<(), UploadError>> {
        while !self.has_all && self.frame.is_empty() && self.tail.is_empty() {
            let next = ready!(Pin::new(&mut *body).poll_frame(cx));
            if self.head_sent == self.head.len() {
                self.head.clear();
                self.head_sent = 0;
            }
            match next {
                Some(Ok(frame)) => {
                    // Trailers of a request are passed on by nobody.
                    let Ok(data) = frame.into_data() else { continue };
                    self.take(data)?;
                }
                Some(Err(RequestError::Client(_))) => return Poll::Ready(Err(UploadError::Body)),
                Some(Err(RequestError::Stalled)) => return Poll::Ready(Err(UploadError::Stalled)),
                None => {
                    self.has_all = true;
                    match self.left {
                        None => self.head.extend_from_slice(b"0\r\n\r\n"),
                        Some(0) => {}
                        Some(_) => return Poll::Ready(Err(UploadError::Body)),
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, data: Bytes) -> Result<(), UploadError> {
        if data.is_empty() {
            // In chunks it would be the end.
            return Ok(());
        }
        match &mut self.left {
            Some(left) => {
                let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
                *left = left.checked_sub(bytes).ok_or(UploadError::Body)?;
                self.has_all = *left == 0;
            }
            None => {
                self.head
                    .extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                self.tail = b"\r\n";
            }
        }
        self.frame = data;
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, stream: &mut BackendStream) -> Poll<io::Result<()>> {
        let head = self.head.get(self.head_sent..).unwrap_or_default();
        let slices = [
            IoSlice::new(head),
            IoSlice::new(&self.frame),
            IoSlice::new(self.tail),
        ];
        let stream = Pin::new(stream);
        let mut count = ready!(match self.frame.is_empty() && self.tail.is_empty() {
            true => stream.poll_write(cx, head),
            false => stream.poll_write_vectored(cx, &slices),
        })?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        (self.has_sent, self.is_unflushed) = (true, true);
        let of_head = count.min(head.len());
        self.head_sent += of_head;
        count -= of_head;
        let of_frame = count.min(self.frame.len());
        self.frame.advance(of_frame);
        count -= of_frame;
        self.tail = self.tail.get(count..).unwrap_or_default();
        Poll::Ready(Ok(()))
    }
}

impl AnswerBody {
    fn new(mut connection: Box<BackendConnection>, length: AnswerLength, is_kept: bool) -> Self {
        connection.had_body = match length {
            AnswerLength::Empty | AnswerLength::Exact(0) => false,
            AnswerLength::Exact(_) | AnswerLength::Chunked | AnswerLength::UntilClose => true,
        };
        let left = match length {
            AnswerLength::Empty => Left::Nothing,
            AnswerLength::Exact(bytes) => Left::Exact(bytes),
            AnswerLength::Chunked => Left::Chunks(Chunks::new()),
            AnswerLength::UntilClose => Left::UntilClose,
        };
        Self {
            connection,
            left,
            is_kept,
        }
    }

    /// Whether the request was sent to its end before the answer began.
    pub fn is_sent(&self) -> bool {
        self.connection.upload.is_done
    }

    /// Goes on with a request that the replica has begun to answer.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Poll<()> {
        // A replica that reads no more may answer all the same.
        self.connection.poll_upload(cx, body).map(drop)
    }

    pub fn is_end(&self) -> bool {
        match &self.left {
            Left::Nothing | Left::Exact(0) => true,
            Left::Chunks(chunks) => chunks.is_over(),
            Left::Exact(_) | Left::UntilClose => false,
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match &self.left {
            Left::Nothing => SizeHint::with_exact(0),
            Left::Exact(bytes) => SizeHint::with_exact(*bytes),
            Left::Chunks(_) | Left::UntilClose => SizeHint::default(),
        }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            let ahead = &mut self.connection.ahead;
            match &mut self.left {
                Left::Nothing | Left::Exact(0) => return Poll::Ready(None),
                Left::Exact(left) if !ahead.is_empty() => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(ahead.len());
                    *left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
                    return Poll::Ready(Some(Ok(Frame::data(ahead.split_to(count)))));
                }
                Left::UntilClose if !ahead.is_empty() => {
                    return Poll::Ready(Some(Ok(Frame::data(std::mem::take(ahead)))));
                }
                Left::Chunks(chunks) => match chunks.next(ahead).map_err(io::Error::other)? {
                    Step::More => {}
                    Step::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Step::Trailers(trailers) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                    Step::Over => return Poll::Ready(None),
                },
                Left::Exact(_) | Left::UntilClose => {}
            }
            if !ready!(self.connection.poll_fill(cx))? {
                return Poll::Ready(match self.left {
                    Left::UntilClose => {
                        self.left = Left::Nothing;
                        None
                    }
                    Left::Nothing | Left::Exact(_) | Left::Chunks(_) => {
                        Some(Err(io::ErrorKind::UnexpectedEof.into()))
                    }
                });
            }
        }
    }

    /// The connection, where it can carry another request.
    pub fn into_connection(self) -> Option<Box<BackendConnection>> {
        let is_free = self.is_kept && self.is_end() && self.is_sent() && self.connection.ahead.is_empty();
        let mut connection = self.connection;
        connection.read_bytes = READ_MIN_BYTES;
        if connection.input.capacity() > READ_MIN_BYTES {
            connection.input = BytesMut::new();
        }
        if connection.upload.head.capacity() > READ_MIN_BYTES {
            connection.upload.head = Vec::new();
        }
        is_free.then_some(connection)
    }

    /// What follows an answer that changes to another protocol.
    pub fn into_stream(self) -> Box<BackendConnection> {
        self.connection
    }
}

impl AsyncRead for BackendConnection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, room);
        }
        let count = this.ahead.len().min(room.remaining());
        room.put_slice(&this.ahead.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BackendConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
