//! A client of HTTP/1.1 whose requests are usual: they are read, sent and answered from bytes to bytes, in one task, with one
//! read and one write on either side.
//!
//! ```text
//!  client ── input ── request::read ── route ── request ── replica
//!         ◀─ out ◀──────────────── answer::pass ◀────────┘
//! ```
//!
//! The first request that is not usual goes to hyper from its first byte, and all that follow it on the connection: nothing
//! of it was sent anywhere by then, so that it means there what it always meant.

pub mod answer;
mod asking;
mod clock;
mod date;
mod ready;
mod request;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use hyper::http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout_at};

use self::answer::{PassedHead, write_status};
use self::asking::Asking;
use self::clock::{Clock, Over};
use self::ready::{AskedBytes, Ready};
use self::request::{Begun, HeaderRoom};
use super::access::AccessEntry;
use super::ahead::Ahead;
use super::attempts::Attempts;
use super::body::Relayed;
use super::exchange::AnswerBody;
use super::failed::{Failed, said_with};
use super::head::{AnswerLength, write_line, write_number};
use super::pool::Answered;
use super::{Connection, body, sticky};
use crate::proxy::backend::Lease;
use crate::proxy::buffers::Buffer;
use crate::proxy::idle_clients::UnderWay;
use crate::proxy::routes::{Route, StickyTo};

/// How long a body of a length that was said may be on its way and the request still be usual.
const BODY_PATIENCE: Duration = Duration::from_millis(20);
/// So much of an answer goes out as one piece.
const JOINED_MAX_BYTES: usize = 16 << 10;
/// What an idle client keeps of each of its buffers.
const KEPT_BYTES: usize = 2 << 10;

/// One client's connection.
struct UsualClient<'c, S> {
    connection: &'c Arc<Connection>,
    stream: S,
    input: Vec<u8>,
    /// So many bytes of it were used.
    used: usize,
    /// So many of the others have no head that ends there.
    looked: usize,
    /// So many bytes the request has that has begun.
    needed: usize,
    /// Until when its body has to be here.
    body_until: Option<Instant>,
    /// The request that is under way.
    asked: AskedBytes,
    /// What is to be sent to the client.
    out: Vec<u8>,
}

/// What the input begins with.
enum Next {
    Partial,
    /// A head whose body is not all here.
    Body,
    Unusual,
    Ready(Ready),
}

/// What became of waiting for bytes.
enum More {
    Some,
    End,
    /// The connection is broken, or was kept for long enough.
    Over(Over),
}

/// The client is gone, or its answer has broken off: what was sent does not end here.
struct Cut;

/// Serves a client's usual requests. Gives the connection back with what was read of a request that is not.
pub async fn serve<S>(connection: &Arc<Connection>, stream: S) -> Option<Ahead<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut client = UsualClient::new(connection, stream);
    let mut clock = Clock::new(connection);
    loop {
        let more = match client.next() {
            Next::Ready(ready) => {
                match client.answer(ready).await {
                    Ok(true) => clock.begin_again(),
                    Ok(false) => return client.close().await,
                    Err(Cut) => return None,
                }
                continue;
            }
            Next::Unusual => return Some(client.into_rest()),
            Next::Partial => client.more(&mut clock).await,
            Next::Body => {
                let until = *client
                    .body_until
                    .get_or_insert_with(|| Instant::now() + BODY_PATIENCE);
                match timeout_at(until, client.more(&mut clock)).await {
                    Ok(more) => more,
                    Err(_) => return Some(client.into_rest()),
                }
            }
        };
        match more {
            More::Some => {}
            More::End if client.has_nothing() => return client.close().await,
            More::End => return Some(client.into_rest()),
            More::Over(Over::Quietly) => return client.close().await,
            More::Over(Over::AtOnce) => return None,
        }
    }
}

impl<'c, S: AsyncRead + AsyncWrite + Unpin> UsualClient<'c, S> {
    fn new(connection: &'c Arc<Connection>, stream: S) -> Self {
        Self {
            connection,
            stream,
            input: Vec::new(),
            used: 0,
            looked: 0,
            needed: 0,
            body_until: None,
            asked: AskedBytes::default(),
            out: Vec::new(),
        }
    }

    fn has_nothing(&self) -> bool {
        self.input.len() == self.used
    }

    fn into_rest(self) -> Ahead<S> {
        let mut rest = Bytes::from(self.input);
        Ahead::new(rest.split_off(self.used), self.stream)
    }

    /// Ends it in good order; there is nobody to tell where that does not go.
    async fn close(mut self) -> Option<Ahead<S>> {
        let _ = self.stream.shutdown().await;
        None
    }

    /// Waits for bytes of the client.
    async fn more(&mut self, clock: &mut Clock<'_>) -> More {
        self.input.drain(..self.used);
        self.used = 0;
        if self.input.is_empty() {
            self.shrink();
        }
        poll_fn(|cx| {
            let mut bytes = Buffer::take();
            let mut room = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                Poll::Ready(Ok(())) if room.filled().is_empty() => Poll::Ready(More::End),
                Poll::Ready(Ok(())) => {
                    self.input.extend_from_slice(room.filled());
                    Poll::Ready(More::Some)
                }
                Poll::Ready(Err(_)) => Poll::Ready(More::Over(Over::AtOnce)),
                Poll::Pending => clock.poll_over(cx).map(More::Over),
            }
        })
        .await
    }

    /// However much the last request and its answer were, who is idle keeps little.
    fn shrink(&mut self) {
        for buffer in [&mut self.input, &mut self.asked.request, &mut self.out] {
            buffer.clear();
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    /// Looks at what has come.
    fn next(&mut self) -> Next {
        let input = self.input.get(self.used..).unwrap_or_default();
        if input.len() < self.needed {
            return Next::Body;
        }
        if input.is_empty() {
            return Next::Partial;
        }
        if self.needed == 0 && self.looked > 0 && !has_end(input, self.looked) {
            self.looked = input.len();
            return match self.looked < request::USUAL_HEAD_MAX_BYTES {
                true => Next::Partial,
                false => Next::Unusual,
            };
        }
        let mut room = HeaderRoom::new();
        let request = match request::read(input, &mut room) {
            Begun::Partial => {
                self.looked = input.len();
                return Next::Partial;
            }
            Begun::Unusual => return Next::Unusual,
            Begun::Usual(request) => request,
        };
        let body_bytes = request.body_bytes.unwrap_or(0);
        let whole = request.head_bytes + body_bytes;
        let Some(body) = input.get(request.head_bytes..whole) else {
            self.needed = whole;
            return Next::Body;
        };
        let Some(ready) = Ready::make(self.connection, &request, body, &mut self.asked) else {
            return Next::Unusual;
        };
        self.used += whole;
        (self.looked, self.needed, self.body_until) = (0, 0, None);
        Next::Ready(ready)
    }

    /// Has a request answered; false where the connection takes no further one.
    async fn answer(&mut self, ready: Ready) -> Result<bool, Cut> {
        let connection = self.connection;
        connection.begun.fetch_add(1, Ordering::Relaxed);
        let _under_way = UnderWay::of(Arc::clone(connection));
        let (is_head, mut access) = (ready.is_head, ready.access);
        self.out.clear();
        let mut asking = Asking {
            asked: &self.asked,
            sticky: ready.sticky,
            uncounted_bytes: ready.body_bytes,
            is_head,
            out: &mut self.out,
            meter: None,
        };
        let answered = match ready.route {
            Ok(route) => {
                let attempts = Attempts::new(connection, ready.may_replay);
                let sent = attempts.send(Arc::clone(&route), &mut asking).await;
                sent.map(|answered| (answered, route))
            }
            Err(failed) => Err(failed),
        };
        let is_over = connection.is_ending() || connection.client.gone.is_cancelled();
        let is_kept = ready.is_kept && !is_over;
        let failed = match answered {
            Ok((((head, answer), lease), route)) if head.status != StatusCode::SWITCHING_PROTOCOLS => {
                if let Some(entry) = &mut access {
                    (entry.status, entry.backend) = (head.status, Some(lease.backend.id.clone()));
                }
                if let Some(cookie) = self.cookie(&route, ready.sticky, &lease) {
                    write_line("set-cookie", cookie.as_bytes(), &mut self.out);
                }
                end_head(is_kept, head.has_date, &mut self.out);
                let idle = route.options.idle_timeout.map(dhow_core::spec::TimeSpan::to_std);
                self.relay(&head, answer, lease, idle, access.as_deref_mut())
                    .await?;
                return Ok(is_kept);
            }
            // A backend that changes without being asked speaks what nobody here understands.
            Ok(_) => Failed::Answer(None),
            Err(failed) => failed,
        };
        let (status, text) = failed.words();
        if let Some(entry) = &mut access {
            let bytes = if is_head { 0 } else { text.len() };
            (entry.status, entry.bytes) = (status, u64::try_from(bytes).unwrap_or_default());
        }
        self.own(status, &text, is_head, is_kept);
        self.send_out().await?;
        Ok(is_kept)
    }

    fn cookie(&self, route: &Route, had: Option<StickyTo>, lease: &Lease) -> Option<HeaderValue> {
        let is_tls = self.connection.scheme == Scheme::HTTPS;
        sticky::cookie(route, had, &lease.backend.id, is_tls)
    }

    /// The proxy's own word.
    fn own(&mut self, status: StatusCode, text: &str, is_head: bool, is_kept: bool) {
        self.out.clear();
        write_status(status, &mut self.out);
        for (name, value) in said_with(status) {
            write_line(name.as_str(), value.as_bytes(), &mut self.out);
        }
        write_number(
            "content-length",
            u64::try_from(text.len()).unwrap_or_default(),
            &mut self.out,
        );
        end_head(is_kept, false, &mut self.out);
        if !is_head {
            self.out.extend_from_slice(text.as_bytes());
        }
    }

    /// Sends the head in `out`, and the body as it comes.
    async fn relay(
        &mut self,
        head: &PassedHead,
        answer: AnswerBody,
        lease: Lease,
        idle: Option<Duration>,
        mut access: Option<&mut AccessEntry>,
    ) -> Result<(), Cut> {
        let is_chunked = match head.length {
            AnswerLength::Chunked | AnswerLength::UntilClose => true,
            AnswerLength::Empty | AnswerLength::Exact(_) => false,
        };
        let mut body = Relayed::new(Answered::One(answer), body::RequestBody::Empty, lease, idle);
        loop {
            let frame = match poll_fn(|cx| Poll::Ready(body.poll(cx))).await {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    self.send_out().await?;
                    poll_fn(|cx| body.poll(cx)).await
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    // Trailers are for who has said that it takes them, in a header that means one connection.
                    let Ok(data) = frame.into_data() else { continue };
                    if let Some(access) = &mut access {
                        let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
                        access.bytes = access.bytes.saturating_add(bytes);
                    }
                    self.put(&data, is_chunked).await?;
                }
                Some(Err(_)) => {
                    self.send_out().await?;
                    return Err(Cut);
                }
                None => break,
            }
        }
        if is_chunked {
            self.out.extend_from_slice(b"0\r\n\r\n");
        }
        self.send_out().await
    }

    /// Takes a piece of the body; sends it where it is much.
    async fn put(&mut self, data: &[u8], is_chunked: bool) -> Result<(), Cut> {
        if is_chunked {
            // An empty chunk would be the end.
            if !data.is_empty() {
                write_chunk(data, &mut self.out);
            }
        } else if self.out.len() + data.len() <= JOINED_MAX_BYTES {
            self.out.extend_from_slice(data);
        } else {
            self.send_out().await?;
            return self.stream.write_all(data).await.map_err(|_| Cut);
        }
        match self.out.len() > JOINED_MAX_BYTES {
            true => self.send_out().await,
            false => Ok(()),
        }
    }

    async fn send_out(&mut self) -> Result<(), Cut> {
        let sent: io::Result<()> = async {
            self.stream.write_all(&self.out).await?;
            self.stream.flush().await
        }
        .await;
        self.out.clear();
        sent.map_err(|_| Cut)
    }
}

/// Whether the empty line that ends a head stands in what has come since so many bytes were looked at.
fn has_end(input: &[u8], looked: usize) -> bool {
    const END: [&[u8]; 2] = [b"\n\r\n", b"\n\n"];
    let fresh = input.get(looked.saturating_sub(2)..).unwrap_or_default();
    END.iter()
        .any(|end| fresh.windows(end.len()).any(|bytes| bytes == *end))
}

/// What this proxy adds to the head of every answer.
fn end_head(is_kept: bool, has_date: bool, out: &mut Vec<u8>) {
    if !is_kept {
        write_line("connection", b"close", out);
    }
    if !has_date {
        write_line("date", &date::now(), out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}
