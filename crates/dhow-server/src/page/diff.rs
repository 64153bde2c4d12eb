//! What differs between two revisions of a deployment, in words. What may be a password is left out, as a plan does.

use std::collections::BTreeSet;

use dhow_core::ids::{DeploymentName, DeploymentRevision};
use dhow_core::spec::{DeploymentSpec, differences};
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
    Ok(View::new(title, Section::Overview, vec![Block::still("diff", markup)]))
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
            (Some(old), Some(new)) => Change::Changed(differences(old, new)),
        };
        Some((name.to_string(), change))
    });
    compared.collect()
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
