//! Bodies of requests from outside: each says what it is, and has to come within a time.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use dhow_wire::ProblemCode;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;

use super::extract::check_media_type;
use super::limits::BODY_TIMEOUT;
use super::problem::{Answer, ApiProblem};

/// The routes of workers in the plain form, whose handlers see the body alone.
const WORKERS: &str = "/api/v1/workers/";

/// A body that did not come whole in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not come whole within {} s", BODY_TIMEOUT.as_secs())]
pub(super) struct Late;

/// A body without a kind is refused on every route: what a page can send without asking first has none, or one that no
/// route takes.
pub(super) fn check_kind(request: &Request) -> Answer<()> {
    let is_empty = request.body().is_end_stream() || request.body().size_hint().exact() == Some(0);
    if request.uri().path().starts_with(WORKERS) {
        check_media_type(request.headers(), &["application/json"])?;
    }
    if is_empty || request.headers().contains_key(header::CONTENT_TYPE) {
        return Ok(());
    }
    let detail = "the body does not say what it is: send it with a `Content-Type`, such as `application/json`; \
                  /api/v1/openapi.json has what each address takes";
    Err(ApiProblem::new(ProblemCode::UnsupportedMediaType, detail))
}

/// The same request, whose body breaks off where it takes too long.
pub(super) fn in_time(request: Request) -> Request {
    if request.body().is_end_stream() {
        return request;
    }
    request.map(|inner| {
        Body::new(Timed {
            inner,
            late: Box::pin(tokio::time::sleep(BODY_TIMEOUT)),
        })
    })
}

struct Timed {
    inner: Body,
    late: Pin<Box<Sleep>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame);
        }
        match self.late.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(axum::Error::new(Late)))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whether an error of a body says that it was late.
pub(super) fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if error.is::<Late>() {
            return true;
        }
        at = error.source();
    }
    false
}

/// A body that ends when something else does.
pub(super) struct Until {
    pub inner: Body,
    pub ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.ended.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut self.inner).poll_frame(context),
        }
    }
}
