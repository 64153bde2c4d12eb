//! A registry for tests, on loopback: it serves what it is given and misbehaves as it is told.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use dhow_driver::image::Digest;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::builder::TestImage;

/// What to do with a request instead of answering it properly.
#[derive(Clone)]
pub enum Fault {
    /// Sends this many bytes of the body and closes the connection.
    BreakAfter(usize),
    /// Sends this many bytes of the body and then waits until the hold is lifted.
    HoldAfter(usize, Hold),
    /// Answers with this status and no body.
    Status(u16),
    /// The right number of wrong bytes.
    WrongBytes,
    /// More bytes than there should be.
    TooManyBytes,
    /// Answers a range request with the whole.
    IgnoreRange,
}

/// Lets a test stop an answer in the middle, know when that happened, and let it go on.
#[derive(Clone)]
pub struct Hold {
    reached: mpsc::UnboundedSender<()>,
    lifted: watch::Receiver<bool>,
}

/// The test's end of a [`Hold`].
pub struct Holder {
    pub reached: mpsc::UnboundedReceiver<()>,
    lift: watch::Sender<bool>,
}

impl Holder {
    pub fn lift(&self) {
        self.lift.send_replace(true);
    }
}

pub fn hold() -> (Hold, Holder) {
    let (reached_sender, reached) = mpsc::unbounded_channel();
    let (lift, lifted) = watch::channel(false);
    (
        Hold {
            reached: reached_sender,
            lifted,
        },
        Holder { reached, lift },
    )
}

#[derive(Default)]
struct State {
    blobs: HashMap<String, Vec<u8>>,
    /// By `repository/reference`.
    manifests: HashMap<String, (String, Vec<u8>)>,
    /// The part of a path that a fault is for, the fault, and how often it still happens.
    faults: Vec<(String, Fault, usize)>,
    requests: Vec<String>,
    /// User and password, where a token is needed.
    login: Option<(String, String)>,
    basic: Option<(String, String)>,
    identity: Option<String>,
    hides_digest: bool,
}

/// Serves until dropped.
pub struct TestRegistry {
    pub host: String,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestRegistry {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let (served, served_host) = (Arc::clone(&state), host.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&served), served_host.clone()));
            }
        });
        Self { host, state, task }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Puts an image there and returns its reference.
    pub fn push(&self, repository: &str, tag: &str, image: &TestImage) -> String {
        for (digest, bytes) in image.blobs() {
            self.state().blobs.insert(digest.to_string(), bytes);
        }
        self.push_manifest(repository, tag, image.media_type, &image.manifest)
    }

    pub fn push_manifest(&self, repository: &str, tag: &str, media_type: &str, bytes: &[u8]) -> String {
        let value = (media_type.to_owned(), bytes.to_vec());
        let digest = Digest::of(bytes);
        self.state()
            .manifests
            .insert(format!("{repository}/{digest}"), value.clone());
        self.state()
            .manifests
            .insert(format!("{repository}/{tag}"), value);
        format!("{}/{repository}:{tag}", self.host)
    }

    /// Makes the next `times` requests whose path holds `part` fail this way.
    pub fn fault(&self, part: impl ToString, fault: Fault, times: usize) {
        self.state().faults.push((part.to_string(), fault, times));
    }

    pub fn require_token(&self, user: &str, password: &str) {
        self.state().login = Some((user.to_owned(), password.to_owned()));
    }

    pub fn require_basic(&self, user: &str, password: &str) {
        self.state().basic = Some((user.to_owned(), password.to_owned()));
    }

    /// Accepts this identity token in exchange for an access token.
    pub fn accept_identity(&self, token: &str) {
        self.state().identity = Some(token.to_owned());
    }

    pub fn hide_digests(&self) {
        self.state().hides_digest = true;
    }

    pub fn remove_blob(&self, digest: Digest) {
        self.state().blobs.remove(&digest.to_string());
    }

    /// Requests so far whose line holds this text. Lines are `METHOD path [range]`.
    pub fn requests(&self, part: impl ToString) -> Vec<String> {
        let part = part.to_string();
        self.state()
            .requests
            .iter()
            .filter(|line| line.contains(&part))
            .cloned()
            .collect()
    }
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>, host: String) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Ok(Some(request)) = read_request(&mut read).await {
        // An error is a client that went away, or a fault that closes the connection.
        if answer(&request, &state, &host, &mut write).await.is_err() {
            return;
        }
    }
}

async fn read_request(read: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if read.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        read.read_line(&mut line).await?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    tokio::io::AsyncReadExt::read_exact(read, &mut body).await?;
    Ok(Some(Request {
        method,
        path,
        headers,
        body,
    }))
}

struct Answer {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }
}

async fn answer(
    request: &Request,
    state: &Mutex<State>,
    host: &str,
    write: &mut OwnedWriteHalf,
) -> io::Result<()> {
    let range = request.headers.get("range").cloned().unwrap_or_default();
    let fault = {
        let mut state = state.lock().unwrap();
        state.requests.push(
            format!("{} {} {range}", request.method, request.path)
                .trim_end()
                .to_owned(),
        );
        take_fault(&mut state, &request.path)
    };
    let mut answer = match fault {
        Some(Fault::Status(status)) => Answer::status(status),
        _ => route(
            request,
            &mut state.lock().unwrap(),
            host,
            matches!(fault, Some(Fault::IgnoreRange)),
        ),
    };
    match &fault {
        Some(Fault::WrongBytes) => answer.body.iter_mut().for_each(|byte| *byte = !*byte),
        Some(Fault::TooManyBytes) => answer.body.extend_from_slice(&[0; 4096]),
        _ => {}
    }
    let mut head = format!(
        "HTTP/1.1 {} Status\r\ncontent-length: {}\r\n",
        answer.status,
        answer.body.len()
    );
    for header in &answer.headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    write.write_all(head.as_bytes()).await?;
    if request.method == "HEAD" {
        return write.flush().await;
    }
    match fault {
        Some(Fault::BreakAfter(count)) => {
            write
                .write_all(&answer.body[..count.min(answer.body.len())])
                .await?;
            write.flush().await?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        Some(Fault::HoldAfter(count, mut hold)) => {
            let count = count.min(answer.body.len());
            write.write_all(&answer.body[..count]).await?;
            write.flush().await?;
            let _ = hold.reached.send(());
            let _ = hold.lifted.wait_for(|lifted| *lifted).await;
            write.write_all(&answer.body[count..]).await
        }
        _ => write.write_all(&answer.body).await,
    }
}

fn take_fault(state: &mut State, path: &str) -> Option<Fault> {
    let found = state
        .faults
        .iter_mut()
        .find(|(part, _, times)| path.contains(part.as_str()) && *times > 0);
    found.map(|(_, fault, times)| {
        *times -= 1;
        fault.clone()
    })
}

const TOKEN: &str = "let-me-in";

fn route(request: &Request, state: &mut State, host: &str, ignore_range: bool) -> Answer {
    let path = request.path.split('?').next().unwrap_or_default();
    if path == "/token" {
        return token(request, state);
    }
    let authorization = request.headers.get("authorization").map(String::as_str);
    if state.login.is_some() && authorization != Some(&format!("Bearer {TOKEN}")) {
        let challenge = format!(
            r#"www-authenticate: Bearer realm="http://{host}/token",service="test",scope="repository:x:pull""#
        );
        return Answer {
            status: 401,
            headers: vec![challenge],
            body: Vec::new(),
        };
    }
    if let Some((user, password)) = &state.basic
        && authorization != Some(&basic(user, password))
    {
        let challenge = r#"www-authenticate: Basic realm="test""#.to_owned();
        return Answer {
            status: 401,
            headers: vec![challenge],
            body: Vec::new(),
        };
    }
    if path == "/v2/" {
        return Answer::status(200);
    }
    let Some(rest) = path.strip_prefix("/v2/") else {
        return Answer::status(404);
    };
    content(request, state, rest, ignore_range)
}

/// A manifest or a blob.
fn content(request: &Request, state: &State, rest: &str, ignore_range: bool) -> Answer {
    if let Some((repository, reference)) = rest.split_once("/manifests/") {
        let Some((kind, bytes)) = state.manifests.get(&format!("{repository}/{reference}")) else {
            return Answer::status(404);
        };
        let mut headers = vec![format!("content-type: {kind}")];
        if !state.hides_digest {
            headers.push(format!("docker-content-digest: {}", Digest::of(bytes)));
        }
        return Answer {
            status: 200,
            headers,
            body: bytes.clone(),
        };
    }
    let Some((_, digest)) = rest.split_once("/blobs/") else {
        return Answer::status(404);
    };
    let Some(bytes) = state.blobs.get(digest) else {
        return Answer::status(404);
    };
    let range = request.headers.get("range").filter(|_| !ignore_range);
    let from = range.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    });
    match from {
        Some(from) if from >= bytes.len() => Answer::status(416),
        Some(from) => {
            let header = format!("content-range: bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            Answer {
                status: 206,
                headers: vec![header],
                body: bytes[from..].to_vec(),
            }
        }
        None => Answer {
            status: 200,
            headers: Vec::new(),
            body: bytes.clone(),
        },
    }
}

fn basic(user: &str, password: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {encoded}")
}

fn token(request: &Request, state: &State) -> Answer {
    let Some((user, password)) = &state.login else {
        return Answer::status(404);
    };
    let by_password = request.headers.get("authorization") == Some(&basic(user, password));
    let form = String::from_utf8_lossy(&request.body);
    let by_identity = request.method == "POST"
        && state
            .identity
            .as_ref()
            .is_some_and(|token| form.contains(&format!("refresh_token={token}")));
    let is_for_us = request.path.contains("service=test") || form.contains("service=test");
    if !is_for_us || !(by_password || by_identity) {
        return Answer::status(401);
    }
    let body = if by_identity {
        format!(r#"{{"access_token":"{TOKEN}"}}"#)
    } else {
        format!(r#"{{"token":"{TOKEN}"}}"#)
    };
    Answer {
        status: 200,
        headers: Vec::new(),
        body: body.into_bytes(),
    }
}
