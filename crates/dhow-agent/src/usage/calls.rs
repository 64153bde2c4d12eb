//! From counts of calls to calls a second: what was added since the last look.

use std::collections::BTreeMap;

use dhow_core::usage::{EndpointFigures, EndpointRate, NodeUsage};
use tokio::time::Instant;

/// The last look at each endpoint: requests and errors.
#[derive(Default)]
pub struct CallRates {
    counts: BTreeMap<String, (u64, u64)>,
    looked: Option<Instant>,
}

impl CallRates {
    /// What was called since the last look and what is under way: those whose callers wait first, then the busiest. None at
    /// the first look.
    pub fn since(&mut self, figures: &[EndpointFigures], at: Instant) -> Option<Vec<EndpointRate>> {
        let now = figures.iter();
        let now = now.map(|figures| (figures.id.clone(), (figures.requests, figures.errors)));
        let before = std::mem::replace(&mut self.counts, now.collect());
        let looked = self.looked.replace(at)?;
        let elapsed_ms = at.duration_since(looked).as_millis().max(1);
        let milli = |now: u64, before: u64| {
            // A balancer that was started anew counts from nothing.
            let added = u128::from(if now < before { now } else { now - before });
            u64::try_from(added * 1_000_000 / elapsed_ms).unwrap_or(u64::MAX)
        };
        let mut rates: Vec<EndpointRate> = figures
            .iter()
            .filter_map(|figures| {
                let (service, endpoint) = figures.endpoint()?;
                let (requests, errors) = before.get(&figures.id).copied().unwrap_or_default();
                Some(EndpointRate {
                    service,
                    endpoint: endpoint.to_owned(),
                    requests_milli: milli(figures.requests, requests),
                    errors_milli: milli(figures.errors, errors),
                    in_flight: figures.open,
                    waiting: figures.waiting,
                })
            })
            .filter(|rate| rate.requests_milli > 0 || rate.errors_milli > 0 || rate.in_flight > 0)
            .collect();
        rates.sort_by_key(|rate| std::cmp::Reverse((rate.waiting, rate.requests_milli, rate.in_flight)));
        rates.truncate(NodeUsage::ENDPOINTS_MAX);
        Some(rates)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn figures(id: &str, requests: u64, errors: u64) -> EndpointFigures {
        EndpointFigures {
            id: id.into(),
            requests,
            errors,
            ..EndpointFigures::default()
        }
    }

    #[test]
    fn rates_are_what_was_added_since_the_last_look() {
        let mut rates = CallRates::default();
        let begin = Instant::now();
        assert_eq!(rates.since(&[figures("shop/db/pg", 100, 1)], begin), None);
        let now = [
            figures("shop/db/pg", 150, 6),
            figures("shop/web/http", 1_000, 0),
            figures("shop/idle/http", 0, 0),
            figures("odd", 9, 9),
        ];
        let told = rates.since(&now, begin + Duration::from_secs(10)).unwrap();
        let told: Vec<_> = told
            .iter()
            .map(|rate| (rate.endpoint.as_str(), rate.requests_milli, rate.errors_milli))
            .collect();
        assert_eq!(told, [("http", 100_000, 0), ("pg", 5_000, 500)]);
        let told = rates.since(&[figures("shop/db/pg", 20, 0)], begin + Duration::from_secs(20));
        assert_eq!(told.unwrap()[0].requests_milli, 2_000, "counted anew");
        let mut held = figures("shop/web/http", 1_000, 0);
        (held.open, held.waiting) = (3, 2);
        let told = rates.since(
            &[figures("shop/db/pg", 90, 0), held],
            begin + Duration::from_secs(30),
        );
        let told = told.unwrap();
        assert_eq!(
            (told[0].endpoint.as_str(), told[0].in_flight, told[0].waiting),
            ("http", 3, 2),
            "who waits is told first"
        );
    }
}
