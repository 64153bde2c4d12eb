//! The way of a holder to the leader inside one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dhow_core::ids::NodeId;
use dhow_server::gateway::{LeaderDoor, NodeGateway};
use dhow_server::net::identity::Identity;
use dhow_server::net::identity::Peer;
use dhow_wire::grpc::proto::{
    HeldAcks, HeldRenewal, HeldReports, HolderBeat, HolderBeatAnswer, OpenReply, OpenRequest, RegisterReply,
    RegisterRequest, RenewReply,
};
use dhow_wire::grpc::{Holders, Refusal};
use futures_util::future::BoxFuture;
use tonic::{Request, Response, Status};

/// All servers of a cluster, by their ids.
#[derive(Default)]
pub struct NearDoors {
    gateways: Mutex<BTreeMap<NodeId, NodeGateway>>,
}

impl NearDoors {
    pub fn add(&self, server: NodeId, gateway: NodeGateway) {
        self.gateways.lock().unwrap().insert(server, gateway);
    }

    /// The way of one server.
    pub fn of(self: Arc<Self>, server: NodeId) -> Arc<dyn LeaderDoor> {
        Arc::new(NearDoor {
            doors: self,
            own: server,
        })
    }
}

struct NearDoor {
    doors: Arc<NearDoors>,
    own: NodeId,
}

impl NearDoor {
    fn leader(&self, leader: NodeId) -> Result<NodeGateway, Refusal> {
        let gateways = self.doors.gateways.lock().unwrap();
        let leader = gateways.get(&leader).cloned();
        leader.ok_or(Refusal::NotLeader { leader: None })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        as_member(self.own, message)
    }
}

/// A request that a member's certificate proves.
pub fn as_member<T>(member: NodeId, message: T) -> Request<T> {
    as_identity(Identity::Member(member), message)
}

/// A request that a certificate proves.
pub fn as_identity<T>(identity: Identity, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Peer::Tls {
        addr: ([127, 0, 0, 1], 1).into(),
        identity: Some(identity),
    });
    request
}

fn answer<T>(answered: Result<Response<T>, Status>) -> Result<T, Refusal> {
    let refused = |status: Status| Refusal::from_status(&status).unwrap_or(Refusal::Busy);
    answered.map(Response::into_inner).map_err(refused)
}

impl LeaderDoor for NearDoor {
    fn open(&self, leader: NodeId, request: OpenRequest) -> BoxFuture<'_, Result<OpenReply, Refusal>> {
        Box::pin(async move { answer(self.leader(leader)?.open(self.request(request)).await) })
    }

    fn beat(&self, leader: NodeId, beat: HolderBeat) -> BoxFuture<'_, Result<HolderBeatAnswer, Refusal>> {
        Box::pin(async move { answer(self.leader(leader)?.beat(self.request(beat)).await) })
    }

    fn report(&self, leader: NodeId, reports: HeldReports) -> BoxFuture<'_, Result<HeldAcks, Refusal>> {
        Box::pin(async move { answer(self.leader(leader)?.report(self.request(reports)).await) })
    }

    fn register(
        &self,
        leader: NodeId,
        request: RegisterRequest,
    ) -> BoxFuture<'_, Result<RegisterReply, Refusal>> {
        Box::pin(async move {
            let leader = self.leader(leader)?;
            answer(Holders::register(&leader, self.request(request)).await)
        })
    }

    fn renew(&self, leader: NodeId, renewal: HeldRenewal) -> BoxFuture<'_, Result<RenewReply, Refusal>> {
        Box::pin(async move {
            let leader = self.leader(leader)?;
            answer(Holders::renew(&leader, self.request(renewal)).await)
        })
    }
}
