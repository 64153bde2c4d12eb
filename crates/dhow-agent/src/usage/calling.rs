//! Requests that wait for the first replica of a service: told at once and again every second, until they wait no more. And
//! whether anybody hears it: the balancer has to know, so that nobody waits in vain.

use std::convert::Infallible;
use std::future::pending;

use dhow_core::usage::{EndpointFigures, EndpointRate, NodeUsage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::balance::Balancer;
use crate::limits::CALLING_EVERY;
use crate::session::Session;

/// What the meter follows between two measurements.
pub(super) struct Calling {
    calls: Option<watch::Receiver<u64>>,
    heard: watch::Receiver<bool>,
}

impl Calling {
    pub fn of(balancer: &dyn Balancer, session: &dyn Session) -> Self {
        Self {
            calls: balancer.calling(),
            heard: session.heard(),
        }
    }

    /// Tells of requests that wait, with what was measured last, until it is dropped.
    pub async fn tell(
        &mut self,
        mut usage: NodeUsage,
        balancer: &dyn Balancer,
        session: &dyn Session,
    ) -> Infallible {
        // One that was told before a measurement is told again after it.
        let mut again = Some(Instant::now());
        loop {
            let is_heard = *self.heard.borrow_and_update();
            balancer.hear(is_heard);
            tokio::select! {
                () = changed(&mut self.calls) => {}
                () = changed_heard(&mut self.heard) => continue,
                () = at(again) => {}
            }
            let figures = balancer.figures().await.unwrap_or_default();
            let is_waiting = add_waiting(&mut usage, &figures);
            if is_waiting || !is_heard {
                // Where nobody hears it, the answer says when somebody does.
                session.usage(usage.clone(), true);
            }
            again = (is_waiting || !is_heard).then(|| Instant::now() + CALLING_EVERY);
        }
    }
}

/// Notes which endpoints have requests that wait. Whether there are any.
fn add_waiting(usage: &mut NodeUsage, figures: &[EndpointFigures]) -> bool {
    for rate in &mut usage.endpoints {
        rate.waiting = 0;
    }
    let mut is_waiting = false;
    for figures in figures.iter().filter(|figures| figures.waiting > 0) {
        let Some((service, endpoint)) = figures.endpoint() else {
            continue;
        };
        is_waiting = true;
        let mut known = usage.endpoints.iter_mut();
        let known = known.find(|rate| rate.service == service && rate.endpoint == endpoint);
        if let Some(rate) = known {
            (rate.in_flight, rate.waiting) = (figures.open, figures.waiting);
            continue;
        }
        let rate = EndpointRate {
            service,
            endpoint: endpoint.to_owned(),
            requests_milli: 0,
            errors_milli: 0,
            in_flight: figures.open,
            waiting: figures.waiting,
        };
        // Who waits comes before those who are merely busy.
        usage.endpoints.insert(0, rate);
        usage.endpoints.truncate(NodeUsage::ENDPOINTS_MAX);
    }
    is_waiting
}

async fn changed(calls: &mut Option<watch::Receiver<u64>>) {
    let Some(calls) = calls else {
        return pending().await;
    };
    if calls.changed().await.is_err() {
        pending().await
    }
}

async fn changed_heard(heard: &mut watch::Receiver<bool>) {
    if heard.changed().await.is_err() {
        pending().await
    }
}

async fn at(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(id: &str, open: u64, waiting: u64) -> EndpointFigures {
        EndpointFigures {
            id: id.into(),
            open,
            waiting,
            ..EndpointFigures::default()
        }
    }

    #[test]
    fn who_waits_is_told_first_and_who_waits_no_more_is_forgotten() {
        let mut usage = NodeUsage::default();
        let busy = figures("shop/db/pg", 9, 0);
        assert!(!add_waiting(&mut usage, std::slice::from_ref(&busy)));
        assert!(add_waiting(
            &mut usage,
            &[busy.clone(), figures("shop/web/http", 3, 2)]
        ));
        assert!(add_waiting(
            &mut usage,
            &[busy.clone(), figures("shop/web/http", 5, 4)]
        ));
        let [web] = &usage.endpoints[..] else {
            panic!("{usage:?}");
        };
        assert_eq!(
            (web.endpoint.as_str(), web.in_flight, web.waiting),
            ("http", 5, 4)
        );
        assert!(!add_waiting(&mut usage, &[busy, figures("shop/web/http", 5, 0)]));
        assert_eq!(usage.endpoints[0].waiting, 0);
    }
}
