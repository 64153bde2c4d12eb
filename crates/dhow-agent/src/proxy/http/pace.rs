//! Whether the client takes what it is sent on one stream of HTTP/2. A client opens a window for each, and one that never
//! does would keep the stream, and a connection of its replica, for ever: its own connection shows nothing of it.
//!
//! ```text
//!  executor of the connection ── Paced(stream) ── answer ── its body
//!                                   │ Pace: pieces that were given, and whether more was asked for since
//! ```
//!
//! The library asks a body for its next piece once the window has room for the one before. So a piece that nobody has
//! asked further for is one that the client does not take; where the body itself has nothing, nobody is late.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

use super::patience::TAKE_TIMEOUT;

tokio::task_local! {
    static PACE: Arc<Pace>;
}

/// What a stream and the body of its answer share.
#[derive(Default)]
pub struct Pace {
    /// Pieces of the body that were given.
    given: AtomicU64,
    /// Nothing was asked for since the last of them.
    is_waiting: AtomicBool,
}

impl Pace {
    /// That of the stream whose task this is; there is none on a connection of HTTP/1.
    pub fn current() -> Option<Arc<Self>> {
        PACE.try_with(Arc::clone).ok()
    }

    /// The body was asked for a piece, and has given one or has none.
    pub fn asked(&self, has_given: bool) {
        self.is_waiting.store(has_given, Ordering::Relaxed);
        if has_given {
            self.given.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many pieces were given, where the client has not taken the last of them.
    fn waiting(&self) -> Option<u64> {
        let given = self.given.load(Ordering::Relaxed);
        self.is_waiting.load(Ordering::Relaxed).then_some(given)
    }
}

/// Runs the streams of one connection, each as a task of its own that ends where its client takes nothing for too long.
#[derive(Clone)]
pub struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(Paced {
            stream: Box::pin(stream),
            pace: Arc::default(),
            seen: None,
            until: None,
        });
    }
}

/// A stream that ends where its client takes nothing. The library resets what is dropped before its end.
struct Paced<F> {
    stream: Pin<Box<F>>,
    pace: Arc<Pace>,
    /// The piece that is waited for.
    seen: Option<u64>,
    until: Option<Pin<Box<Sleep>>>,
}

impl<F: Future<Output = ()>> Future for Paced<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let stream = this.stream.as_mut();
        if PACE
            .sync_scope(Arc::clone(&this.pace), || stream.poll(cx))
            .is_ready()
        {
            return Poll::Ready(());
        }
        let waiting = this.pace.waiting();
        let is_new = this.seen != waiting;
        this.seen = waiting;
        if waiting.is_none() {
            return Poll::Pending;
        }
        let deadline = Instant::now() + TAKE_TIMEOUT;
        let until = this
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if is_new {
            until.as_mut().reset(deadline);
        }
        until.as_mut().poll(cx)
    }
}
