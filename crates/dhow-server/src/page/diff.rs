//! What differs between two revisions of a deployment, in words. What may be a password is left out, as a plan does.

use std::collections::BTreeSet;

use dhow_core::ids::{DeploymentName, DeploymentRevision};
use dhow_core::spec::{DeploymentSpec, ServiceSpec, differences};
use dhow_wire::{Problem, ProblemCode};
use maud::{Markup, html};

use super::context::Page;
use super::format::cut;
use super::html::{Tone, badge, nothing, table, time};
use super::place::of_deployment;
use super::view::{Block, Section, View};

pub(super) fn view(page: &Page, name: &str, from: u64, to: u64) -> Result<View, Box<Problem>> {
    let state = page.manager().state();
    let missing = |what: String| Box::new(Problem::new(ProblemCode::NotFound, cut(&what, 200)));
    let known = DeploymentName::new(name).ok();
    let known = known.and_then(|name| state.deployment(&name).cloned());
    let known = known.ok_or_else(|| missing(format!("there is no deployment `{name}`")))?;
    let find = |revision: u64| {
        let record = known.history.get(&DeploymentRevision(revision));
        record.ok_or_else(|| missing(format!("revision {revision} of `{name}` is not kept")))
    };
    let (old, new) = (find(from)?, find(to)?);
    let rows = changes(&old.spec, &new.spec);
    let markup = html! {
        div.head {
            p.trail { a href="/ui/" { "Overview" } " / " a href=(of_deployment(name)) { (name) } }
            h1 { "Revision " (from) " to " (to) }
            p.facts {
                "Revision " (from) " by " b { (old.author) } ", " (time(old.wall_unix_secs)) " · revision " (to) " by "
                b { (new.author) } ", " (time(new.wall_unix_secs))
            }
        }
        @if rows.is_empty() { (nothing("Both ask for the same.")) }
        @else { (shown(&rows)) }
    };
    let title = format!("{name}: revision {from} to {to}");
    Ok(View::new(
        title,
        Section::Overview,
        vec![Block::still("diff", markup)],
    ))
}

/// What became of one service.
enum Change {
    Added,
    Removed,
    Changed(Vec<String>),
}

fn changes(old: &DeploymentSpec, new: &DeploymentSpec) -> Vec<(String, Change)> {
    let names: BTreeSet<_> = old.services.keys().chain(new.services.keys()).collect();
    let compared = names.into_iter().filter_map(|name| {
        let change = match (old.services.get(name), new.services.get(name)) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            (Some(old), Some(new)) if old == new => return None,
            (Some(old), Some(new)) => Change::Changed(told(old, new)),
        };
        Some((name.to_string(), change))
    });
    compared.collect()
}

/// In words, with the names of images and the counts, which stand elsewhere in a plan.
fn told(old: &ServiceSpec, new: &ServiceSpec) -> Vec<String> {
    let image = |spec: &ServiceSpec| {
        spec.image
            .as_ref()
            .map_or_else(|| "none".to_owned(), |image| image.name.clone())
    };
    let pairs = [
        ("image", image(old), image(new)),
        (
            "replicas",
            old.desired_total_at_first().to_string(),
            new.desired_total_at_first().to_string(),
        ),
    ];
    let pairs = pairs.into_iter().filter(|(_, before, after)| before != after);
    let mut lines: Vec<String> = pairs
        .map(|(name, before, after)| format!("{name}: {before} -> {after}"))
        .collect();
    let has_image = lines.iter().any(|line| line.starts_with("image: "));
    let words = differences(old, new).into_iter();
    lines.extend(words.filter(|line| !(has_image && line == "image changes")));
    lines
}

fn shown(rows: &[(String, Change)]) -> Markup {
    let head = [("Service", ""), ("Change", ""), ("What differs", "")];
    let rows = html! {
        @for (name, change) in rows {
            tr {
                th scope="row" { (name) }
                @match change {
                    Change::Added => { td { (badge(Tone::Well, "added")) } td {} }
                    Change::Removed => { td { (badge(Tone::Attention, "removed")) } td {} }
                    Change::Changed(words) => {
                        td { (badge(Tone::Working, "changed")) }
                        td {
                            @if words.is_empty() { "A value that is not shown, or what counts without a change of its replicas." }
                            ul.plain { @for word in words { li { (word) } } }
                        }
                    }
                }
            }
        }
    };
    table("Differences", &head, &rows)
}
