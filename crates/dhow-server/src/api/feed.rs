//! Streams that a task of their own fills: bounded, and over when the client has gone or the server ends.

use std::convert::Infallible;
use std::future::Future;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::limits::{FEED_MAX, KEEP_ALIVE};

/// The filling end.
pub(super) struct Feed<T> {
    items: mpsc::Sender<T>,
}

/// Nobody reads any more.
pub(super) struct Gone;

impl<T> Feed<T> {
    /// Hands an item over; waits for a slow reader.
    pub async fn send(&self, item: T) -> Result<(), Gone> {
        self.items.send(item).await.map_err(|_| Gone)
    }
}

/// A stream of what `fill` sends.
pub(super) fn feed<T, F>(end: CancellationToken, fill: impl FnOnce(Feed<T>) -> F) -> BoxStream<'static, T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (items, mut taken) = mpsc::channel(FEED_MAX);
    let watcher = items.clone();
    let filling = fill(Feed { items });
    tokio::spawn(async move {
        tokio::select! {
            _ = filling => {}
            () = watcher.closed() => {}
            () = end.cancelled() => {}
        }
    });
    futures_util::stream::poll_fn(move |context| taken.poll_recv(context)).boxed()
}

/// Server-sent events of what `fill` sends.
pub(super) fn events<F>(
    end: CancellationToken,
    fill: impl FnOnce(Feed<Result<Event, Infallible>>) -> F,
) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(feed(end, fill)).keep_alive(keep_alive).into_response()
}

impl Feed<Result<Event, Infallible>> {
    /// Sends one event with a JSON document.
    pub async fn event(&self, name: &str, data: &impl serde::Serialize) -> Result<(), Gone> {
        // Our documents are texts and numbers, which can always be written.
        let event = Event::default().event(name).json_data(data).map_err(|_| Gone)?;
        self.send(Ok(event)).await
    }
}
