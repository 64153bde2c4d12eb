//! `dhow events`: the event log, resumable by revision.

use std::time::Duration;

use dhow_cli::events;
pub use dhow_cli::events::Args;
use dhow_wire::Problem;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use crate::client::{Client, ClientError, Request, Sse};
use crate::exit::Exit;
use crate::output::{self, Reader};

/// How long a daemon may be away before waiting for it makes no sense.
const AWAY_MAX: Duration = Duration::from_secs(60);
const AWAY_WAIT: Duration = Duration::from_millis(500);

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let mut printer = Printer::new(args);
    let mut last_id: Option<String> = None;
    let mut away_since: Option<Instant> = None;
    loop {
        let error = match open(args, client, last_id.as_deref()).await {
            Ok(mut events) => {
                away_since = None;
                match pass_on(client, &mut events, &mut printer, &mut last_id).await? {
                    Passed::ReaderGone => return Ok(Exit::Done),
                    Passed::Ended if !args.follow => break,
                    Passed::Ended => None,
                    Passed::Broke(error) if !args.follow => return Err(error.into()),
                    Passed::Broke(error) => Some(error),
                }
            }
            Err(error) if error.is_away() && args.follow && printer.has_begun => Some(error),
            Err(error) => return Err(error.into()),
        };
        let since = *away_since.get_or_insert_with(Instant::now);
        if let Some(error) = error.filter(|_| since.elapsed() > AWAY_MAX) {
            return Err(error.into());
        }
        tokio::time::sleep(AWAY_WAIT).await;
    }
    printer.end()?;
    Ok(Exit::Done)
}

async fn open(args: &Args, client: &Client, last_id: Option<&str>) -> Result<Sse, ClientError> {
    let mut request = Request::get(&["events"])
        .query_if("follow", args.follow.then_some(true))
        .query_if("audit", args.audit.then_some(true));
    let id = last_id.and_then(|id| HeaderValue::from_str(id).ok());
    request = match id {
        Some(id) => request.header(HeaderName::from_static("last-event-id"), id),
        None => request.query_if("since", args.since),
    };
    client.events(request).await
}

enum Passed {
    Ended,
    Broke(ClientError),
    ReaderGone,
}

async fn pass_on(
    client: &Client,
    events: &mut Sse,
    printer: &mut Printer,
    last_id: &mut Option<String>,
) -> anyhow::Result<Passed> {
    printer.has_begun = true;
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(Passed::Ended),
            Err(error) => return Ok(Passed::Broke(error)),
        };
        let unreadable = |error: serde_json::Error| ClientError::Unreadable {
            host: client.host().clone(),
            why: error.to_string(),
        };
        if event.event == "error" {
            let problem: Problem = serde_json::from_str(&event.data).map_err(unreadable)?;
            return Err(ClientError::Problem(Box::new(problem)).into());
        }
        let value: Value = serde_json::from_str(&event.data).map_err(unreadable)?;
        if let Some(id) = event.id {
            *last_id = Some(id);
        }
        if printer.print(client, value)? == Reader::Gone {
            return Ok(Passed::ReaderGone);
        }
    }
}

/// As they are asked for: lines, JSON lines, or one list at the end.
struct Printer {
    follow: bool,
    audit: bool,
    json: bool,
    has_begun: bool,
    list: Vec<Value>,
}

impl Printer {
    fn new(args: &Args) -> Self {
        Self {
            follow: args.follow,
            audit: args.audit,
            json: args.json,
            has_begun: false,
            list: Vec::new(),
        }
    }

    fn print(&mut self, client: &Client, value: Value) -> anyhow::Result<Reader> {
        match (self.json, self.follow) {
            (true, true) => output::stream(&format!("{value}\n")),
            (true, false) => {
                self.list.push(value);
                Ok(Reader::There)
            }
            (false, _) => output::stream(&events::line(&client.decode(value)?, self.audit)),
        }
    }

    fn end(self) -> anyhow::Result<()> {
        match self.json {
            true => output::json(&Value::Array(self.list)),
            false => Ok(()),
        }
    }
}
