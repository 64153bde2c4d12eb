//! The parts that pages are made of: states as a word beside a shape, times, bars, tables and forms. Colour never says
//! anything that the word does not.

use dhow_wire::{DeploymentState, NodeState, ReplicaStateName, ReplicaStatus};
use maud::{Markup, html};

use super::door::FORM_WORD;
use super::format::{count, escaped};
use super::viewer::Viewer;
use crate::clock::shown_utc;

/// How something is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tone {
    Bad,
    Attention,
    Working,
    Well,
    Off,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Attention => "attention",
            Self::Working => "working",
            Self::Well => "well",
            Self::Off => "off",
        }
    }

    pub fn of_deployment(state: DeploymentState) -> Self {
        match state {
            DeploymentState::Failed | DeploymentState::RevertFailed => Self::Bad,
            DeploymentState::Degraded | DeploymentState::Reverting | DeploymentState::Reverted => {
                Self::Attention
            }
            DeploymentState::Deploying => Self::Working,
            DeploymentState::Stable => Self::Well,
            DeploymentState::Removing | DeploymentState::Stopped => Self::Off,
        }
    }

    pub fn of_node(state: NodeState) -> Self {
        match state {
            NodeState::Unreachable => Self::Bad,
            NodeState::Draining => Self::Working,
            NodeState::Drained => Self::Off,
            NodeState::Ready => Self::Well,
        }
    }

    pub fn of_replica(replica: &ReplicaStatus) -> Self {
        match replica.state {
            ReplicaStateName::Failed | ReplicaStateName::Lost => Self::Bad,
            ReplicaStateName::Running if !replica.healthy => Self::Attention,
            ReplicaStateName::Running => Self::Well,
            ReplicaStateName::Pulling | ReplicaStateName::Starting => Self::Working,
            ReplicaStateName::Pending if replica.message.is_some() => Self::Attention,
            ReplicaStateName::Exited if replica.exit_code.is_some_and(|code| code != 0) => Self::Bad,
            ReplicaStateName::Pending | ReplicaStateName::Stopping | ReplicaStateName::Exited => Self::Off,
        }
    }
}

/// The shape of a tone: it is told apart without colour.
fn shape(tone: Tone) -> Markup {
    html! {
        svg.shape viewBox="0 0 12 12" aria-hidden="true" {
            @match tone {
                Tone::Bad => {
                    rect x="1" y="1" width="10" height="10" rx="2" fill="currentColor" {}
                    path d="M4 4l4 4M8 4l-4 4" stroke="var(--paper)" stroke-width="1.6" stroke-linecap="round" {}
                }
                Tone::Attention => {
                    path d="M6 0.8L11.6 10.8H0.4Z" fill="currentColor" {}
                    path d="M6 4.4V7.2M6 9V9.1" stroke="var(--paper)" stroke-width="1.4" stroke-linecap="round" {}
                }
                Tone::Working => {
                    circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.6" {}
                    path d="M6 1.4A4.6 4.6 0 0 1 6 10.6Z" fill="currentColor" {}
                }
                Tone::Well => {
                    circle cx="6" cy="6" r="5.4" fill="currentColor" {}
                    path d="M3.4 6.2L5.3 8L8.7 4.2" fill="none" stroke="var(--paper)" stroke-width="1.5"
                        stroke-linecap="round" stroke-linejoin="round" {}
                }
                Tone::Off => {
                    circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.6" {}
                }
            }
        }
    }
}

/// A word with its shape.
pub(super) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span class={ "state " (tone.class()) } { (shape(tone)) span { (word) } } }
}

pub(super) fn deployment_badge(state: DeploymentState) -> Markup {
    badge(Tone::of_deployment(state), state.word())
}

pub(super) fn node_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Ready => "ready",
        NodeState::Draining => "draining",
        NodeState::Drained => "drained",
        NodeState::Unreachable => "unreachable",
    }
}

pub(super) fn node_badge(state: NodeState) -> Markup {
    badge(Tone::of_node(state), node_word(state))
}

pub(super) fn replica_badge(replica: &ReplicaStatus) -> Markup {
    let word = match replica.state {
        ReplicaStateName::Running if !replica.healthy => "not healthy",
        state => state.as_str(),
    };
    badge(Tone::of_replica(replica), word)
}

/// A moment, which the script turns into how long ago it was.
pub(super) fn time(unix_secs: i64) -> Markup {
    let shown = shown_utc(unix_secs);
    let machine = shown.trim_end_matches(" UTC").replace(' ', "T");
    html! { time datetime={ (machine) "Z" } data-age { (shown) } }
}

/// A moment as it is, with its second.
pub(super) fn moment(unix_ms: i64) -> Markup {
    let shown = shown_utc(unix_ms.div_euclid(1_000));
    let machine = shown.trim_end_matches(" UTC").replace(' ', "T");
    html! { time datetime={ (machine) "Z" } { (shown.trim_end_matches(" UTC")) } }
}

/// So much of a whole, in parts; each has a class and a number.
pub(super) fn bar(label: &str, parts: &[(&str, u64)], whole: u64) -> Markup {
    let whole = whole.max(parts.iter().map(|(_, part)| part).sum()).max(1);
    let mut at = 0;
    let widths: Vec<(&str, u64, u64)> = parts
        .iter()
        .map(|(class, part)| {
            let width = u64::try_from(u128::from(*part) * 1_000 / u128::from(whole)).unwrap_or(1_000);
            let begin = at;
            at += width;
            (*class, begin, width)
        })
        .collect();
    html! {
        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(label) {
            @for (class, begin, width) in widths {
                @if width > 0 { rect class=(class) x=(begin) y="0" width=(width) height="10" {} }
            }
        }
    }
}

/// A table that scrolls by itself where it is too wide, also by the keyboard.
pub(super) fn table(label: &str, head: &[(&str, &str)], rows: &Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table {
                caption.unseen { (label) }
                thead { tr { @for (name, class) in head { th scope="col" class=(class) { (name) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Links to the other pages of a listing. `place` has all of its query but the page.
pub(super) fn pager(place: &str, page: usize, rows: usize, total: usize) -> Markup {
    let pages = total.div_ceil(rows).max(1);
    let to = |page: usize| {
        let mark = if place.contains('?') { '&' } else { '?' };
        format!("{place}{mark}page={}", page + 1)
    };
    let number = |number: usize| count(u64::try_from(number).unwrap_or(u64::MAX));
    html! {
        @if pages > 1 || page > 0 {
            nav.pager aria-label="Pages" {
                @if page > 0 { a href=(to(page - 1)) rel="prev" { "← Earlier" } }
                span { (number((page * rows + 1).min(total))) "–" (number(((page + 1) * rows).min(total))) " of " (number(total)) }
                @if page + 1 < pages { a href=(to(page + 1)) rel="next" { "Further →" } }
            }
        }
    }
}

/// What every form that changes something carries.
pub(super) fn hidden(viewer: &Viewer, back: &str) -> Markup {
    html! {
        input type="hidden" name=(FORM_WORD) value=(viewer.form_word);
        input type="hidden" name="back" value=(back);
    }
}

/// An action that is asked for twice: the first press shows what it would do.
pub(super) fn action(viewer: &Viewer, to: &str, back: &str, name: &str, what: &Markup) -> Markup {
    html! {
        details.act {
            summary { (name) "…" }
            form method="post" action=(to) {
                (hidden(viewer, back))
                (what)
                button type="submit" { (name) }
            }
        }
    }
}

/// Pairs of a name and a value in a query; empty values are left out.
pub(super) fn query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut place = path.to_owned();
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        place.push(if place.contains('?') { '&' } else { '?' });
        place.push_str(&format!("{name}={}", escaped(value)));
    }
    place
}

/// What stands where there is nothing.
pub(super) fn nothing(text: &str) -> Markup {
    html! { p.nothing { (text) } }
}
