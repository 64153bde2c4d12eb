//! An answer that begins before its request has ended. Both go on by themselves from there, in a task of their own: a client
//! that reads only once it has sent all would wait for ever otherwise.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;

use super::body::RequestBody;
use super::exchange::AnswerBody;

/// Pieces of the answer that wait for the client: each is one read of the replica.
const WAITING_MAX: usize = 1;

pub type Pumped = mpsc::Receiver<io::Result<Frame<Bytes>>>;

/// Goes on with both until the answer has ended, or nobody wants it any more. The connection carries nothing after that.
pub fn spawn(mut answer: AnswerBody, mut body: RequestBody) -> Pumped {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        let mut uploads = true;
        loop {
            let (reserve, gone) = (sender.reserve(), sender.closed());
            let (mut reserve, mut gone) = (std::pin::pin!(reserve), std::pin::pin!(gone));
            let mut room = None;
            let next = poll_fn(|cx| {
                if gone.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                if uploads && answer.poll_upload(cx, &mut body).is_ready() {
                    uploads = false;
                }
                if room.is_none()
                    && let Poll::Ready(reserved) = reserve.as_mut().poll(cx)
                {
                    let Ok(permit) = reserved else {
                        return Poll::Ready(None);
                    };
                    room = Some(permit);
                }
                match room.is_some() {
                    true => answer.poll_frame(cx),
                    false => Poll::Pending,
                }
            })
            .await;
            let (Some(frame), Some(room)) = (next, room) else {
                return;
            };
            let is_last = frame.is_err();
            room.send(frame);
            if is_last {
                return;
            }
        }
    });
    receiver
}
