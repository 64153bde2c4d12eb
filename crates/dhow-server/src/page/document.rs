//! A whole document around the blocks of a page, and the answer to an address.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dhow_wire::{Problem, ProblemCode};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::assets;
use super::context::Page;
use super::html::{Tone, badge, hidden};
use super::place::PageAddress;
use super::view::{Block, Section, View};
use super::viewer::Viewer;
use super::{deployment, diff, events, format, node, nodes, overview, plan, replica, service};
use crate::clock::shown_utc;

/// A document that is ready.
pub(super) struct Document {
    status: u16,
    markup: Markup,
}

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static("text/html; charset=utf-8");
        (status, [(header::CONTENT_TYPE, kind)], self.markup.into_string()).into_response()
    }
}

/// The page of an address.
pub(super) async fn show(
    State(page): State<Page>,
    Extension(viewer): Extension<Viewer>,
    request: Request,
) -> Document {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default();
    let shown = match PageAddress::of(uri.path(), query) {
        Some(place) => view(&page, &viewer, &place).await,
        None => Err(Box::new(Problem::new(
            ProblemCode::NotFound,
            "there is no such page",
        ))),
    };
    let address = uri.path_and_query().map_or("/ui/", |address| address.as_str());
    match shown {
        Ok(view) => whole(&page, &viewer, address, 200, &view, done(query)),
        Err(problem) => failed(&page, &viewer, address, &problem),
    }
}

/// The blocks of a place; the stream of an open page asks for the same.
pub(super) async fn view(page: &Page, viewer: &Viewer, place: &PageAddress) -> Result<View, Box<Problem>> {
    match place {
        PageAddress::Overview { search, page: at } => overview::view(page, viewer, search, *at).await,
        PageAddress::Deployment { name } => deployment::view(page, viewer, name).await,
        PageAddress::Service {
            deployment,
            name,
            page: at,
            only_ill,
        } => {
            let shown = service::Shown {
                deployment,
                name,
                page: *at,
                only_ill: *only_ill,
            };
            service::view(page, viewer, &shown).await
        }
        PageAddress::Replica { deployment, id } => replica::view(page, viewer, deployment, id).await,
        PageAddress::Diff { deployment, from, to } => diff::view(page, deployment, *from, *to),
        PageAddress::Nodes(query) => nodes::view(page, viewer, query).await,
        PageAddress::Node { id, page: at } => node::view(page, viewer, *id, *at),
        PageAddress::Events(query) => events::view(page, viewer, query).await,
        PageAddress::Plan => Ok(plan::view(viewer, "", &html! {}, false)),
    }
}

/// What has just been done, told once more after the way back. Only known words are repeated.
fn done(query: &str) -> Option<&'static str> {
    let said = query.split('&').find_map(|pair| pair.strip_prefix("done="))?;
    Some(match said {
        "deploy" => "Deployed: the new revision is on its way.",
        "restart" => "Restart asked for: new replicas take the place of the old ones.",
        "scale" => "Scaled.",
        "rollback" => "Rolled back: the earlier revision is on its way as a new one.",
        "drain" => "Draining: its replicas move to other nodes.",
        "undrain" => "It takes replicas again.",
        _ => return None,
    })
}

/// A problem inside the frame of the page.
pub(super) fn failed(page: &Page, viewer: &Viewer, address: &str, problem: &Problem) -> Document {
    let view = View::new(
        problem.title.clone(),
        Section::Overview,
        vec![Block::still("problem", told(problem))],
    );
    whole(page, viewer, address, problem.status, &view, None)
}

fn told(problem: &Problem) -> Markup {
    html! {
        section.problem role="alert" {
            h1 { (badge(Tone::Bad, &problem.title)) }
            p { (problem.detail) }
            @if !problem.findings.is_empty() {
                ul.findings { @for finding in &problem.findings { li { (finding) } } }
            }
            p { a href="/ui/" { "Overview" } }
        }
    }
}

/// A problem of somebody who is not in.
pub(super) fn refusal(problem: &Problem) -> Document {
    bare(problem.status, &problem.title, &told(problem))
}

/// A document without the frame.
pub(super) fn bare(status: u16, title: &str, body: &Markup) -> Document {
    let markup = html! {
        (head(title))
        body.bare { main id="main" { (body) } }
    };
    Document {
        status,
        markup: closed(markup),
    }
}

fn closed(markup: Markup) -> Markup {
    html! { (DOCTYPE) (PreEscaped("<html lang=\"en\">")) (markup) (PreEscaped("</html>")) }
}

fn head(title: &str) -> Markup {
    let version = assets::version();
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Dhow" }
            link rel="icon" type="image/svg+xml" href="/ui/icon.svg";
            link rel="stylesheet" href={ "/ui/style.css?v=" (version) };
            script src={ "/ui/page.js?v=" (version) } defer {}
        }
    }
}

/// Everything around the blocks.
pub(super) fn whole(
    page: &Page,
    viewer: &Viewer,
    address: &str,
    status: u16,
    view: &View,
    notice: Option<&'static str>,
) -> Document {
    let entry = |section: Section, to: &str, name: &str, key: &str| {
        html! {
            a href=(to) aria-current=[(section == view.section).then_some("page")] aria-keyshortcuts={ "g " (key) } { (name) }
        }
    };
    let markup = html! {
        (head(&view.title))
        body data-place=(address) data-log[view.has_log] {
            a.skip href="#main" { "To the content" }
            header.top {
                a.brand href="/ui/" { (mark()) "Dhow" }
                nav aria-label="Main" {
                    (entry(Section::Overview, "/ui/", "Overview", "o"))
                    (entry(Section::Nodes, "/ui/nodes", "Nodes", "n"))
                    (entry(Section::Events, "/ui/events", "Events", "e"))
                    (entry(Section::Plan, "/ui/plan", "Plan", "p"))
                }
                div.who {
                    span.link-state id="link-state" role="status" { }
                    span.name { (viewer.name) @if !viewer.may_act() { " · read only" } }
                    @if viewer.session.is_some() {
                        form method="post" action="/ui/logout" {
                            (hidden(viewer, "/ui/"))
                            button.plain type="submit" { "Sign out" }
                        }
                    }
                }
            }
            main id="main" tabindex="-1" {
                (block(&leader(page)))
                @if let Some(notice) = notice { p.notice role="status" { (notice) } }
                @for part in &view.blocks { (block(part)) }
            }
            footer {
                span.as-of { "As of " (shown_utc(page.now_unix_secs())) ", revision " (format::count(page.manager().state().revision.0)) }
                span.keys {
                    kbd { "/" } " search · " kbd { "g" } " then " kbd { "o" } " " kbd { "n" } " " kbd { "e" } " "
                    kbd { "p" } " go to a page"
                }
            }
        }
    };
    Document {
        status,
        markup: closed(markup),
    }
}

/// The sail of a dhow.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 24 24" aria-hidden="true" {
            path d="M6 2C14 5 19 10 20 17H6Z" fill="currentColor" {}
            path d="M2 19H22L19 22H5Z" fill="currentColor" opacity="0.7" {}
        }
    }
}

fn block(block: &Block) -> Markup {
    html! {
        div.block id={ "b-" (block.id) } data-live[block.is_live] data-mark=[block.is_live.then(|| block.mark())] {
            (block.markup)
        }
    }
}

/// Says on every page that nobody leads.
pub(super) fn leader(page: &Page) -> Block {
    let manager = page.manager();
    let has_leader = manager.view().leadership().leader.is_some();
    let state = manager.state();
    let name = Arc::clone(state.cluster_id.as_ref().unwrap_or(&Arc::from("")));
    let markup = html! {
        @if !has_leader {
            div.banner role="alert" {
                (badge(Tone::Bad, "No leader"))
                p {
                    "Nobody leads the cluster " (format::cut(&name, 8)) ": nothing can be changed, and what fails is not replaced, until a "
                    "majority of its servers see each other again. What runs goes on. Shown is what this server knew at revision "
                    (format::count(state.revision.0)) "; " code { "dhow cluster status" } " says which servers it reaches."
                }
            }
        }
    };
    Block::live("leader", markup)
}
