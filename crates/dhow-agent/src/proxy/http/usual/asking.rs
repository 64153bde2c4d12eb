//! A usual request as it is tried on backends.

use std::sync::Arc;

use hyper::StatusCode;

use super::answer::PassedHead;
use super::ready::AskedBytes;
use crate::proxy::http::attempts::Asked;
use crate::proxy::http::exchange::{AnswerBody, ExchangeError};
use crate::proxy::http::pool::{Link, Speaks};
use crate::proxy::meters::{self, EndpointMeter};
use crate::proxy::routes::{Route, StickyTo};

/// All of a request, and where the head of its answer is written.
pub struct Asking<'a> {
    pub asked: &'a AskedBytes,
    pub sticky: Option<StickyTo>,
    /// Of its body, what no endpoint has counted.
    pub uncounted_bytes: usize,
    pub is_head: bool,
    pub out: &'a mut Vec<u8>,
    /// Who counts it.
    pub meter: Option<Arc<EndpointMeter>>,
}

impl Asked for Asking<'_> {
    type Answer = (PassedHead, AnswerBody);

    fn host(&self) -> &str {
        &self.asked.host
    }

    fn path(&self) -> &str {
        &self.asked.path
    }

    fn speaks(&self) -> Speaks {
        Speaks::One
    }

    fn sticky(&self) -> Option<StickyTo> {
        self.sticky
    }

    fn begin(&mut self, route: &Route, is_first: bool) {
        if is_first && self.uncounted_bytes > 0 {
            self.meter = Some(Arc::clone(&route.meter));
        }
    }

    async fn ask(&mut self, link: Link) -> Result<Self::Answer, ExchangeError> {
        if let Some(meter) = self.meter.take() {
            let bytes = u64::try_from(self.uncounted_bytes).unwrap_or_default();
            meters::add(&meter.received_bytes, bytes);
        }
        link.ask(&self.asked.request, self.is_head, self.out).await
    }

    fn status((head, _): &Self::Answer) -> StatusCode {
        head.status
    }
}
