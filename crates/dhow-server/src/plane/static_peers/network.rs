//! The peers over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use dhow_core::branches::Lost;
use dhow_core::ids::NodeId;
use dhow_wire::api::HealthDocument;
use dhow_wire::{InternalScaleRequest, Problem};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{self, Leaving, POSITION, PositionHead};
use crate::net::peer_http::PeerHttp;
use crate::plane::log::copied::{
    Claim, ClaimAnswer, Copies, CopyAnswer, CopyNetwork, PeerBeat, Silent, WHOLE_BYTES_MAX, Whole,
};
use crate::plane::scale::{HeldListing, ScaleTarget};

/// The longest answer in JSON.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where a peer's API is.
pub type AddrOfPeer = dyn Fn(u64) -> Option<SocketAddr> + Send + Sync;

/// The other peers of a static cluster as the copied log asks them over HTTP; clones share connections.
#[derive(Clone)]
pub struct StaticNetwork {
    peers: PeerHttp,
    addr_of: Arc<AddrOfPeer>,
}

impl StaticNetwork {
    pub fn new(peers: PeerHttp, addr_of: Arc<AddrOfPeer>) -> Self {
        Self { peers, addr_of }
    }

    async fn ask(
        &self,
        peer: u64,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
        limit: usize,
    ) -> Result<(header::HeaderMap, Bytes), Silent> {
        let silent = |why: String| Silent(why);
        let addr = (self.addr_of)(peer).ok_or_else(|| silent(format!("no peer {peer} is configured")))?;
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse::<Uri>().map_err(|error| silent(error.to_string()))?;
        if let Some((kind, bytes)) = body {
            let kind = HeaderValue::from_static(kind);
            request.headers_mut().insert(header::CONTENT_TYPE, kind);
            *request.body_mut() = Body::from(bytes);
        }
        let response = self.peers.send(NodeId(peer), addr, request).await;
        let response = response.map_err(|error| silent(error.to_string()))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, limit).collect().await;
        let bytes = body.map_err(|error| silent(error.to_string()))?.to_bytes();
        if parts.status.is_success() {
            return Ok((parts.headers, bytes));
        }
        let problem = serde_json::from_slice::<Problem>(&bytes).ok();
        Err(Silent(match problem {
            Some(problem) => problem.detail,
            None => format!("it answered {}", parts.status),
        }))
    }

    async fn get<T: DeserializeOwned>(&self, peer: u64, path: &str) -> Result<T, Silent> {
        let (_, bytes) = self.ask(peer, Method::GET, path, None, ANSWER_BYTES_MAX).await?;
        serde_json::from_slice(&bytes).map_err(|error| Silent(error.to_string()))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        peer: u64,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Silent> {
        let body = serde_json::to_vec(body).map_err(|error| Silent(error.to_string()))?;
        let body = Some(("application/json", Bytes::from(body)));
        let (_, bytes) = self.ask(peer, Method::POST, path, body, ANSWER_BYTES_MAX).await?;
        serde_json::from_slice(&bytes).map_err(|error| Silent(error.to_string()))
    }

    async fn put(&self, peer: u64, path: &str, bytes: Bytes) -> Result<CopyAnswer, Silent> {
        let body = Some(("application/octet-stream", bytes));
        let (_, bytes) = self.ask(peer, Method::POST, path, body, ANSWER_BYTES_MAX).await?;
        serde_json::from_slice(&bytes).map_err(|error| Silent(error.to_string()))
    }

    /// Tells the leader what was lost here.
    pub async fn conflicts(&self, peer: u64, lost: &Lost) -> Result<(), Silent> {
        self.post(peer, "/api/v1/internal/conflicts", lost).await
    }
}

impl CopyNetwork for StaticNetwork {
    fn beat(&self, peer: u64) -> BoxFuture<'_, Result<PeerBeat, Silent>> {
        async move {
            let health: HealthDocument = self.get(peer, "/health").await?;
            let said = health.peer.ok_or_else(|| {
                Silent(format!(
                    "what answers at the address of peer {peer} is no static peer"
                ))
            })?;
            if said.node_id != peer {
                return Err(Silent(format!(
                    "the address of peer {peer} is answered by node {}",
                    said.node_id
                )));
            }
            Ok(PeerBeat {
                epoch: said.epoch,
                index: said.revision,
                promised: said.promised,
                leads: said.leads,
                leaving: said.leaving,
                peers_hash: said.peers_hash,
            })
        }
        .boxed()
    }

    fn claim(&self, peer: u64, claim: Claim) -> BoxFuture<'_, Result<ClaimAnswer, Silent>> {
        async move { self.post(peer, "/api/v1/internal/copies/claim", &claim).await }.boxed()
    }

    fn copy(&self, peer: u64, copies: Copies) -> BoxFuture<'_, Result<CopyAnswer, Silent>> {
        async move {
            self.put(peer, "/api/v1/internal/copies", frame::encode(&copies))
                .await
        }
        .boxed()
    }

    fn put_whole(&self, peer: u64, whole: Whole) -> BoxFuture<'_, Result<CopyAnswer, Silent>> {
        async move {
            let Whole {
                node, epoch, index, ..
            } = whole;
            let path = format!("/api/v1/internal/copies/whole?node={node}&epoch={epoch}&index={index}");
            self.put(peer, &path, whole.bytes).await
        }
        .boxed()
    }

    fn whole(&self, peer: u64) -> BoxFuture<'_, Result<Whole, Silent>> {
        async move {
            let path = "/api/v1/internal/copies/whole";
            let (headers, bytes) = self.ask(peer, Method::GET, path, None, WHOLE_BYTES_MAX).await?;
            let at = headers.get(&POSITION).and_then(|value| value.to_str().ok());
            let at = at.and_then(|text| serde_json::from_str::<PositionHead>(text).ok());
            let at = at.ok_or_else(|| Silent("it does not say where its copy ends".into()))?;
            Ok(Whole {
                node: peer,
                epoch: at.epoch,
                index: at.index,
                bytes,
            })
        }
        .boxed()
    }

    fn leave(&self, peer: u64, node: u64) -> BoxFuture<'_, Result<(), Silent>> {
        async move {
            self.post(peer, "/api/v1/internal/leaving", &Leaving { node })
                .await
        }
        .boxed()
    }
}

impl ScaleTarget for StaticNetwork {
    fn held(&self, node: NodeId) -> BoxFuture<'_, Result<HeldListing, String>> {
        async move {
            let held = self.get(node.0, "/api/v1/internal/assignments").await;
            held.map_err(|error| error.0)
        }
        .boxed()
    }

    fn scale(&self, node: NodeId, request: InternalScaleRequest) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let done = self.post::<serde::de::IgnoredAny>(node.0, "/api/v1/internal/scale", &request);
            done.await.map(drop).map_err(|error| error.0)
        }
        .boxed()
    }
}
