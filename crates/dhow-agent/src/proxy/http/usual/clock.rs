//! How long a client is waited for that has nothing under way, and what ends the waiting earlier.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFuture;

use crate::proxy::http::{Connection, HEADER_TIMEOUT, LINGER};

/// The waiting for one client. Its timer is set once and looked at when it goes off: what is put off meanwhile is only
/// written down, so that a request costs no timer.
pub struct Clock<'c> {
    connection: &'c Connection,
    stopped: Pin<Box<WaitForCancellationFuture<'c>>>,
    gone: Pin<Box<WaitForCancellationFuture<'c>>>,
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
    /// The listener has ended.
    lingers: bool,
}

/// Why a client is waited for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It is told so.
    Quietly,
    /// It has never asked, or not to the end.
    AtOnce,
}

impl<'c> Clock<'c> {
    pub fn new(connection: &'c Connection) -> Self {
        let deadline = Instant::now() + HEADER_TIMEOUT;
        Self {
            connection,
            stopped: Box::pin(connection.listener.stop.cancelled()),
            gone: Box::pin(connection.client.gone.cancelled()),
            timer: Box::pin(sleep_until(deadline)),
            deadline,
            lingers: false,
        }
    }

    /// A request was answered.
    pub fn begin_again(&mut self) {
        let patience = match self.lingers {
            true => LINGER,
            false => HEADER_TIMEOUT,
        };
        self.deadline = Instant::now() + patience;
    }

    /// Whether the client is waited for no more; asked when nothing has come.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        if !self.lingers && self.stopped.as_mut().poll(cx).is_ready() {
            self.lingers = true;
            self.begin_again();
            self.timer.as_mut().reset(self.deadline);
        }
        let over = match self.connection.begun.load(Ordering::Relaxed) {
            0 => Over::AtOnce,
            _ => Over::Quietly,
        };
        if self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(over);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline {
                return Poll::Ready(over);
            }
            self.timer.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }
}
