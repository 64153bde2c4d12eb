//! `dhow dashboard`: the daemon's page, served on 127.0.0.1 over the connection that the command line has.
//!
//! The link is good once, for a minute, and gives one browser a cookie; without it nothing is passed on. The daemon judges
//! what is done by whoever runs this command, as it does for every other verb.

mod gate;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use dhow_wire::ClusterStatus;
use tokio::net::TcpListener;

use crate::client::{Client, Request as Question};
use crate::exit::Exit;
use crate::output;
use gate::Gate;

/// The longest form of the page.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Headers of a browser that the daemon needs. Its cookie and where it says to come from are looked at here.
const PASSED: [HeaderName; 4] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
];
/// Headers of an answer that belong to the connection to the daemon.
const OF_CONNECTION: [HeaderName; 3] = [header::CONNECTION, header::TRANSFER_ENCODING, header::SET_COOKIE];

/// Show the cluster in a browser, on this machine alone, until Ctrl-C
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  dhow dashboard\n  dhow dashboard --no-open --port 8300")]
pub struct Args {
    /// Only print the link
    #[arg(long)]
    no_open: bool,

    /// The port on 127.0.0.1; any that is free where it is left out
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// What each request is answered with.
#[derive(Clone)]
struct Dashboard {
    client: Client,
    gate: Arc<Gate>,
}

pub async fn run(args: &Args, client: Client) -> anyhow::Result<Exit> {
    // Nobody is sent to a page that is not there.
    let cluster: ClusterStatus = client.fetch_as(Question::get(&["cluster"])).await?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(addr).await;
    let listener = listener
        .with_context(|| format!("{addr} cannot be listened at; leave --port out for any that is free"))?;
    let port = listener
        .local_addr()
        .context("the own address is unknown")?
        .port();
    let gate = Arc::new(Gate::new(port));
    let link = format!("http://127.0.0.1:{port}/enter/{}", gate.code());
    output::data(&format!("{link}\n"))?;
    output::note(&format!(
        "The page of node {} is at that link, which is good once within a minute. Ctrl-C ends it.",
        cluster.node_id
    ));
    if !args.no_open {
        open(&link);
    }
    let dashboard = Dashboard { client, gate };
    let router = Router::new()
        .route("/", get(begin))
        .route("/enter/{code}", get(enter))
        .fallback(pass)
        .with_state(dashboard);
    let served = axum::serve(listener, router);
    tokio::select! {
        served = async { served.await } => served.context("the page is no longer served")?,
        ended = tokio::signal::ctrl_c() => ended.context("Ctrl-C cannot be waited for")?,
    }
    Ok(Exit::Done)
}

/// Where there is a desktop. Where there is none, a browser of the terminal would take it over.
fn open(link: &str) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => "xdg-open",
        false => return,
    };
    let started = Command::new(program)
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        output::note(&format!("{program} is not there: open the link yourself"));
    }
}

async fn begin() -> Redirect {
    Redirect::to("/ui/")
}

fn told(status: StatusCode, title: &str, text: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><h1>{title}</h1><p>{text}</p></html>"
    );
    let mut response = (status, Html(page)).into_response();
    guard(response.headers_mut());
    response
}

/// Nothing that is shown here runs, loads or is framed.
fn guard(headers: &mut HeaderMap) {
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
}

/// Takes the link, once.
async fn enter(State(dashboard): State<Dashboard>, Path(code): Path<String>, headers: HeaderMap) -> Response {
    if !dashboard.gate.is_own_host(&headers) {
        return stranger();
    }
    let Some(cookie) = dashboard.gate.enter(&code) else {
        let text = "It was used already, or is older than a minute. Run <code>dhow dashboard</code> again for a new one.";
        return told(StatusCode::GONE, "This link is no longer good", text);
    };
    // A page that leads on by itself: the cookie goes only with what this address asks for itself.
    let page = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Dhow</title>\
                <meta http-equiv=\"refresh\" content=\"0; url=/ui/\"><p><a href=\"/ui/\">To the page</a></p></html>";
    let mut response = Html(page).into_response();
    let headers = response.headers_mut();
    guard(headers);
    // Hexadecimal digits and our own words.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        headers.insert(header::SET_COOKIE, cookie);
    }
    response
}

fn stranger() -> Response {
    told(
        StatusCode::FORBIDDEN,
        "Refused",
        "Only the page of this address may ask here.",
    )
}

/// Passes a request of the browser that has entered on to the daemon.
async fn pass(State(dashboard): State<Dashboard>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let address = parts
        .uri
        .path_and_query()
        .map(|address| address.as_str().to_owned());
    let address = address.filter(|_| parts.uri.path().starts_with("/ui/"));
    let Some(address) = address else {
        return told(
            StatusCode::NOT_FOUND,
            "Not found",
            "Only the page is served here: <a href=\"/ui/\">/ui/</a>",
        );
    };
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if !dashboard.gate.is_own_host(&parts.headers) || !dashboard.gate.is_own_site(&parts.headers, is_read) {
        return stranger();
    }
    if !dashboard.gate.has_entered(&parts.headers) {
        let text =
            "Use the link that <code>dhow dashboard</code> has printed, or run it again for a new one.";
        return told(StatusCode::UNAUTHORIZED, "Who is this?", text);
    }
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return told(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Too long",
            "What was sent is too long.",
        );
    };
    let mut headers = HeaderMap::new();
    for name in PASSED {
        if let Some(value) = parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    match dashboard
        .client
        .pass_on(parts.method, &address, headers, body.to_vec())
        .await
    {
        Ok(answer) => passed(answer),
        Err(error) => {
            output::error(&error.into());
            let text =
                "The daemon does not answer. What it said stands where <code>dhow dashboard</code> runs.";
            told(StatusCode::BAD_GATEWAY, "No daemon", text)
        }
    }
}

fn passed(answer: reqwest::Response) -> Response {
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    let mut response = Response::new(Body::from_stream(answer.bytes_stream()));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
