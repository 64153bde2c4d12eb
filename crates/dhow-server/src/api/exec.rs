//! `/deployments/{name}/replicas/{id}/exec`: runs a command in a replica, over an upgraded connection.

use std::pin::pin;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::{Buf, BytesMut};
use dhow_core::ids::ReplicaName;
use dhow_wire::ProblemCode;
use dhow_wire::api::{EXEC_UPGRADE, ExecClientFrame, ExecExit, ExecServerFrame};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::{Principal, right_ended};
use super::context::Context;
use super::extract::{Path, Query};
use super::limits::{EXEC_COMMAND_BYTES_MAX, EXEC_WORDS_MAX};
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::{ExecRequest, ExecSession};
use crate::plane::services::select;

/// Bytes that are read from the client at a time.
const READ_BYTES: usize = 16 * 1024;

/// Runs a command in a replica. The answer is 101; frames of `dhow-exec/1` follow both ways.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/replicas/{id}/exec", tag = "replicas",
    params(
        ("name" = String, Path),
        ("id" = String, Path, description = "The replica's id inside its deployment"),
        ("command" = Vec<String>, Query, description = "The command's words, one parameter each"),
        ("stdin" = Option<bool>, Query, description = "Whether something comes for its standard input")
    ),
    responses((status = 101, description = "The connection speaks `dhow-exec/1` from here on"))
)]
pub(super) async fn exec(
    State(context): State<Context>,
    Path((name, id)): Path<(String, String)>,
    Query(pairs): Query<Vec<(String, String)>>,
    mut request: Request,
) -> Answer<Response<Body>> {
    let (command, stdin) = read_command(pairs)?;
    let replica = running(&context, &name, &id)?;
    let upgrade = take_upgrade(&mut request)?;
    let asked = ExecRequest {
        replica: replica.0,
        command,
        stdin,
    };
    let session = context.manager().door().exec(replica.1, asked).await?;
    let principal = request.extensions().get::<Principal>().cloned();
    let right = right_ended(context.manager().clone(), principal.unwrap_or(Principal::Unknown));
    Ok(switch(upgrade, session, context.end, right))
}

/// Answers that the connection changes, and serves the session on it from then on; it ends with the right to it.
pub(super) fn switch(
    upgrade: OnUpgrade,
    session: ExecSession,
    end: CancellationToken,
    right_ended: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    tokio::spawn(serve(upgrade, session, end, right_ended));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(EXEC_UPGRADE));
    response
}

fn read_command(pairs: Vec<(String, String)>) -> Answer<(Vec<String>, bool)> {
    let mut command = Vec::new();
    let mut stdin = false;
    for (key, value) in pairs {
        match key.as_str() {
            "command" => command.push(value),
            "stdin" => {
                let said = value.parse();
                stdin = said.map_err(|_| ApiProblem::bad_request("`stdin` is `true` or `false`"))?;
            }
            // Unknown parameters are ignored.
            _ => {}
        }
    }
    let bytes: usize = command.iter().map(String::len).sum();
    let fits = (1..=EXEC_WORDS_MAX).contains(&command.len()) && bytes <= EXEC_COMMAND_BYTES_MAX;
    if !fits || command[0].is_empty() {
        return Err(ApiProblem::bad_request(format!(
            "say what to run: `command=` once for each word, {EXEC_WORDS_MAX} words and \
             {EXEC_COMMAND_BYTES_MAX} bytes at most"
        )));
    }
    if command.iter().any(|word| word.contains('\0')) {
        return Err(ApiProblem::bad_request("a command's words hold no NUL"));
    }
    Ok((command, stdin))
}

/// The newest replica of that id that runs.
fn running(context: &Context, name: &str, id: &str) -> Answer<(ReplicaName, dhow_core::ids::NodeId)> {
    let state = context.manager().state();
    let selected = select(&state, name, Some(id))?;
    let mut of_id = selected
        .into_iter()
        .filter(|replica| replica.name.id() == id)
        .peekable();
    if of_id.peek().is_none() && !is_wanted(&state, name, id) {
        return Err(ApiProblem::not_found(format!(
            "`{id}` is a service of `{name}`; name one of its replicas, `dhow ps {name}` lists them"
        )));
    }
    let runs = |replica: &crate::plane::services::SelectedReplica| {
        let found = state.replicas.get(&replica.key);
        found.is_some_and(|replica| replica.is_running())
    };
    let found = of_id.filter(runs).last();
    let found = found.ok_or_else(|| {
        let detail = format!("`{name}/{id}` is not running; `dhow explain {name}/{id}` says why");
        ApiProblem::new(ProblemCode::Refused, detail)
    })?;
    Ok((found.name, found.node))
}

/// Whether the name is that of a replica and not of a service.
fn is_wanted(state: &dhow_core::state::State, name: &str, id: &str) -> bool {
    let deployment = dhow_core::ids::DeploymentName::new(name).ok();
    let service = dhow_core::ids::ServiceName::new(id).ok();
    let both = deployment.zip(service);
    both.is_none_or(|(deployment, service)| state.service_named(&deployment, &service).is_none())
}

pub(super) fn take_upgrade(request: &mut Request) -> Answer<OnUpgrade> {
    let asks = |name: header::HeaderName, word: &str| {
        let values = request.headers().get_all(name);
        let mut words = values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    if !asks(header::CONNECTION, "upgrade") || !asks(header::UPGRADE, EXEC_UPGRADE) {
        return Err(ApiProblem::bad_request(format!(
            "send `Connection: Upgrade` and `Upgrade: {EXEC_UPGRADE}` with HTTP/1.1"
        )));
    }
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    upgrade.ok_or_else(|| ApiProblem::bad_request("this connection cannot be upgraded; use HTTP/1.1"))
}

async fn serve(
    upgrade: OnUpgrade,
    session: ExecSession,
    end: CancellationToken,
    right_ended: impl Future<Output = ()>,
) {
    match upgrade.await {
        Ok(upgraded) => pump(TokioIo::<Upgraded>::new(upgraded), session, end, right_ended).await,
        Err(error) => tracing::debug!(%error, "a client went before its command began"),
    }
}

/// Carries frames both ways until the command or the client ends. The session's end ends the command.
async fn pump(
    io: impl AsyncRead + AsyncWrite,
    session: ExecSession,
    end: CancellationToken,
    right_ended: impl Future<Output = ()>,
) {
    let ExecSession { input, mut output } = session;
    let mut right_ended = pin!(right_ended);
    let (reader, mut writer) = tokio::io::split(io);
    let mut reading = pin!(read_frames(reader, input));
    let last = loop {
        tokio::select! {
            frame = output.recv() => {
                let cut_off = || ExecServerFrame::Exit(ExecExit::Error("the node went away".into()));
                let frame = frame.unwrap_or_else(cut_off);
                if matches!(frame, ExecServerFrame::Exit(_)) {
                    break frame;
                }
                if writer.write_all(&frame.encode()).await.is_err() || writer.flush().await.is_err() {
                    return;
                }
            }
            // The client has gone, or speaks something else.
            error = &mut reading => match error {
                None => return,
                Some(error) => break ExecServerFrame::Exit(ExecExit::Error(error)),
            },
            () = &mut right_ended => {
                let why = "the token was revoked, or has expired: what it ran is ended";
                break ExecServerFrame::Exit(ExecExit::Error(why.into()));
            }
            () = end.cancelled() => {
                break ExecServerFrame::Exit(ExecExit::Error("the server is shutting down".into()));
            }
        }
    };
    // The client may have gone by now.
    let _ = writer.write_all(&last.encode()).await;
    let _ = writer.shutdown().await;
}

/// Until the client goes; what it did wrong, where it did.
async fn read_frames(
    mut reader: impl AsyncRead + Unpin,
    input: mpsc::Sender<ExecClientFrame>,
) -> Option<String> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        loop {
            match ExecClientFrame::decode(&buffer) {
                Ok(Some((frame, taken))) => {
                    buffer.advance(taken);
                    // A command that reads no input, or has ended, takes none.
                    let _ = input.send(frame).await;
                }
                Ok(None) => break,
                Err(error) => return Some(error.to_string()),
            }
        }
        match reader.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}
