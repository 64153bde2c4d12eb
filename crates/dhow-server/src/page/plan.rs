//! The plan of a pasted file: what it would change and where replicas would go. The file itself is never shown to
//! anybody but whoever pasted it.

use axum::Extension;
use axum::extract::State;
use axum::http::Method;
use dhow_wire::Problem;
use dhow_wire::api::{DeploymentPlan, PlanChange, PlannedService};
use maud::{Markup, html};

use super::calls::Call;
use super::context::Page;
use super::document::{Document, whole};
use super::door::{FORM_WORD, Fields};
use super::format::{count, len, plural};
use super::html::{Tone, badge, table};
use super::limits::PLACEMENTS_MAX;
use super::place::of_node;
use super::view::{Block, Section, View};
use super::viewer::Viewer;

/// The address of the page.
const PLACE: &str = "/ui/plan";

/// What messages call the pasted file.
const SOURCE: &str = "pasted.yaml";

pub(super) fn view(viewer: &Viewer, file: &str, result: &Markup, may_deploy: bool) -> View {
    let form = html! {
        div.head { h1 { "Plan" } p.facts { "What a deployment file would change, before it does." } }
        form.paste method="post" action=(PLACE) {
            input type="hidden" name=(FORM_WORD) value=(viewer.form_word);
            label for="file" { "Deployment file" }
            textarea id="file" name="file" rows="16" spellcheck="false" autocapitalize="off" required
                placeholder="version: v1\ndeployment: shop\nservices:\n  web:\n    image: nginx:1.27" { (file) }
            div.row {
                button.primary type="submit" { "Plan" }
                @if may_deploy && viewer.may_act() { button type="submit" formaction="/ui/deploy" { "Deploy this" } }
            }
        }
    };
    let blocks = vec![
        Block::still("paste", form),
        Block::still("result", html! { div id="result" { (result) } }),
    ];
    View::new("Plan", Section::Plan, blocks)
}

/// The request of a pasted file.
pub(super) fn call(path: &str, file: &str) -> Call {
    Call {
        method: Method::POST,
        path: format!("{path}?source={SOURCE}"),
        kind: "application/yaml",
        // Browsers send the ends of lines as two characters.
        body: file.replace("\r\n", "\n").into_bytes().into(),
    }
}

pub(super) async fn make(
    State(page): State<Page>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Document {
    let file = fields.get("file").unwrap_or_default();
    let planned = page.ask_as::<DeploymentPlan>(&viewer, call("plan", file)).await;
    match planned {
        Ok(plan) => whole(
            &page,
            &viewer,
            PLACE,
            200,
            &view(&viewer, file, &shown(&plan), true),
            None,
        ),
        Err(problem) => refused(&page, &viewer, file, &problem),
    }
}

/// The form again, with what is wrong with the file.
pub(super) fn refused(page: &Page, viewer: &Viewer, file: &str, problem: &Problem) -> Document {
    let told = html! {
        section.problem role="alert" {
            h2 { (badge(Tone::Bad, &problem.title)) }
            p { (problem.detail) }
            @if !problem.findings.is_empty() { ul.findings { @for finding in &problem.findings { li { (finding) } } } }
        }
    };
    whole(
        page,
        viewer,
        PLACE,
        problem.status,
        &view(viewer, file, &told, false),
        None,
    )
}

fn change_tone(change: PlanChange) -> Tone {
    match change {
        PlanChange::New => Tone::Well,
        PlanChange::Rolls | PlanChange::Scales | PlanChange::InPlace => Tone::Working,
        PlanChange::Removed => Tone::Attention,
        PlanChange::Unchanged => Tone::Off,
    }
}

fn shown(plan: &DeploymentPlan) -> Markup {
    let head = [
        ("Service", ""),
        ("Change", ""),
        ("Replicas", "number"),
        ("What differs", ""),
    ];
    let rows = html! { @for service in &plan.services { (row(service)) } };
    html! {
        section {
            h2 { "What it would do to " (plan.deployment) }
            (table("Changes", &head, &rows))
            @if !plan.placements.is_empty() {
                h3 { (len(plan.placements.len())) " new " (plural(plan.placements.len(), "replica", "replicas")) }
                ul.chips {
                    @for placed in plan.placements.iter().take(PLACEMENTS_MAX) {
                        li { (placed.replica) " " small { "on " a href=(of_node(placed.node_id)) { "node " (placed.node_id) } } }
                    }
                }
                @if plan.placements.len() > PLACEMENTS_MAX { p.hint { "and " (len(plan.placements.len() - PLACEMENTS_MAX)) " more" } }
            }
            @if !plan.stops.is_empty() {
                h3 { (len(plan.stops.len())) " would end at once" }
                p { @for id in plan.stops.iter().take(PLACEMENTS_MAX) { (id) " " } }
            }
        }
    }
}

fn row(service: &PlannedService) -> Markup {
    html! {
        tr {
            th scope="row" { (service.name) @if !service.after.is_empty() { p.hint { "after " (service.after.join(", ")) } } }
            td { (badge(change_tone(service.change), service.change.as_str())) }
            td.number {
                @if service.from == service.to { (count(service.to.into())) }
                @else { (count(service.from.into())) " → " (count(service.to.into())) }
            }
            td {
                @if !service.differences.is_empty() { ul.plain { @for difference in &service.differences { li { (difference) } } } }
                @for wait in &service.waiting { p.why { (count(wait.slots.into())) " would wait: " (wait.why) } }
            }
        }
    }
}
