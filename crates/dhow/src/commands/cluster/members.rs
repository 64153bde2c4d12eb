//! `dhow cluster add|remove`: who is a server of the cluster.

use std::net::SocketAddr;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::api::{MemberAddRequest, WriteDone};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Take a server in
///
/// Start its daemon first, with a configuration that names the present servers and itself, and with the cluster's key.
/// Returns when it has caught up and has a vote.
#[derive(clap::Args)]
pub struct AddArgs {
    #[arg(value_name = "NODE_ID", value_parser = clap::value_parser!(u64).range(1..=NodeId::MAX.0))]
    node: u64,

    /// Where the other servers reach it for consensus
    #[arg(long, value_name = "IP:PORT")]
    raft_addr: SocketAddr,

    /// Where its API is
    #[arg(long, value_name = "IP:PORT")]
    api_addr: SocketAddr,
}

/// Take a server's vote away
///
/// Drain the node first where it runs replicas: this only ends its part in consensus.
#[derive(clap::Args)]
pub struct RemoveArgs {
    #[arg(value_name = "NODE_ID")]
    node: u64,

    /// Also where too few servers would be left to agree
    #[arg(long)]
    force: bool,
}

/// How long nothing is said of a server that is taken in.
const SAID_AFTER: Duration = Duration::from_secs(2);

pub async fn add(args: &AddArgs, client: &Client) -> anyhow::Result<Exit> {
    let body = serde_json::to_value(MemberAddRequest {
        node_id: args.node,
        raft_addr: args.raft_addr,
        api_addr: args.api_addr,
    })?;
    let request = Request::post(&["cluster", "members"]).json(body);
    let mut adding = std::pin::pin!(client.fetch_slow(request));
    // A refusal comes at once; whoever waits longer than that waits for the newcomer.
    let value = tokio::select! {
        value = &mut adding => value,
        () = tokio::time::sleep(SAID_AFTER) => {
            output::note(&format!("node {} catches up", args.node));
            adding.await
        }
    }?;
    let _: WriteDone = client.decode(value)?;
    output::note(&format!("node {} is a server of the cluster", args.node));
    Ok(Exit::Done)
}

pub async fn remove(args: &RemoveArgs, client: &Client) -> anyhow::Result<Exit> {
    let node = args.node.to_string();
    let path = ["cluster", "members", node.as_str()];
    let request = Request::delete(&path).query("force", args.force);
    let value = client.fetch_slow(request).await?;
    let _: WriteDone = client.decode(value)?;
    output::note(&format!("node {node} is a server of the cluster no more"));
    Ok(Exit::Done)
}
