//! The series of the endpoints that were called on this node, as its balancer counts them.

use std::fmt;

use dhow_core::usage::{EndpointFigures, LATENCY_BOUNDS_US};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Endpoints that one scrape shows: 23 series each, and so 11,500 at most.
const ENDPOINTS_MAX: usize = 500;

type Labels<'a> = [(&'static str, &'a str); 3];

/// What the balancer says, made into series when they are written.
#[derive(Debug)]
pub(super) struct EndpointSeries(Vec<EndpointFigures>);

impl EndpointSeries {
    /// Of more endpoints than there is room for the busiest are shown.
    pub fn new(mut figures: Vec<EndpointFigures>) -> Self {
        if figures.len() > ENDPOINTS_MAX {
            figures.sort_by_key(|figures| std::cmp::Reverse(figures.requests));
            figures.truncate(ENDPOINTS_MAX);
            figures.sort_by(|one, other| one.id.cmp(&other.id));
        }
        Self(figures)
    }

    fn each(&self) -> impl Iterator<Item = (Labels<'_>, &EndpointFigures)> {
        self.0.iter().filter_map(|figures| {
            let mut parts = figures.id.splitn(3, '/');
            let labels = [
                ("deployment", parts.next()?),
                ("service", parts.next()?),
                ("endpoint", parts.next()?),
            ];
            Some((labels, figures))
        })
    }
}

/// Name, help and value of a counter.
type Count = (&'static str, &'static str, fn(&EndpointFigures) -> u64);

const COUNTS: [Count; 5] = [
    (
        "endpoint_requests",
        "Requests of HTTP, connections of TCP and sessions of UDP that this node's balancer took",
        |figures| figures.requests,
    ),
    (
        "endpoint_errors",
        "Those that no replica took or answered, and answers of HTTP from 500 on",
        |figures| figures.errors,
    ),
    (
        "endpoint_refused",
        "Those of callers whom the endpoint does not let in",
        |figures| figures.refused,
    ),
    (
        "endpoint_received_bytes",
        "Bytes from those who call",
        |figures| figures.received_bytes,
    ),
    ("endpoint_sent_bytes", "Bytes to those who call", |figures| {
        figures.sent_bytes
    }),
];

impl Collector for EndpointSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        for (name, help, value) in COUNTS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, figures) in self.each() {
                let mut series = metric.encode_family(&labels)?;
                series.encode_counter::<NoLabelSet, u64, f64>(&value(figures), None)?;
            }
        }
        let help = "Requests, connections and sessions that are open now";
        let mut metric = encoder.encode_descriptor("endpoint_open", help, None, MetricType::Gauge)?;
        for (labels, figures) in self.each() {
            let open = i64::try_from(figures.open).unwrap_or(i64::MAX);
            metric.encode_family(&labels)?.encode_gauge(&open)?;
        }
        let help = "Seconds until an answer of HTTP began, or a replica was connected to";
        let name = "endpoint_latency_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, figures) in self.each() {
            let bounds = LATENCY_BOUNDS_US.into_iter().map(seconds).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(figures.latency.iter().copied()).collect();
            let count = figures.latency.iter().sum();
            let sum = seconds(figures.latency_sum_us);
            let mut series = metric.encode_family(&labels)?;
            series.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

fn seconds(microseconds: u64) -> f64 {
    std::time::Duration::from_micros(microseconds).as_secs_f64()
}
