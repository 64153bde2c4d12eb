//! The door to every node of a cluster: the own one is in this process, the others are asked over their API.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use bytes::{Buf, BytesMut};
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::spec::PullPolicy;
use dhow_core::usage::{EndpointFigures, RelayFigures};
use dhow_wire::api::{
    ExecClientFrame, ExecExit, ExecServerFrame, ImageImportRequest, ImageInfo, ImageName, ImagesRemoved,
    NetCheck,
};
use dhow_wire::{NodeServiceState, Problem, ProblemCode};
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use super::{
    Answer, DoorError, EXEC_FRAMES_MAX, ExecRequest, ExecSession, ImagePort, LogItem, LogItems, LogLine,
    LogQuery, NetCheckRequest, NodeDoor, NodeVolume, PresentReplica, PullSteps, ReplicaPull, VolumeBytes,
    VolumeName,
};
use crate::net::peer_http::PeerHttp;

/// The longest answer that is read whole: pulls of a node, a problem document.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// The longest line of a log between nodes: the longest line of a replica, escaped.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// What a volume is sent as.
const TAR_MEDIA_TYPE: &str = "application/x-tar";
/// Bytes of an exec session that are read at a time.
const READ_BYTES: usize = 16 * 1024;

/// Where a node's API is, as far as the cluster knows.
pub type AddrOf = dyn Fn(NodeId) -> Option<SocketAddr> + Send + Sync;

/// The node door of a server in a cluster: it asks its own agent in this process and other nodes over HTTP.
pub struct ClusterDoor {
    own: NodeId,
    local: Arc<dyn NodeDoor>,
    peers: PeerHttp,
    addr_of: Arc<AddrOf>,
}

impl ClusterDoor {
    pub fn new(own: NodeId, local: Arc<dyn NodeDoor>, peers: PeerHttp, addr_of: Arc<AddrOf>) -> Self {
        Self {
            own,
            local,
            peers,
            addr_of,
        }
    }

    async fn ask(
        &self,
        node: NodeId,
        request: Request<Body>,
    ) -> Result<axum::http::Response<Incoming>, DoorError> {
        let unreachable = |why: String| DoorError::Unreachable { node, why };
        let addr = (self.addr_of)(node);
        let addr = addr.ok_or_else(|| unreachable("nobody knows where it is".into()))?;
        let response = self.peers.send(node, addr, request).await;
        let response = response.map_err(|error| unreachable(error.to_string()))?;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let problem = serde_json::from_slice::<Problem>(&bytes).ok();
        Err(match problem {
            Some(problem) => told(node, problem),
            None => unreachable(format!("it answered {status}")),
        })
    }

    async fn get<T: DeserializeOwned>(&self, node: NodeId, path: &str) -> Result<T, DoorError> {
        let unreadable = |why: String| DoorError::Unreachable { node, why };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().map_err(|error| unreadable(format!("{error}")))?;
        let response = self.ask(node, request).await?;
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = body
            .collect()
            .await
            .map_err(|error| unreadable(error.to_string()))?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(|error| unreadable(error.to_string()))
    }

    async fn remote_logs(&self, node: NodeId, query: &LogQuery) -> Result<LogItems, DoorError> {
        // Names and numbers can always be written.
        let body = serde_json::to_vec(query).unwrap_or_default();
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = axum::http::Uri::from_static("/api/v1/internal/door/logs");
        let json = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let response = self.ask(node, request).await?;
        let bytes = response
            .into_body()
            .into_data_stream()
            .map_err(std::io::Error::other);
        let reader = BufReader::new(StreamReader::new(bytes));
        let items = futures_util::stream::unfold(Some(reader), move |reader| async move {
            let mut reader = reader?;
            let mut line = Vec::new();
            let read = (&mut reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
                .await;
            let broken = |why: String| Some((Err(DoorError::Unreachable { node, why }), None));
            match read {
                Ok(0) => None,
                Err(error) => broken(error.to_string()),
                Ok(_) => match serde_json::from_slice::<LogLine>(&line) {
                    Ok(LogLine::Record(record)) => Some((Ok(LogItem::Record(record)), Some(reader))),
                    Ok(LogLine::CaughtUp) => Some((Ok(LogItem::CaughtUp), Some(reader))),
                    Ok(LogLine::Failed(why)) => Some((Err(DoorError::Failed(why)), None)),
                    Err(error) => broken(error.to_string()),
                },
            }
        });
        Ok(items.boxed())
    }

    async fn remote_exec(&self, node: NodeId, asked: &ExecRequest) -> Result<ExecSession, DoorError> {
        let failed = |why: String| DoorError::Unreachable { node, why };
        let json = serde_json::to_string(asked).map_err(|error| failed(error.to_string()))?;
        let encoded: String = json.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::POST;
        let path = format!("/api/v1/internal/door/exec?request={encoded}");
        *request.uri_mut() = path.parse().map_err(|error| failed(format!("{error}")))?;
        let upgrade = asked.protocol();
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, header::HeaderValue::from_static(upgrade));
        let response = self.ask(node, request).await;
        let response = response.map_err(|error| match error {
            // It knows the protocol of commands without a terminal alone.
            DoorError::Invalid(_) if asked.terminal.is_some() => DoorError::NotSupported(format!(
                "node {node} runs an older version of Dhow, which opens no terminals: upgrade it, or leave `-t` out"
            )),
            DoorError::Invalid(_) if asked.port.is_some() => DoorError::NotSupported(format!(
                "node {node} runs an older version of Dhow, which connects nobody to a port: upgrade it"
            )),
            other => other,
        })?;
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|error| failed(error.to_string()))?;
        let (reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        let (input, mut frames) = mpsc::channel::<ExecClientFrame>(EXEC_FRAMES_MAX);
        let (output, received) = mpsc::channel(EXEC_FRAMES_MAX);
        tokio::spawn(async move {
            tokio::select! {
                () = receive(reader, &output) => {}
                () = output.closed() => {}
                () = async {
                    while let Some(frame) = frames.recv().await {
                        if writer.write_all(&frame.encode()).await.is_err() || writer.flush().await.is_err() {
                            break;
                        }
                    }
                    // The input has ended; the command goes on.
                    std::future::pending().await
                } => {}
            }
        });
        Ok(ExecSession {
            input,
            output: received,
        })
    }
}

/// Hands frames over until the last one.
async fn receive(mut reader: impl tokio::io::AsyncRead + Unpin, output: &mpsc::Sender<ExecServerFrame>) {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    let cut_off = |why: &str| ExecServerFrame::Exit(ExecExit::Error(why.to_owned()));
    loop {
        let frame = match ExecServerFrame::decode(&buffer) {
            Ok(Some((frame, taken))) => {
                buffer.advance(taken);
                frame
            }
            Ok(None) => match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => cut_off("the node went away"),
                Ok(_) => continue,
            },
            Err(error) => cut_off(&error.to_string()),
        };
        let is_last = matches!(frame, ExecServerFrame::Exit(_));
        if output.send(frame).await.is_err() || is_last {
            return;
        }
    }
}

/// A question about one volume, whose name stands in the query.
fn volume_request(method: Method, what: &str, volume: &VolumeName, body: Body) -> Request<Body> {
    let json = serde_json::to_string(volume).unwrap_or_default();
    let encoded: String = json.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // Digits, letters and percent signs are an address.
    let path = format!("/api/v1/internal/door/volumes{what}?volume={encoded}");
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}

/// Another node's problem, as it would be told of this one.
fn told(node: NodeId, problem: Problem) -> DoorError {
    match ProblemCode::from_text(&problem.code) {
        Some(ProblemCode::NotFound) => DoorError::NotFound(problem.detail),
        Some(ProblemCode::Refused) => DoorError::Refused(problem.detail),
        Some(ProblemCode::Failed) => DoorError::Failed(problem.detail),
        Some(ProblemCode::InvalidSpec | ProblemCode::BadRequest) => DoorError::Invalid(problem.detail),
        Some(ProblemCode::NotSupported) => DoorError::NotSupported(problem.detail),
        Some(_) | None => DoorError::Unreachable {
            node,
            why: problem.detail,
        },
    }
}

impl NodeDoor for ClusterDoor {
    fn logs(&self, node: NodeId, query: LogQuery) -> Answer<'_, LogItems> {
        if node == self.own {
            return self.local.logs(node, query);
        }
        Box::pin(async move { self.remote_logs(node, &query).await })
    }

    fn exec(&self, node: NodeId, request: ExecRequest) -> Answer<'_, ExecSession> {
        if node == self.own {
            return self.local.exec(node, request);
        }
        Box::pin(async move { self.remote_exec(node, &request).await })
    }

    fn net_check(&self, node: NodeId, request: NetCheckRequest) -> Answer<'_, NetCheck> {
        if node == self.own {
            return self.local.net_check(node, request);
        }
        Box::pin(async move {
            let failed = |why: String| DoorError::Unreachable { node, why };
            let json = serde_json::to_string(&request).map_err(|error| failed(error.to_string()))?;
            let encoded: String = json.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let path = format!("/api/v1/internal/door/net-check?request={encoded}");
            self.get(node, &path).await
        })
    }

    fn pulls(&self, node: NodeId) -> Answer<'_, Vec<ReplicaPull>> {
        if node == self.own {
            return self.local.pulls(node);
        }
        Box::pin(async move { self.get(node, "/api/v1/internal/door/pulls").await })
    }

    fn volumes(&self, node: NodeId) -> Answer<'_, Vec<NodeVolume>> {
        if node == self.own {
            return self.local.volumes(node);
        }
        Box::pin(async move { self.get(node, "/api/v1/internal/door/volumes").await })
    }

    fn remove_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, ()> {
        if node == self.own {
            return self.local.remove_volume(node, volume);
        }
        Box::pin(async move {
            let request = volume_request(Method::DELETE, "", &volume, Body::empty());
            self.ask(node, request).await.map(drop)
        })
    }

    fn backup_volume(&self, node: NodeId, volume: VolumeName) -> Answer<'_, VolumeBytes> {
        if node == self.own {
            return self.local.backup_volume(node, volume);
        }
        Box::pin(async move {
            let request = volume_request(Method::GET, "/content", &volume, Body::empty());
            let response = self.ask(node, request).await?;
            let broken = move |error: hyper::Error| DoorError::Unreachable {
                node,
                why: format!("the archive broke off: {error}"),
            };
            Ok(response.into_body().into_data_stream().map_err(broken).boxed())
        })
    }

    fn restore_volume(&self, node: NodeId, volume: VolumeName, bytes: VolumeBytes) -> Answer<'_, ()> {
        if node == self.own {
            return self.local.restore_volume(node, volume, bytes);
        }
        Box::pin(async move {
            let body = Body::from_stream(bytes);
            let mut request = volume_request(Method::PUT, "/content", &volume, body);
            let tar = header::HeaderValue::from_static(TAR_MEDIA_TYPE);
            request.headers_mut().insert(header::CONTENT_TYPE, tar);
            self.ask(node, request).await.map(drop)
        })
    }

    // Each node answers for itself: the API never passes another one's id.
    fn replicas(&self, node: NodeId) -> Answer<'_, Vec<PresentReplica>> {
        self.local.replicas(node)
    }

    fn service_state(&self, node: NodeId, service: ServiceKey) -> Answer<'_, NodeServiceState> {
        if node == self.own {
            return self.local.service_state(node, service);
        }
        Box::pin(async move {
            let ServiceKey { deployment, service } = service;
            let path = format!("/api/v1/internal/services/{service}/state?deployment={deployment}");
            self.get(node, &path).await
        })
    }

    // The same for images.
    fn images(&self, node: NodeId) -> Answer<'_, Vec<ImageInfo>> {
        self.local.images(node)
    }

    fn pull_image(&self, node: NodeId, image: String) -> Answer<'_, PullSteps> {
        self.local.pull_image(node, image)
    }

    fn import_image(&self, node: NodeId, request: ImageImportRequest) -> Answer<'_, ImageName> {
        self.local.import_image(node, request)
    }

    fn remove_image(&self, node: NodeId, name: String) -> Answer<'_, ImagesRemoved> {
        self.local.remove_image(node, name)
    }

    fn prune_images(&self, node: NodeId) -> Answer<'_, ImagesRemoved> {
        self.local.prune_images(node)
    }

    fn resolve_image(&self, name: String, pull_policy: PullPolicy) -> Answer<'_, String> {
        self.local.resolve_image(name, pull_policy)
    }

    fn figures(&self) -> Answer<'_, Vec<EndpointFigures>> {
        self.local.figures()
    }

    fn relayed(&self) -> Answer<'_, RelayFigures> {
        self.local.relayed()
    }

    fn image_ports(&self, name: String) -> Answer<'_, Vec<ImagePort>> {
        self.local.image_ports(name)
    }
}
