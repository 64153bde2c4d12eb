//! A request that is refused before its body was read. Over HTTP/2 the rest of the body is taken and thrown away for a
//! moment, so that the caller sees the status of the refusal: cutting the stream off makes many clients forget it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Version;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio_util::task::TaskTracker;

/// What is thrown away of one body, at most: the largest that any route takes, and as much again.
const DISCARDED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// For so long at most.
const DISCARDING_MAX: Duration = Duration::from_secs(5);

/// A body that is emptied when it is let go of too early.
pub(super) struct UnreadBody {
    body: Option<Incoming>,
    /// Where emptying goes on; none where the connection does it by itself.
    tasks: Option<TaskTracker>,
}

impl UnreadBody {
    pub fn new(version: Version, body: Incoming, tasks: &TaskTracker) -> Self {
        Self {
            body: Some(body),
            tasks: (version == Version::HTTP_2).then(|| tasks.clone()),
        }
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        if let (Some(body), Some(tasks)) = (self.body.take(), &self.tasks)
            && !body.is_end_stream()
        {
            // Ends by itself, and with its connection.
            tasks.spawn(tokio::time::timeout(DISCARDING_MAX, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut left_bytes = DISCARDED_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match left_bytes.checked_sub(length) {
            Some(left) => left_bytes = left,
            None => return,
        }
    }
}

impl Body for UnreadBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
