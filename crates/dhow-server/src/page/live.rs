//! The stream of an open page: its live blocks, each sent again when it looks different, and the lines of its log.
//!
//! A page is made anew at most once a second, and less often the more it costs: an open page never takes more than a four
//! hundredth of a core.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::calls::Call;
use super::context::Page;
use super::document::{leader, view};
use super::limits::{
    HAVE_MAX, LOG_LINES_AT_ONCE, LOOK_EVERY, RENDER_EVERY, RENDER_PAUSE_MAX, RENDER_SHARE, STREAM_WAITING_MAX,
};
use super::log_lines::{LineReader, sent_line};
use super::place::PageAddress;
use super::replica::log_path;
use super::viewer::Viewer;

/// The query of a stream: the address of the page, and what the browser has of it.
#[derive(Deserialize)]
pub(super) struct Asked {
    at: String,
    #[serde(default)]
    have: String,
}

type Sender = mpsc::Sender<Result<Event, Infallible>>;

/// Nobody reads any more, or there is nothing more to say.
struct Over;

pub(super) async fn stream(
    State(page): State<Page>,
    Extension(viewer): Extension<Viewer>,
    Query(asked): Query<Asked>,
) -> Response {
    let (path, query) = asked.at.split_once('?').unwrap_or((&asked.at, ""));
    let Some(place) = PageAddress::of(path, query) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(permit) = std::sync::Arc::clone(&page.streams).try_acquire_owned() else {
        let wait = [(header::RETRY_AFTER, HeaderValue::from_static("10"))];
        return (StatusCode::SERVICE_UNAVAILABLE, wait).into_response();
    };
    let (sender, mut taken) = mpsc::channel(STREAM_WAITING_MAX);
    let end = page.inside.end.clone();
    let have = have(&asked.have);
    tokio::spawn(async move {
        let _permit = permit;
        let blocks = blocks(&page, &viewer, &place, have, &sender);
        let lines = log(&page, &viewer, &place, &sender);
        tokio::select! {
            _ = async { tokio::join!(blocks, lines) } => {}
            () = sender.closed() => {}
            () = end.cancelled() => {}
        }
    });
    let events = futures_util::stream::poll_fn(move |context| taken.poll_recv(context));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// `id:mark` pairs.
fn have(text: &str) -> BTreeMap<String, String> {
    let pairs = text
        .split(',')
        .take(HAVE_MAX)
        .filter_map(|pair| pair.split_once(':'));
    pairs.map(|(id, mark)| (id.to_owned(), mark.to_owned())).collect()
}

async fn send(sender: &Sender, name: &str, data: &Value) -> Result<(), Over> {
    let event = Event::default().event(name).data(data.to_string());
    sender.send(Ok(event)).await.map_err(|_| Over)
}

async fn blocks(
    page: &Page,
    viewer: &Viewer,
    place: &PageAddress,
    mut sent: BTreeMap<String, String>,
    sender: &Sender,
) -> Result<(), Over> {
    let mut states = page.manager().view().states();
    let mut leaderships = page.manager().view().leaderships();
    loop {
        if !page.is_open(viewer) {
            return send(sender, "over", &json!("signed out")).await;
        }
        // What changes from here on is seen by the next look.
        states.mark_unchanged();
        leaderships.mark_unchanged();
        let begun = Instant::now();
        let shown = view(page, viewer, place).await;
        let blocks = match shown {
            Ok(view) => view.blocks,
            Err(problem) => return send(sender, "gone", &json!(problem.detail)).await,
        };
        let live = blocks.into_iter().filter(|block| block.is_live);
        for block in std::iter::once(leader(page)).chain(live) {
            let mark = block.mark();
            if sent.get(block.id) == Some(&mark) {
                continue;
            }
            let data = json!({ "id": block.id, "mark": mark, "html": block.markup.into_string() });
            send(sender, "block", &data).await?;
            sent.insert(block.id.to_owned(), mark);
        }
        let pause = (begun.elapsed() * RENDER_SHARE).clamp(RENDER_EVERY, RENDER_PAUSE_MAX);
        tokio::time::sleep(pause).await;
        tokio::select! {
            changed = states.changed() => changed.map_err(|_| Over)?,
            changed = leaderships.changed() => changed.map_err(|_| Over)?,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The lines of a replica's log, from its last ones on.
async fn log(page: &Page, viewer: &Viewer, place: &PageAddress, sender: &Sender) -> Result<(), Over> {
    let PageAddress::Replica { deployment, id } = place else {
        return Ok(());
    };
    let opened = page.open(viewer, Call::get(log_path(deployment, id, true))).await;
    let response = match opened {
        Ok(response) => response,
        Err(problem) => return send(sender, "log-over", &json!(problem.detail)).await,
    };
    send(sender, "log-begin", &json!(null)).await?;
    let mut pieces = response
        .into_body()
        .into_data_stream()
        .ready_chunks(LOG_LINES_AT_ONCE);
    let mut reader = LineReader::default();
    while let Some(pieces) = pieces.next().await {
        let mut lines: Vec<Value> = Vec::new();
        for piece in pieces {
            let Ok(piece) = piece else {
                return send(sender, "log-over", &json!("the log has broken off")).await;
            };
            lines.extend(reader.take(&piece).iter().map(sent_line));
        }
        for lines in lines.chunks(LOG_LINES_AT_ONCE) {
            send(sender, "log", &json!(lines)).await?;
        }
    }
    send(sender, "log-over", &json!("the log is at its end")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_says_to_have_is_bounded() {
        let many: Vec<String> = (0..100).map(|number| format!("b{number}:mark")).collect();
        assert_eq!(have(&many.join(",")).len(), HAVE_MAX);
        assert_eq!(have("head:1,broken,rows:2").len(), 2);
    }
}
