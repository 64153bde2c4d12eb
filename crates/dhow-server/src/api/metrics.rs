//! `/metrics`: few series, and as many of them in a large cluster as in a small one; and some for each endpoint that was
//! called on this node.

mod endpoints;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use dhow_core::usage::RelayFigures;
use dhow_wire::{NodeState, ProblemCode, ReplicaStateName};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::context::Context;
use super::problem::{Answer, ApiProblem};
use crate::plane::notify::TargetFigures;
use endpoints::EndpointSeries;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A label and its word.
type Label = [(&'static str, &'static str); 1];

/// For Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"))
)]
pub(super) async fn metrics(State(context): State<Context>) -> Answer<impl IntoResponse> {
    let mut registry = collect(&context);
    // A node without a balancer has no such series.
    let figures = context.manager().door().figures().await.unwrap_or_default();
    registry.register_collector(Box::new(EndpointSeries::new(figures)));
    relayed(
        &mut registry,
        context.manager().door().relayed().await.unwrap_or_default(),
    );
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|_| ApiProblem::new(ProblemCode::Internal, "the metrics cannot be written"))?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}

/// Made anew for each scrape, from one consistent state.
fn collect(context: &Context) -> Registry {
    let manager = context.manager();
    let state = manager.state();
    let leads = manager.view().leadership().is_here;
    let (waiting, room) = context.api.input.load();
    let mut registry = Registry::with_prefix("dhow");
    let singles = [
        (
            "revision",
            "The last applied entry of the log",
            as_i64(state.revision.0),
        ),
        ("term", "The leader's term", as_i64(state.term.0)),
        ("leads", "Whether this server leads", i64::from(leads)),
        ("deployments", "Deployments", as_i64(state.deployments.len())),
        ("services", "Services", as_i64(state.services.len())),
        ("inbox_depth", "Inputs that wait for the reducer", as_i64(waiting)),
        (
            "inbox_capacity",
            "Inputs that may wait for the reducer",
            as_i64(room),
        ),
    ];
    for (name, help, value) in singles {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
    let heartbeats = Counter::<u64>::default();
    heartbeats.inc_by(context.api.input.heartbeats());
    registry.register("heartbeats", "Heartbeats of nodes that came in here", heartbeats);
    registry.register("nodes", "Nodes by status", nodes(&state));
    registry.register("replicas", "Replicas by state", replicas(&state));
    notices(&mut registry, context);
    registry
}

/// One figure of a target.
type NoticeCount = fn(&TargetFigures) -> u64;

/// How notices fare since this server leads, by target.
fn notices(registry: &mut Registry, context: &Context) {
    let figures = context.api.notify.board.all();
    let family = |count: NoticeCount| {
        let family = Family::<Vec<(&'static str, String)>, Counter>::default();
        for (name, figures) in &figures {
            let labels = vec![("target", name.to_string())];
            family.get_or_create(&labels).inc_by(count(figures));
        }
        family
    };
    let all: [(&str, &str, NoticeCount); 3] = [
        ("notices_sent", "Notices that were taken", |figures| figures.sent),
        (
            "notices_failed_attempts",
            "Attempts to send a notice that did not succeed",
            |figures| figures.failed_attempts,
        ),
        ("notices_given_up", "Notices that nobody took", |figures| {
            figures.given_up
        }),
    ];
    for (name, help, count) in all {
        registry.register(name, help, family(count));
    }
}

/// What this server's node has passed on for workers that nobody can dial.
fn relayed(registry: &mut Registry, figures: RelayFigures) {
    let counts = [
        (
            "relayed_bytes",
            "Bytes passed on for workers that nobody can dial, both ways",
            figures.bytes,
        ),
        ("relayed_calls", "Connections passed on for them", figures.calls),
        (
            "relayed_refused",
            "Connections to them that did not come about",
            figures.refused,
        ),
    ];
    for (name, help, value) in counts {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    let now = [
        ("relayed_open", "Connections that are passed on now", figures.open),
        (
            "relayed_nodes",
            "Workers with a tunnel to this server's proxy",
            figures.nodes,
        ),
    ];
    for (name, help, value) in now {
        let gauge: Gauge = Gauge::default();
        gauge.set(as_i64(value));
        registry.register(name, help, gauge);
    }
}

fn as_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

fn nodes(state: &dhow_core::state::State) -> Family<Label, Gauge> {
    let word = |state: NodeState| match state {
        NodeState::Ready => "ready",
        NodeState::Draining => "draining",
        NodeState::Drained => "drained",
        NodeState::Unreachable => "unreachable",
    };
    let all = [
        NodeState::Ready,
        NodeState::Draining,
        NodeState::Drained,
        NodeState::Unreachable,
    ];
    let family = Family::<Label, Gauge>::default();
    for state in all {
        family.get_or_create(&[("status", word(state))]).set(0);
    }
    for node in state.nodes.values() {
        let status = NodeState::of(node.liveness, node.drain);
        family.get_or_create(&[("status", word(status))]).inc();
    }
    family
}

fn replicas(state: &dhow_core::state::State) -> Family<Label, Gauge> {
    let mut counts = [0i64; ReplicaStateName::ALL.len()];
    for replica in state.replicas.values() {
        let name = ReplicaStateName::from(replica.machine.state);
        let place = ReplicaStateName::ALL.iter().position(|known| *known == name);
        if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
            *count += 1;
        }
    }
    let family = Family::<Label, Gauge>::default();
    for (name, count) in ReplicaStateName::ALL.into_iter().zip(counts) {
        family.get_or_create(&[("state", name.as_str())]).set(count);
    }
    family
}
