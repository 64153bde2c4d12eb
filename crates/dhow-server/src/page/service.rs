//! A service: why it is as it is, its replicas, and what can be done to it.

use std::sync::Arc;

use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_core::state::{Service, State};
use dhow_wire::api::Explanation;
use dhow_wire::{Problem, ProblemCode, ReplicaStatus};
use maud::{Markup, html};

use super::calls::{Call, failed};
use super::context::Page;
use super::format::{count, escaped, plural};
use super::html::{Tone, action, badge, nothing, pager, query};
use super::limits::ROWS;
use super::place::{of_deployment, of_service};
use super::replica_table::{Of, replica_table};
use super::view::{Block, Section, View};
use super::viewer::Viewer;
use crate::plane::services::ReplicaWindow;

/// What of a service is shown.
pub(super) struct Shown<'a> {
    pub deployment: &'a str,
    pub name: &'a str,
    pub page: usize,
    pub only_ill: bool,
}

pub(super) async fn view(page: &Page, viewer: &Viewer, shown: &Shown<'_>) -> Result<View, Box<Problem>> {
    let state = page.manager().state();
    let service = find(&state, shown.deployment, shown.name)?;
    let explanation = explain(page, viewer, shown.deployment, shown.name).await?;
    let (manager, wanted) = (page.manager().clone(), Arc::clone(&service));
    let window = ReplicaWindow {
        skip: shown.page * ROWS,
        take: ROWS,
        only_ill: shown.only_ill,
    };
    // To pass over a hundred thousand of them is work.
    let looked = tokio::task::spawn_blocking(move || {
        let rows = manager.listed(|listings| listings.replicas_within(&wanted, window));
        (rows, manager.state().replicas_of(wanted.id).count())
    });
    let (rows, present) = looked
        .await
        .map_err(|_| Box::new(failed("looking at the service failed")))?;
    let mut blocks = vec![
        Block::live("head", head(shown, &explanation)),
        Block::still("filter", filter(shown)),
        Block::live("replicas", replicas(shown, &state, &service, &rows, present)),
    ];
    if viewer.may_act() {
        blocks.push(Block::still("actions", actions(shown, &state, &service, viewer)));
    }
    let title = format!("{}/{}", shown.deployment, shown.name);
    Ok(View::new(title, Section::Overview, blocks))
}

fn find(state: &State, deployment: &str, name: &str) -> Result<Arc<Service>, Box<Problem>> {
    let known = DeploymentName::new(deployment)
        .ok()
        .zip(ServiceName::new(name).ok());
    let known = known.and_then(|(deployment, name)| state.service_named(&deployment, &name));
    known.cloned().ok_or_else(|| {
        let detail = format!("deployment `{deployment}` has no service `{name}`");
        Box::new(Problem::new(
            ProblemCode::NotFound,
            super::format::cut(&detail, 200),
        ))
    })
}

/// Why something is as it is. The leader alone knows what a plan left undone; where there is none, this server says what
/// it knows.
pub(super) async fn explain(
    page: &Page,
    viewer: &Viewer,
    deployment: &str,
    name: &str,
) -> Result<Explanation, Box<Problem>> {
    let leadership = page.manager().view().leadership();
    if leadership.is_here || leadership.leader.is_none() {
        let explained = page.manager().explain(deployment, name);
        return explained.map_err(|error| Box::new(error.into()));
    }
    let path = format!(
        "deployments/{}/explain?name={}",
        escaped(deployment),
        escaped(name)
    );
    page.ask_as(viewer, Call::get(path)).await
}

fn head(shown: &Shown<'_>, explanation: &Explanation) -> Markup {
    html! {
        div.head {
            p.trail {
                a href="/ui/" { "Overview" } " / " a href=(of_deployment(shown.deployment)) { (shown.deployment) }
            }
            h1 { (shown.name) }
            (explained(explanation, own_lines(explanation)))
            @if !explanation.waiting.is_empty() {
                ul.reasons {
                    @for wait in explanation.waiting.iter().take(SHOWN_WAITS) {
                        li { (badge(Tone::Attention, "waiting")) " " (count(wait.slots.into())) " from " b { (wait.first) } " on: " (wait.why) }
                    }
                }
            }
        }
    }
}

/// What waits for different reasons and is told at once.
const SHOWN_WAITS: usize = 10;

/// The lines about the service itself: those about its replicas, and about what waits, begin with their names and are told
/// below.
fn own_lines(explanation: &Explanation) -> usize {
    let is_of_replica = |line: &String| {
        let present = explanation.replicas.iter().map(|replica| &replica.id);
        let mut ids = present.chain(explanation.waiting.iter().map(|wait| &wait.first));
        ids.any(|id| line.starts_with(id.as_str()))
    };
    let first = explanation.lines.iter().position(is_of_replica);
    first.unwrap_or(explanation.lines.len()).min(12)
}

/// The first lines of an explanation, and the rest behind a mark.
pub(super) fn explained(explanation: &Explanation, lines_max: usize) -> Markup {
    let (first, rest) = explanation.lines.split_at(lines_max.min(explanation.lines.len()));
    html! {
        div.explained {
            @for line in first { p { (line) } }
            @if !rest.is_empty() {
                details {
                    summary { (rest.len()) " " (plural(rest.len(), "more line", "more lines")) }
                    @for line in rest.iter().take(10 * ROWS) { p { (line) } }
                }
            }
        }
    }
}

fn filter(shown: &Shown<'_>) -> Markup {
    let place = of_service(shown.deployment, shown.name);
    html! {
        div.heading {
            h2 { "Replicas" }
            nav.choice aria-label="Which replicas" {
                a href=(place) aria-current=[(!shown.only_ill).then_some("true")] { "All" }
                a href={ (place) "?ill=1" } aria-current=[shown.only_ill.then_some("true")] { "Not well" }
            }
        }
    }
}

fn replicas(
    shown: &Shown<'_>,
    state: &State,
    service: &Service,
    rows: &[ReplicaStatus],
    present: usize,
) -> Markup {
    let place = of_service(shown.deployment, shown.name);
    let desired = usize::try_from(state.desired(service)).unwrap_or(usize::MAX);
    let ill = if shown.only_ill { "1" } else { "" };
    html! {
        @if rows.is_empty() {
            (nothing(if shown.only_ill { "Every replica is well." } else { "It has no replicas, and is to have none." }))
        } @else {
            (replica_table(Of::Service, rows))
        }
        @if !shown.only_ill || rows.len() == ROWS || shown.page > 0 {
            (pager(&query(&place, &[("ill", ill)]), shown.page, ROWS, present.max(desired)))
        }
    }
}

fn actions(shown: &Shown<'_>, state: &State, service: &Service, viewer: &Viewer) -> Markup {
    let deployment = of_deployment(shown.deployment);
    let place = of_service(shown.deployment, shown.name);
    let named = html! { input type="hidden" name="service" value=(shown.name); };
    let restart = html! {
        (named)
        p { "New replicas of the same revision take the place of those that run, a few at a time." }
    };
    let scale = html! {
        (named)
        @if service.roles.len() > 1 {
            label for="role" { "Role" }
            select id="role" name="role" { @for role in service.roles.iter() { option { (role) } } }
        }
        label for="replicas" { "Replicas (now " (count(state.desired(service).into())) ")" }
        input id="replicas" name="replicas" type="number" min="0" max="1000000" required value=(state.desired(service));
    };
    html! {
        section.actions aria-label="Actions" {
            (action(viewer, &format!("{deployment}/scale"), &place, "Scale", &scale))
            (action(viewer, &format!("{deployment}/restart"), &place, "Restart", &restart))
        }
    }
}
