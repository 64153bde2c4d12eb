//! The way from a holder to the server that leads: gRPC over TLS between members, one connection for beats and one for
//! the rest, so that a beat never waits behind reports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::http::{Request as HttpRequest, Response as HttpResponse, StatusCode};
use dhow_core::ids::NodeId;
use dhow_wire::grpc::proto::{
    HeldAcks, HeldRenewal, HeldReports, HolderBeat, HolderBeatAnswer, OpenReply, OpenRequest, RegisterReply,
    RegisterRequest, RenewReply,
};
use dhow_wire::grpc::{HoldersClient, MESSAGE_BYTES_MAX, Refusal};
use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tonic::{Code, Request, Status};

use super::options::SessionAddress;
use crate::net::peer_http::{Dialed, Dialer};

/// What stands in the place of a host in every request: who the server is was settled by the dialer.
const ORIGIN: &str = "http://localhost";

/// Asks the server that leads. An answer may never come; whoever asks has a deadline.
pub trait LeaderDoor: Send + Sync + 'static {
    fn open(&self, leader: NodeId, request: OpenRequest) -> BoxFuture<'_, Result<OpenReply, Refusal>>;

    fn beat(&self, leader: NodeId, beat: HolderBeat) -> BoxFuture<'_, Result<HolderBeatAnswer, Refusal>>;

    fn report(&self, leader: NodeId, reports: HeldReports) -> BoxFuture<'_, Result<HeldAcks, Refusal>>;

    fn register(
        &self,
        leader: NodeId,
        request: RegisterRequest,
    ) -> BoxFuture<'_, Result<RegisterReply, Refusal>>;

    fn renew(&self, leader: NodeId, renewal: HeldRenewal) -> BoxFuture<'_, Result<RenewReply, Refusal>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Beats,
    Rest,
}

/// A connection's client. A server of an older version answers what it does not know as its API does, with 404 and a
/// text, which gRPC would take for a broken message.
#[derive(Clone)]
struct Wire(Client<LeaderConnector, tonic::body::Body>);

impl tower::Service<HttpRequest<tonic::body::Body>> for Wire {
    type Response = HttpResponse<Incoming>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<tonic::body::Body>) -> Self::Future {
        let answered = self.0.request(request);
        Box::pin(async move {
            let answer = answered.await?;
            match answer.status() {
                StatusCode::NOT_FOUND => Err(Status::unimplemented("there is no such service").into()),
                _ => Ok(answer),
            }
        })
    }
}

/// The way over the network.
pub struct GrpcLeaderDoor {
    dialer: Arc<dyn Dialer>,
    /// Where members take calls of other members.
    address: Arc<SessionAddress>,
    /// Kept per lane, server and address; a few.
    wires: Mutex<BTreeMap<(Lane, NodeId), (SocketAddr, Wire)>>,
}

impl GrpcLeaderDoor {
    /// The dialer speaks HTTP/2.
    pub fn new(dialer: Arc<dyn Dialer>, address: Arc<SessionAddress>) -> Self {
        Self {
            dialer,
            address,
            wires: Mutex::default(),
        }
    }

    fn client(&self, lane: Lane, leader: NodeId) -> Result<HoldersClient<Wire>, Refusal> {
        let address = (self.address)(leader).and_then(|text| text.parse::<SocketAddr>().ok());
        let addr = address.ok_or(Refusal::NotLeader { leader: None })?;
        let mut wires = self.wires.lock().unwrap_or_else(PoisonError::into_inner);
        let known = wires.get(&(lane, leader)).filter(|(known, _)| *known == addr);
        let wire = match known {
            Some((_, wire)) => wire.clone(),
            None => {
                let connector = LeaderConnector {
                    dialer: Arc::clone(&self.dialer),
                    leader,
                    addr,
                };
                let wire = Client::builder(TokioExecutor::new())
                    .pool_timer(TokioTimer::new())
                    .timer(TokioTimer::new())
                    .http2_only(true)
                    .http2_keep_alive_interval(Some(super::limits::DOOR_PING_EVERY))
                    .http2_keep_alive_timeout(super::limits::DOOR_PING_TIMEOUT)
                    .build(connector);
                let wire = Wire(wire);
                wires.insert((lane, leader), (addr, wire.clone()));
                wire
            }
        };
        Ok(HoldersClient::with_origin(wire, Uri::from_static(ORIGIN))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }
}

/// What a holder makes of an answer, and of one that is none: a leader of an older version does not know the question, and gives
/// nothing; one that cannot be reached is none.
fn answered<T>(reply: Result<tonic::Response<T>, Status>) -> Result<T, Refusal> {
    reply
        .map(tonic::Response::into_inner)
        .map_err(|status| match status.code() {
            Code::Unimplemented => Refusal::NotGiven("the server that leads is of an older version".into()),
            _ => Refusal::from_status(&status).unwrap_or(Refusal::NotLeader { leader: None }),
        })
}

impl LeaderDoor for GrpcLeaderDoor {
    fn open(&self, leader: NodeId, request: OpenRequest) -> BoxFuture<'_, Result<OpenReply, Refusal>> {
        Box::pin(async move {
            let mut client = self.client(Lane::Rest, leader)?;
            let reply = client.open(Request::new(request)).await;
            answered(reply)
        })
    }

    fn beat(&self, leader: NodeId, beat: HolderBeat) -> BoxFuture<'_, Result<HolderBeatAnswer, Refusal>> {
        Box::pin(async move {
            let mut client = self.client(Lane::Beats, leader)?;
            let answer = client.beat(Request::new(beat)).await;
            answered(answer)
        })
    }

    fn report(&self, leader: NodeId, reports: HeldReports) -> BoxFuture<'_, Result<HeldAcks, Refusal>> {
        Box::pin(async move {
            let mut client = self.client(Lane::Rest, leader)?;
            let acks = client.report(Request::new(reports)).await;
            answered(acks)
        })
    }

    fn register(
        &self,
        leader: NodeId,
        request: RegisterRequest,
    ) -> BoxFuture<'_, Result<RegisterReply, Refusal>> {
        Box::pin(async move {
            let mut client = self.client(Lane::Rest, leader)?;
            let reply = client.register(Request::new(request)).await;
            answered(reply)
        })
    }

    fn renew(&self, leader: NodeId, renewal: HeldRenewal) -> BoxFuture<'_, Result<RenewReply, Refusal>> {
        Box::pin(async move {
            let mut client = self.client(Lane::Rest, leader)?;
            let reply = client.renew(Request::new(renewal)).await;
            answered(reply)
        })
    }
}

/// Connects to one server alone.
#[derive(Clone)]
struct LeaderConnector {
    dialer: Arc<dyn Dialer>,
    leader: NodeId,
    addr: SocketAddr,
}

impl tower::Service<Uri> for LeaderConnector {
    type Response = TokioIo<Dialed>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, std::io::Result<TokioIo<Dialed>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialing = self.dialer.dial(self.leader, self.addr);
        Box::pin(async move {
            let dialed = tokio::time::timeout(super::limits::DOOR_CONNECT_TIMEOUT, dialing).await;
            let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "it does not answer");
            Ok(TokioIo::new(Dialed(dialed.map_err(|_| late())??)))
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use dhow_wire::ByteStream;
    use hyper::server::conn::http2;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    /// A server that does not know the service.
    struct Older;

    impl Dialer for Older {
        fn dial(&self, _: NodeId, _: SocketAddr) -> BoxFuture<'static, std::io::Result<Box<dyn ByteStream>>> {
            let (here, there) = tokio::io::duplex(64 * 1024);
            let text = r#"{"title":"there is no such address"}"#;
            let router = Router::new().fallback(async move || (StatusCode::NOT_FOUND, text));
            let service = TowerToHyperService::new(router);
            tokio::spawn(
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(there), service),
            );
            Box::pin(std::future::ready(Ok(Box::new(here) as Box<dyn ByteStream>)))
        }
    }

    #[tokio::test]
    async fn a_leader_of_an_older_version_is_known_by_its_answer() {
        let door = GrpcLeaderDoor::new(Arc::new(Older), Arc::new(|_| Some("127.0.0.1:1".to_owned())));
        let older = |refusal| matches!(refusal, Err(Refusal::NotGiven(_)));
        let node = NodeId(1);
        assert!(older(door.beat(node, HolderBeat::default()).await.map(drop)));
        assert!(older(door.open(node, OpenRequest::default()).await.map(drop)));
        assert!(older(door.report(node, HeldReports::default()).await.map(drop)));
    }
}
