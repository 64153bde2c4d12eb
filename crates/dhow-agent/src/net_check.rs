//! Tries a call from inside a replica of this node: what the name means there, whether the endpoint lets the caller in,
//! which replicas are ready, and whether a connection comes about. The daemon's API asks for it.

mod probe;

use std::net::Ipv4Addr;
use std::time::Duration;

use dhow_core::ids::{NodeId, ReplicaName, ServiceKey};
use dhow_core::spec::Runtime;
use dhow_driver::driver::{Cause, Driver, DriverResult, ReplicaStatus, Stage, error_chain};
use dhow_wire::api::{NetCheck, NetStep, NetStepKind, NetVerdict};
use dhow_wire::door::NetCheckRequest;

use crate::balance::{Balancer, CallWay, NoWay, There};
use crate::drivers::Drivers;
use crate::proxy::Transport;
use probe::{Asked, Tried};

pub use probe::main as probe_main;

/// How long a connection is watched that a replica should hold open.
const WATCH: Duration = Duration::from_millis(400);

/// The steps that were taken, the last of which decides.
struct Steps(Vec<NetStep>);

impl Steps {
    fn add(&mut self, step: NetStepKind, ok: bool, text: impl Into<String>) {
        let text = text.into();
        self.0.push(NetStep { step, ok, text });
    }
}

pub async fn check(
    node: NodeId,
    drivers: &Drivers,
    balancer: &dyn Balancer,
    request: &NetCheckRequest,
) -> DriverResult<NetCheck> {
    let name = &request.replica;
    let caller = Caller::find(drivers, name).await?;
    let mut steps = Steps(Vec::new());
    let way = balancer
        .way(
            &name.service_key(),
            caller.runtime,
            &request.to,
            &request.endpoint,
        )
        .await;
    let verdict = match way {
        Ok(way) => caller.call(request, &way, &mut steps).await,
        Err(why) => {
            steps.add(NetStepKind::Name, false, no_way(node, request, &why));
            NetVerdict::NoName
        }
    };
    Ok(NetCheck {
        from: name.to_string(),
        node_id: node.0,
        to: request.to.to_string(),
        endpoint: request.endpoint.clone(),
        verdict,
        steps: steps.0,
    })
}

fn no_way(node: NodeId, request: &NetCheckRequest, why: &NoWay) -> String {
    let NetCheckRequest { to, endpoint, .. } = request;
    match why {
        NoWay::Service => format!("node {node} does not know {to}: it has no name there"),
        NoWay::Endpoint(known) => format!(
            "node {node} knows no endpoint {endpoint} of {to}, only {}",
            known.join(", ")
        ),
        NoWay::Address => {
            format!("{to} has no address on node {node}: the daemon's log there says why there are no names")
        }
    }
}

/// The replica that calls.
struct Caller<'a> {
    name: &'a ReplicaName,
    runtime: Runtime,
    pid: u32,
    driver: &'a dyn Driver,
}

impl<'a> Caller<'a> {
    async fn find(drivers: &'a Drivers, name: &'a ReplicaName) -> DriverResult<Self> {
        let kinds = [
            (Runtime::Process, &drivers.process),
            (Runtime::Container, &drivers.container),
        ];
        for (runtime, driver) in kinds {
            if let Ok(ReplicaStatus::Running(running)) = driver.inspect(name).await {
                return Ok(Self {
                    name,
                    runtime,
                    pid: running.pid,
                    driver: driver.as_ref(),
                });
            }
        }
        Err(Cause::NotRunning.at(Stage::Exec, name))
    }

    async fn call(&self, request: &NetCheckRequest, way: &CallWay, steps: &mut Steps) -> NetVerdict {
        if !self.find_name(&request.to, way, steps).await {
            return NetVerdict::NoName;
        }
        let NetCheckRequest { to, endpoint, .. } = request;
        let own = self.name.service_key();
        if way.may_call {
            steps.add(
                NetStepKind::Rule,
                true,
                format!("{to} lets {own} call {endpoint}"),
            );
        }
        let ready = ready(way);
        let has_ready = ready.is_some();
        if let Some(ready) = ready.filter(|_| way.may_call) {
            steps.add(NetStepKind::Replicas, true, ready);
        }
        if way.transport == Transport::Datagram {
            return self.judge_datagrams(way, has_ready, steps);
        }
        // Without a replica the proxy holds on for a moment before it closes.
        let watch = match has_ready {
            true => WATCH,
            false => crate::proxy::BACKEND_WAIT + WATCH,
        };
        let (verdict, step, text) = match self.connect(way, watch).await {
            Ok(tried) => judge(tried, request, way, &own),
            Err(why) => {
                let text = format!("{} could not be tried: {why}", way.address);
                (NetVerdict::NotConnected, NetStepKind::Connect, text)
            }
        };
        steps.add(step, verdict == NetVerdict::Reachable, text);
        verdict
    }

    /// A datagram that nobody takes is lost without a word: only what is known can be told.
    fn judge_datagrams(&self, way: &CallWay, has_ready: bool, steps: &mut Steps) -> NetVerdict {
        if !way.may_call {
            let own = self.name.service_key();
            steps.add(
                NetStepKind::Rule,
                false,
                format!("datagrams of {own} are dropped: `expose` and `allow` do not let it in"),
            );
            return NetVerdict::Refused;
        }
        if !has_ready {
            steps.add(
                NetStepKind::Replicas,
                false,
                "no replica is ready: datagrams are dropped",
            );
            return NetVerdict::NoReplica;
        }
        NetVerdict::Reachable
    }

    /// What the name means for the caller.
    async fn find_name(&self, to: &ServiceKey, way: &CallWay, steps: &mut Steps) -> bool {
        let address = way.address.ip();
        let Some(server) = way.name_server else {
            steps.add(
                NetStepKind::Name,
                true,
                format!("{to} is {} for host programs", way.address),
            );
            return true;
        };
        let name = format!("{}.{}.dhow", to.service, to.deployment);
        let asked = probe::in_network_of(self.pid, {
            let name = name.clone();
            move || probe::look_up(server, &name)
        });
        match asked.await {
            Ok(Asked::Addresses(found)) if found.iter().any(|found| *found == address) => {
                steps.add(NetStepKind::Name, true, format!("{name} is {address}"));
                true
            }
            Ok(Asked::Addresses(found)) => {
                let text = format!("{name} is {}, not {address}", listed(&found));
                steps.add(NetStepKind::Name, false, text);
                false
            }
            Ok(Asked::Failed(code)) => {
                steps.add(
                    NetStepKind::Name,
                    false,
                    format!("the name server {server} says {code} to {name}"),
                );
                false
            }
            Err(error) => {
                let text = format!("the name server {server} does not answer for {name}: {error}");
                steps.add(NetStepKind::Name, false, text);
                false
            }
        }
    }

    async fn connect(&self, way: &CallWay, watch: Duration) -> Result<Tried, String> {
        let address = way.address;
        match self.runtime {
            Runtime::Container => {
                let tried = probe::in_network_of(self.pid, move || Ok(probe::connect(address, watch)));
                tried.await.map_err(|error| error.to_string())
            }
            // Who calls is known by the control group: it has to be a process of the replica.
            Runtime::Process => probe::from_replica(self.driver, self.name, address, watch)
                .await
                .map_err(|error| error_chain(&error)),
        }
    }
}

/// What became of a connection, and which step that is about.
fn judge(
    tried: Tried,
    request: &NetCheckRequest,
    way: &CallWay,
    own: &ServiceKey,
) -> (NetVerdict, NetStepKind, String) {
    let NetCheckRequest { to, endpoint, .. } = request;
    let at = way.address;
    let has_ready = !way.here.is_empty() || !way.there.is_empty();
    match tried {
        Tried::Reset if !way.may_call => (
            NetVerdict::Refused,
            NetStepKind::Rule,
            format!("{at} resets the connection: `expose` and `allow` of {endpoint} do not let {own} in"),
        ),
        Tried::Open | Tried::Closed if !has_ready => (
            NetVerdict::NoReplica,
            NetStepKind::Replicas,
            format!("no replica of {to} is ready: {at} takes the connection and nobody answers"),
        ),
        Tried::Open => (
            NetVerdict::Reachable,
            NetStepKind::Connect,
            format!("{at} takes the connection and holds it"),
        ),
        Tried::Closed => (
            NetVerdict::Reachable,
            NetStepKind::Connect,
            format!("{at} takes the connection, and the replica closes it"),
        ),
        Tried::Reset => (
            NetVerdict::NotConnected,
            NetStepKind::Connect,
            format!("{at} resets the connection"),
        ),
        Tried::Refused => (
            NetVerdict::NotConnected,
            NetStepKind::Connect,
            format!("nothing listens at {at} for {own}"),
        ),
        Tried::Silent => (
            NetVerdict::NotConnected,
            NetStepKind::Connect,
            format!("{at} does not answer"),
        ),
    }
}

fn ready(way: &CallWay) -> Option<String> {
    let mut parts = Vec::new();
    if !way.here.is_empty() {
        parts.push(format!("{} on this node, reached directly", way.here.join(", ")));
    }
    for There { id, node, relays } in &way.there {
        let relays: Vec<String> = relays.iter().map(u64::to_string).collect();
        parts.push(match relays.is_empty() {
            true => format!("{id} through the tunnel to node {node}"),
            false => format!(
                "{id} on node {node}, relayed through server {}",
                relays.join(" or ")
            ),
        });
    }
    (!parts.is_empty()).then(|| format!("ready: {}", parts.join("; ")))
}

fn listed(addresses: &[Ipv4Addr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
