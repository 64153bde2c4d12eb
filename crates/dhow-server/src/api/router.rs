//! All routes, and what stands before every one of them.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use dhow_wire::ProblemCode;
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::{Access, Principal, Reach, Rights};
use super::context::{Api, Context};
use super::forward::OfLeader;
use super::problem::ApiProblem;
use super::{
    audit, body, cluster, crons, deploy, deployments, events, exec, forward, health, images, internal, logs,
    metrics, net_check, nodes, notify, openapi, past, plan, progress, rebalance, registries, replicas,
    rollouts, secrets, sources, tokens, upgrade, volumes, worker_ca, worker_tokens,
};
use crate::gateway::verdict::{self, Verdict};
use crate::gateway::{NodeGateway, worker_poll_routes, worker_routes};
use crate::net::identity::Peer;
use crate::net::lobby::Visit;

/// Where archives of any size come in.
const ARCHIVES: &str = "/api/v1/volumes/";

/// The API as a service. Open streams end with `end`.
pub fn router(api: Api, access: Access, end: CancellationToken) -> Router {
    router_with(api, Beside::default(), access, end)
}

/// Routes that a mode of the cluster has besides those of the API, all answered by whoever is asked.
#[derive(Clone, Default)]
pub struct Beside {
    /// For nodes: each looks by itself who calls.
    pub nodes: Router,
    /// For the other servers of the cluster.
    pub members: Router,
    /// In a cluster with a worker tier: the gateway for workers that speak JSON.
    pub workers: Option<NodeGateway>,
    /// The page for browsers, made of what the API gives it. It looks by itself who calls.
    pub page: Option<fn(Inside) -> Router>,
}

/// What the page stands on: whatever is asked there is asked of the API's own routes, on behalf of whoever looks at it.
#[derive(Clone)]
pub struct Inside {
    pub api: Api,
    pub access: Access,
    pub routes: Router,
    pub end: CancellationToken,
}

/// Routes that are alike in who may call them, and in who answers.
pub(super) struct RouteGroup {
    pub routes: OpenApiRouter<Context>,
    pub rights: Rights,
    /// What callers get whose token is for one deployment.
    pub reach: Reach,
    /// How they are passed on to the leader; none for what every server answers by itself.
    pub of_leader: Option<OfLeader>,
}

/// The same with further routes, which are guarded alike.
pub fn router_with(api: Api, beside: Beside, access: Access, end: CancellationToken) -> Router {
    let context = Context {
        api,
        end,
        ca: access.ca(),
    };
    let of_leader = |how| middleware::from_fn_with_state((context.clone(), how), forward::route);
    let guarded_within =
        |rights, reach| middleware::from_fn_with_state((access.clone(), rights, reach), guard);
    let guarded = |rights| guarded_within(rights, Reach::Whole);
    let internal = internal::routes().merge(internal::leader_routes().layer(of_leader(OfLeader::PLAIN)));
    let mut routes = with_methods(internal).layer(guarded(Rights::Members));
    for group in groups() {
        let (mut alike, _) = group.routes.split_for_parts();
        if let Some(how) = group.of_leader {
            alike = alike.layer(of_leader(how));
        }
        routes = routes.merge(with_methods(alike).layer(guarded_within(group.rights, group.reach)));
    }
    // Theirs would answer for what nobody has.
    let mut nodes = beside.nodes.reset_fallback();
    nodes = nodes.merge(match beside.workers {
        Some(gateway) => worker_routes(gateway.clone())
            .layer(of_leader(OfLeader::OF_WORKER))
            .merge(worker_poll_routes(gateway).layer(of_leader(OfLeader::WORKER_POLL))),
        None => Router::new().route("/api/v1/workers/{*call}", any(no_worker_tier)),
    });
    let members = beside.members.reset_fallback();
    let routes = routes
        .fallback(no_such_address.layer(guarded(Rights::Users)))
        .with_state(context.clone());
    let page = beside.page.map(|page| {
        page(Inside {
            api: context.api.clone(),
            access: access.clone(),
            routes: routes.clone(),
            end: context.end.clone(),
        })
    });
    routes
        .merge(with_methods(nodes).layer(guarded(Rights::Nodes)))
        .merge(with_methods(members).layer(guarded(Rights::Members)))
        .merge(page.unwrap_or_default())
}

/// Before who calls is looked at: a method that a route does not have is told to those who may call the route.
fn with_methods<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes.method_not_allowed_fallback(no_such_method)
}

/// The routes with their descriptions.
pub(super) fn described() -> OpenApiRouter<Context> {
    let all = OpenApiRouter::with_openapi(openapi::head());
    groups()
        .into_iter()
        .fold(all, |all, group| all.merge(group.routes))
}

/// All routes of the API, with who may call them, what tokens for one deployment get of them, and who answers.
pub(super) fn groups() -> Vec<RouteGroup> {
    let group = |routes, rights, reach, of_leader| RouteGroup {
        routes,
        rights,
        reach,
        of_leader,
    };
    let one = OpenApiRouter::new;
    let (here, leader, with_past) = (None, Some(OfLeader::PLAIN), Some(OfLeader::WITH_PAST));
    let commands = one()
        .routes(routes!(exec::exec))
        .routes(routes!(net_check::net_check));
    let events = one().routes(routes!(events::follow));
    let plan = one().routes(routes!(plan::plan));
    let backup = one().routes(routes!(cluster::backup));
    let volumes_of_nodes = one()
        .routes(routes!(volumes::list))
        .routes(routes!(volumes::remove))
        .routes(routes!(volumes::home));
    let archives = one().routes(routes!(volumes::backup, volumes::restore));
    let past_difference = one().routes(routes!(past::difference));
    let progress = one().routes(routes!(progress::follow));
    let hook = one().routes(routes!(sources::hook));
    vec![
        group(open(), Rights::Anybody, Reach::Open, here),
        // It looks itself whether the caller knows the source's secret.
        group(hook, Rights::Anybody, Reach::Open, leader),
        group(
            one().routes(routes!(openapi::describe)),
            Rights::Users,
            Reach::Open,
            here,
        ),
        group(answered_here(), Rights::Users, Reach::Whole, here),
        group(
            one().routes(routes!(logs::stream)),
            Rights::Users,
            Reach::Judged,
            here,
        ),
        group(events, Rights::Events, Reach::Judged, here),
        group(commands, Rights::Commands, Reach::Whole, here),
        group(of_cluster(), Rights::Users, Reach::Whole, leader),
        group(of_one_named(), Rights::Users, Reach::Named, with_past),
        group(of_one_judged(), Rights::Users, Reach::Judged, with_past),
        group(past_window(), Rights::Users, Reach::Open, here),
        group(past_difference, Rights::Users, Reach::Judged, here),
        group(plan, Rights::Readers, Reach::Judged, leader),
        group(backup, Rights::Admins, Reach::Whole, leader),
        // Nodes count files for it, or remove them.
        group(
            volumes_of_nodes,
            Rights::Users,
            Reach::Whole,
            Some(OfLeader::FOLLOWS),
        ),
        // Whatever is in a volume; it goes through the server that was asked.
        group(archives, Rights::Admins, Reach::Whole, here),
        // What the leader goes on to tell.
        group(progress, Rights::Users, Reach::Named, Some(OfLeader::FOLLOWS)),
    ]
}

fn open() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
}

/// What every server answers for itself. Images come from nodes, as logs do, through this server's own door to them; the
/// status is told as this server knows it, as events are, also where there is no leader.
fn answered_here() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(metrics::metrics))
        .routes(routes!(cluster::show))
        .routes(routes!(images::list, images::remove))
        .routes(routes!(images::pull))
        .routes(routes!(images::import))
        .routes(routes!(images::prune))
}

/// What the leader answers, whoever is asked: reads that see every acknowledged write, and all that goes into the log.
fn of_cluster() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(cluster::add))
        .routes(routes!(cluster::remove))
        .routes(routes!(upgrade::check))
        .routes(routes!(worker_ca::rotate))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::show, nodes::remove))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(nodes::label))
        .routes(routes!(deployments::stop))
        .routes(routes!(deployments::start))
        .routes(routes!(rebalance::plan, rebalance::begin))
        .routes(routes!(rollouts::steer))
        .routes(routes!(crons::list))
        .routes(routes!(crons::start))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::set, secrets::remove))
        .routes(routes!(registries::list))
        .routes(routes!(registries::login, registries::logout))
        .routes(routes!(sources::list))
        .routes(routes!(sources::set, sources::remove))
        .routes(routes!(sources::sync))
        .routes(routes!(sources::retry))
        .routes(routes!(sources::accept))
        .routes(routes!(notify::list))
        .routes(routes!(notify::set, notify::remove))
        .routes(routes!(notify::test))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(worker_tokens::create))
        .routes(routes!(tokens::revoke))
}

/// The same about the deployment that the path names: what a build server does with its own.
fn of_one_named() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(deployments::show, deployments::remove))
        .routes(routes!(deployments::scale))
        .routes(routes!(deployments::restart))
        .routes(routes!(deployments::rollback))
        .routes(routes!(deployments::history))
        .routes(routes!(deployments::explain))
}

/// How far back this server can tell what was.
fn past_window() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(past::show))
        .routes(routes!(past::at))
}

/// The same where the deployment stands in the query or in the file, or where all are listed.
fn of_one_judged() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(deployments::list, deploy::deploy))
        .routes(routes!(rollouts::list))
        .routes(routes!(replicas::list))
}

async fn no_worker_tier() -> ApiProblem {
    let detail = "this cluster takes no workers: it has no worker tier";
    ApiProblem::new(ProblemCode::WrongMode, detail)
}

async fn no_such_address(request: Request) -> ApiProblem {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiProblem::not_found(format!(
        "there is nothing at {path}; /api/v1/openapi.json lists what there is"
    ))
}

async fn no_such_method(request: Request) -> ApiProblem {
    let detail = format!(
        "{} is not for this address; the header `Allow` says what is",
        request.method()
    );
    ApiProblem::new(ProblemCode::MethodNotAllowed, detail)
}

/// Adds to an answer of 401 with which kind of proof the caller would be let in.
fn refusal(problem: ApiProblem) -> Response {
    let mut response = problem.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

fn is_refusal(status: u16) -> bool {
    matches!(status, 401 | 403)
}

/// What the answer of a route that looks itself who calls says about the caller.
fn node_verdict(response: &Response) -> Verdict {
    let status = response.status();
    match status.is_success() {
        true => verdict::of_headers(response.headers()),
        false if is_refusal(status.as_u16()) => Verdict::Refused("a worker's token was refused"),
        false => Verdict::Unknown,
    }
}

/// Refuses what the caller's token is not for, and notes what the caller may know of.
async fn confine(
    access: &Access,
    principal: &Principal,
    reach: Reach,
    request: &mut Request,
) -> Result<(), ApiProblem> {
    let scope = access.scope(principal)?;
    reach.check(&scope, request).await?;
    request.extensions_mut().insert(scope);
    Ok(())
}

/// Lets a request in, and turns a bug into an answer instead of a broken connection.
async fn guard(
    State((access, rights, reach)): State<(Access, Rights, Reach)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let principal = match access.admit(&mut request, rights).await {
        Ok(principal) => principal,
        Err(problem) => {
            if is_refusal(problem.0.status) {
                access.tell_refused(peer, &problem.0.detail);
            }
            return refusal(problem);
        }
    };
    if let Err(problem) = confine(&access, &principal, reach, &mut request).await {
        return refusal(problem);
    }
    if let Err(problem) = body::check_kind(&request) {
        return problem.into_response();
    }
    let is_member = matches!(principal, Principal::Member(_) | Principal::Forwarded { .. });
    // An archive comes for as long as it takes; whoever stops sending is noticed by the connection.
    let is_archive = request.uri().path().starts_with(ARCHIVES) && request.uri().path().ends_with("/content");
    if !is_member && !is_archive {
        request = body::in_time(request);
    }
    let visit = request.extensions().get::<Visit>().cloned();
    let is_unknown = principal == Principal::Unknown;
    if let Some(visit) = visit.as_ref().filter(|_| !is_unknown) {
        visit.prove(Some(&principal.text()));
    }
    // The server that the client asked writes the event, and not also the leader that it passes the request on to.
    let is_first = !matches!(principal, Principal::Forwarded { .. });
    let deed = audit::deed(request.method(), request.uri()).filter(|_| is_first);
    request.extensions_mut().insert(principal.clone());
    let path = request.uri().path().to_owned();
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    if let Ok(response) = &answered
        && rights == Rights::Nodes
    {
        match node_verdict(response) {
            // A route that looks at its own token has found it good.
            Verdict::Granted => visit.iter().for_each(|visit| visit.prove(None)),
            Verdict::Refused(why) => access.tell_refused(peer, why),
            Verdict::Unknown => {}
        }
    }
    if let Ok(response) = &answered {
        let status = response.status();
        let is_done = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(deed) = deed.filter(|_| is_done) {
            let deed = audit::done(deed, response.extensions().get());
            access.tell(deed, &principal).await;
        }
    }
    let answered = answered.map(|response| access.while_good(&principal, response));
    answered.unwrap_or_else(|_| {
        tracing::error!(
            path,
            "a request failed; this is a bug in Dhow, please report it with the lines above"
        );
        let detail = "this is a bug in Dhow; the server's log says more";
        ApiProblem::new(ProblemCode::Internal, detail).into_response()
    })
}
