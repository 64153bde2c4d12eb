//! `/deployments/{name}/replicas/{id}/exec`: runs a command in a replica, over an upgraded connection.

use std::cmp::Reverse;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::{Buf, BytesMut};
use dhow_core::ids::{DeploymentName, NodeId, ReplicaName, ServiceName};
use dhow_core::state::State as ClusterState;
use dhow_wire::ProblemCode;
use dhow_wire::api::{
    CopyRequest, CopyWay, EXEC_REPLICA_HEADER, EXEC_SIGN_EVERY_SECS, ExecClientFrame, ExecExit,
    ExecServerFrame, Terminal, TerminalSize, is_term,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::{Principal, right_ended};
use super::audit::About;
use super::context::Context;
use super::extract::{Path, Query};
use super::limits::{EXEC_COMMAND_BYTES_MAX, EXEC_WORDS_MAX, PARTING};
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::{ExecRequest, ExecSession};
use crate::plane::services::{SelectedReplica, select};

const TOKEN_ENDED: &str = "the token was revoked, or has expired: what it ran is ended";
/// Bytes that are read from the client at a time.
const READ_BYTES: usize = 16 * 1024;

/// Runs a command in a replica, or in a healthy one of a service. The answer is 101; frames of `dhow-exec/1` follow both
/// ways, with a terminal of `dhow-exec/2`. The command ends with the connection: it is told by SIGHUP, and killed after a
/// moment.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/replicas/{id}/exec", tag = "replicas",
    params(
        ("name" = String, Path),
        ("id" = String, Path, description = "The replica's id inside its deployment, or a service, for one of its healthy replicas"),
        ("command" = Option<Vec<String>>, Query, description = "The command's words, one parameter each"),
        ("stdin" = Option<bool>, Query, description = "Whether something comes for its standard input"),
        ("terminal" = Option<String>, Query, description = "Run it at a terminal of this kind, its `TERM`"),
        ("rows" = Option<u16>, Query, description = "Lines of the terminal, 24 without"),
        ("port" = Option<u16>, Query, description = "In place of a command: a connection to this port, with the frames of `dhow-exec/1` over `dhow-port/1`"),
        ("copy" = Option<String>, Query, description = "In place of a command: files as a tar stream, `out` of the replica on stdout or `in`to it from stdin, with the frames of `dhow-exec/1` over `dhow-copy/1`"),
        ("path" = Option<String>, Query, description = "What is copied, or where to; below the working directory where it does not begin with `/`"),
        ("cols" = Option<u16>, Query, description = "Characters in a line of the terminal, 80 without")
    ),
    responses((
        status = 101,
        description = "The connection speaks `dhow-exec/1` from here on, with a terminal `dhow-exec/2`; the header `dhow-replica` says in which replica"
    ))
)]
pub(super) async fn exec(
    State(context): State<Context>,
    Path((name, id)): Path<(String, String)>,
    Query(pairs): Query<Vec<(String, String)>>,
    mut request: Request,
) -> Answer<Response<Body>> {
    let wish = Wish::read(pairs)?;
    let (replica, node) = running(&context, &name, &id)?;
    let chosen = replica.id();
    let asked = ExecRequest {
        replica,
        command: wish.command,
        stdin: wish.stdin,
        terminal: wish.terminal,
        port: wish.port,
        copy: wish.copy,
    };
    let protocol = asked.protocol();
    let upgrade = take_upgrade(&mut request, protocol)?;
    let session = context.manager().door().exec(node, asked).await?;
    let principal = request.extensions().get::<Principal>().cloned();
    let right = right_ended(context.manager().clone(), principal.unwrap_or(Principal::Unknown));
    let mut response = switch(upgrade, protocol, session, context.end, right);
    if let Ok(value) = HeaderValue::from_str(&chosen) {
        let name = HeaderName::from_static(EXEC_REPLICA_HEADER);
        response.headers_mut().insert(name, value);
    }
    if chosen != id {
        response.extensions_mut().insert(About(format!("in {chosen}")));
    }
    Ok(response)
}

/// Answers that the connection changes, and serves the session on it from then on; it ends with the right to it.
pub(super) fn switch(
    upgrade: OnUpgrade,
    protocol: &'static str,
    session: ExecSession,
    end: CancellationToken,
    right_ended: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    tokio::spawn(serve(upgrade, session, end, right_ended));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// What is to run, and at what.
#[derive(Default)]
struct Wish {
    command: Vec<String>,
    stdin: bool,
    terminal: Option<Terminal>,
    port: Option<u16>,
    copy: Option<CopyRequest>,
}

impl Wish {
    fn read(pairs: Vec<(String, String)>) -> Answer<Self> {
        let mut wish = Self::default();
        let mut size = TerminalSize::default();
        let mut path = String::new();
        for (key, value) in pairs {
            match key.as_str() {
                "command" => wish.command.push(value),
                "stdin" => {
                    let said = value.parse();
                    wish.stdin = said.map_err(|_| ApiProblem::bad_request("`stdin` is `true` or `false`"))?;
                }
                "terminal" => {
                    wish.terminal = Some(Terminal {
                        term: term(value)?,
                        size,
                    })
                }
                "port" => wish.port = Some(number(&key, &value)?),
                "copy" => {
                    let way = match value.as_str() {
                        "out" => CopyWay::Out,
                        "in" => CopyWay::In,
                        _ => return Err(ApiProblem::bad_request("`copy` is `out` or `in`")),
                    };
                    let path = String::new();
                    wish.copy = Some(CopyRequest { way, path });
                }
                "path" => path = value,
                "rows" => size.rows = number(&key, &value)?,
                "cols" => size.cols = number(&key, &value)?,
                // Unknown parameters are ignored.
                _ => {}
            }
        }
        if let Some(terminal) = &mut wish.terminal {
            terminal.size = size;
        }
        if let Some(copy) = &mut wish.copy {
            copy.path = path;
        }
        wish.check()?;
        Ok(wish)
    }

    fn check(&self) -> Answer<()> {
        if let Some(CopyRequest { path, .. }) = &self.copy {
            let is_alone = self.command.is_empty() && self.terminal.is_none() && self.port.is_none();
            let fits = (1..=EXEC_COMMAND_BYTES_MAX).contains(&path.len()) && !path.contains('\0');
            let why = || {
                ApiProblem::bad_request(
                    "`copy` stands with a `path`, and in place of `command`, `terminal` and `port`",
                )
            };
            return (is_alone && fits).then_some(()).ok_or_else(why);
        }
        if self.port.is_some() {
            let is_alone = self.command.is_empty() && self.terminal.is_none();
            let why = || ApiProblem::bad_request("`port` stands in place of `command` and `terminal`");
            return is_alone.then_some(()).ok_or_else(why);
        }
        let bytes: usize = self.command.iter().map(String::len).sum();
        let fits = (1..=EXEC_WORDS_MAX).contains(&self.command.len()) && bytes <= EXEC_COMMAND_BYTES_MAX;
        if !fits || self.command[0].is_empty() {
            return Err(ApiProblem::bad_request(format!(
                "say what to run: `command=` once for each word, {EXEC_WORDS_MAX} words and \
                 {EXEC_COMMAND_BYTES_MAX} bytes at most"
            )));
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return Err(ApiProblem::bad_request("a command's words hold no NUL"));
        }
        Ok(())
    }
}

fn term(text: String) -> Answer<String> {
    if is_term(&text) {
        return Ok(text);
    }
    Err(ApiProblem::bad_request(
        "`terminal` is a kind of terminal, such as `xterm-256color`",
    ))
}

fn number(key: &str, value: &str) -> Answer<u16> {
    let number = value.parse::<u16>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| ApiProblem::bad_request(format!("`{key}` is a number from 1 to 65535")))
}

/// The newest replica of that id that runs; of a service, a healthy one.
fn running(context: &Context, name: &str, id: &str) -> Answer<(ReplicaName, NodeId)> {
    let state = context.manager().state();
    let selected = select(&state, name, Some(id))?;
    let runs = |replica: &SelectedReplica| state.replicas.get(&replica.key);
    if is_service(&state, name, id) {
        let healthy = |replica: &SelectedReplica| runs(replica).is_some_and(|replica| replica.is_healthy());
        // The newest generation answers for the service; of its replicas the first.
        let found = selected
            .into_iter()
            .filter(healthy)
            .min_by_key(|replica| (Reverse(replica.key.generation), replica.key.slot));
        let found = found.ok_or_else(|| {
            let detail = format!(
                "no replica of `{name}/{id}` is healthy; `dhow ps {name}` lists them, and one that runs can be named \
                 instead of the service"
            );
            ApiProblem::new(ProblemCode::Refused, detail)
        })?;
        return Ok((found.name, found.node));
    }
    let mut of_id = selected.into_iter().filter(|replica| replica.name.id() == id);
    let is_running = |replica: &SelectedReplica| runs(replica).is_some_and(|replica| replica.is_running());
    let found = of_id.rfind(is_running).ok_or_else(|| {
        let detail = format!("`{name}/{id}` is not running; `dhow explain {name}/{id}` says why");
        ApiProblem::new(ProblemCode::Refused, detail)
    })?;
    Ok((found.name, found.node))
}

/// Whether the name is that of a service and not of a replica.
fn is_service(state: &ClusterState, name: &str, id: &str) -> bool {
    let deployment = DeploymentName::new(name).ok();
    let both = deployment.zip(ServiceName::new(id).ok());
    both.is_some_and(|(deployment, service)| state.service_named(&deployment, &service).is_some())
}

/// The connection after the answer, for a request that asks for this protocol.
pub(super) fn take_upgrade(request: &mut Request, protocol: &str) -> Answer<OnUpgrade> {
    let asks = |name: header::HeaderName, word: &str| {
        let values = request.headers().get_all(name);
        let mut words = values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    if !asks(header::CONNECTION, "upgrade") || !asks(header::UPGRADE, protocol) {
        return Err(ApiProblem::bad_request(format!(
            "send `Connection: Upgrade` and `Upgrade: {protocol}` with HTTP/1.1"
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
    let (reader, mut writer) = tokio::io::split(io);
    let mut is_between = true;
    let last = tokio::select! {
        last = send_frames(&mut writer, &mut output, &mut is_between) => last,
        // The client has gone, or speaks something else.
        error = read_frames(reader, input) => error,
        () = right_ended => Some(ExecExit::Error(TOKEN_ENDED.into())),
        () = end.cancelled() => Some(ExecExit::Error("the server is shutting down".into())),
    };
    // The command ends now, however slowly its client reads.
    drop(output);
    let Some(last) = last.filter(|_| is_between) else {
        return;
    };
    let saying = async {
        // The client may have gone by now.
        let _ = writer.write_all(&ExecServerFrame::Exit(last).encode()).await;
        let _ = writer.shutdown().await;
    };
    let _ = tokio::time::timeout(PARTING, saying).await;
}

/// Until the command has ended, which is told; none where the client has gone. `is_between` says whether the client has
/// whole frames.
async fn send_frames(
    writer: &mut (impl AsyncWrite + Unpin),
    output: &mut mpsc::Receiver<ExecServerFrame>,
    is_between: &mut bool,
) -> Option<ExecExit> {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(EXEC_SIGN_EVERY_SECS), output.recv()).await;
        let frame = match next {
            Ok(Some(ExecServerFrame::Exit(exit))) => return Some(exit),
            Ok(Some(frame)) => frame,
            Ok(None) => return Some(ExecExit::Error("the node went away".into())),
            // A client that has gone is noticed by this, also while its input waits for the command.
            Err(_) => ExecServerFrame::Stdout(Vec::new()),
        };
        *is_between = false;
        if writer.write_all(&frame.encode()).await.is_err() || writer.flush().await.is_err() {
            return None;
        }
        *is_between = true;
    }
}

/// Until the client goes; what it did wrong, where it did.
async fn read_frames(
    mut reader: impl AsyncRead + Unpin,
    input: mpsc::Sender<ExecClientFrame>,
) -> Option<ExecExit> {
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
                Err(error) => return Some(ExecExit::Error(error.to_string())),
            }
        }
        match reader.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}
