//! Several hosts on one machine: a bridge in a namespace of its own, and a namespace with one link to it for each node.
//! Needs root. Everything goes with it.

use std::process::Command;
use std::time::Duration;

use super::{Relay, host};

/// The same in every network: they do not see each other.
const SUBNET: &str = "10.213.0";

/// Behind a router.
const HOME: &str = "192.168.213";

/// A bridge and one network namespace for each node of a test, which the test can cut off, heal and slow down.
pub struct Network {
    name: String,
    nodes: usize,
    /// For each node, where its network is slow at times.
    relays: Vec<Relay>,
}

/// Ports of a server, and where its relay takes what comes to them.
const RELAYED: [(u16, u16); 3] = [(4668, 3668), (4669, 3669), (4670, 3670)];

impl Network {
    /// Why there can be none here.
    pub fn obstacle() -> Option<String> {
        if !host::is_root() {
            return Some("network namespaces need root".into());
        }
        let missing = ["ip", "nft", "nsenter"].into_iter().find(|program| {
            let tried = Command::new(program).arg("-V").output();
            tried.is_err()
        });
        missing.map(|program| format!("`{program}` is not installed"))
    }

    pub fn new(name: &str, nodes: usize) -> Self {
        let network = Self {
            name: format!("dhow-{}-{name}", std::process::id()),
            nodes,
            relays: Vec::new(),
        };
        let bridge = network.bridge();
        run(&format!("ip netns add {bridge}"));
        run(&format!("ip -n {bridge} link add br0 type bridge"));
        run(&format!("ip -n {bridge} link set br0 up"));
        run(&format!("ip netns exec {bridge} nft add table bridge lab"));
        run(&format!(
            "ip netns exec {bridge} nft add chain bridge lab forward {{ type filter hook forward priority 0 ; }}"
        ));
        for node in 0..nodes {
            let own = network.namespace(node);
            run(&format!("ip netns add {own}"));
            run(&format!(
                "ip -n {own} link add eth0 type veth peer name p{node} netns {bridge}"
            ));
            run(&format!(
                "ip -n {own} addr add {}/24 dev eth0",
                network.addr(node)
            ));
            run(&format!("ip -n {own} link set eth0 up"));
            run(&format!("ip -n {own} link set lo up"));
            run(&format!("ip -n {bridge} link set p{node} master br0"));
            run(&format!("ip -n {bridge} link set p{node} up"));
        }
        network
    }

    /// One in which what reaches a node can be slow.
    pub fn with_relays(name: &str, nodes: usize) -> Self {
        let mut network = Self::new(name, nodes);
        for node in 0..nodes {
            let own = network.namespace(node);
            run(&format!("ip netns exec {own} nft add table ip lab"));
            run(&format!(
                "ip netns exec {own} nft add chain ip lab in {{ type nat hook prerouting priority -100 ; }}"
            ));
            for (relay, port) in RELAYED {
                run(&format!(
                    "ip netns exec {own} nft add rule ip lab in iifname eth0 tcp dport {port} redirect to :{relay}"
                ));
            }
            let relay = Relay::new(&own, &network.addr(node), &RELAYED);
            network.relays.push(relay);
        }
        network
    }

    /// Puts a node behind a router that translates addresses, as at home: it reaches all others, and nobody reaches it.
    pub fn behind_nat(&self, node: usize) {
        let (own, router, bridge) = (self.namespace(node), self.router(node), self.bridge());
        run(&format!("ip -n {own} link del eth0"));
        run(&format!("ip netns add {router}"));
        run(&format!(
            "ip -n {router} link add wan type veth peer name p{node} netns {bridge}"
        ));
        run(&format!(
            "ip -n {own} link add eth0 type veth peer name lan netns {router}"
        ));
        run(&format!("ip -n {router} addr add {}/24 dev wan", self.addr(node)));
        run(&format!("ip -n {router} addr add {HOME}.1/24 dev lan"));
        run(&format!("ip -n {own} addr add {HOME}.2/24 dev eth0"));
        run(&format!("ip -n {bridge} link set p{node} master br0"));
        for (namespace, link) in [
            (&bridge, format!("p{node}")),
            (&router, "wan".into()),
            (&router, "lan".into()),
            (&own, "eth0".into()),
        ] {
            run(&format!("ip -n {namespace} link set {link} up"));
        }
        run(&format!("ip -n {own} route add default via {HOME}.1"));
        run(&format!(
            "ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1"
        ));
        run(&format!("ip netns exec {router} nft add table ip home"));
        run(&format!(
            "ip netns exec {router} nft add chain ip home out {{ type nat hook postrouting priority 100 ; }}"
        ));
        run(&format!(
            "ip netns exec {router} nft add rule ip home out oifname wan masquerade"
        ));
        run(&format!(
            "ip netns exec {router} nft add chain ip home pass {{ type filter hook forward priority 0 ; policy drop ; }}"
        ));
        run(&format!(
            "ip netns exec {router} nft add rule ip home pass iifname lan accept"
        ));
        run(&format!(
            "ip netns exec {router} nft add rule ip home pass ct state established,related accept"
        ));
    }

    fn router(&self, node: usize) -> String {
        format!("{}-{node}-nat", self.name)
    }

    fn bridge(&self) -> String {
        format!("{}-br", self.name)
    }

    pub fn namespace(&self, node: usize) -> String {
        format!("{}-{node}", self.name)
    }

    pub fn addr(&self, node: usize) -> String {
        format!("{SUBNET}.{}", node + 1)
    }

    /// Nothing gets to the node or from it any more.
    pub fn cut(&self, node: usize) {
        run(&format!("ip -n {} link set p{node} down", self.bridge()));
    }

    /// Nothing gets from one node to the other any more, nor back.
    pub fn part(&self, one: usize, other: usize) {
        let bridge = self.bridge();
        for (from, to) in [(one, other), (other, one)] {
            run(&format!(
                "ip netns exec {bridge} nft add rule bridge lab forward iifname p{from} oifname p{to} drop"
            ));
        }
    }

    pub fn heal(&self, node: usize) {
        run(&format!("ip -n {} link set p{node} up", self.bridge()));
    }

    /// What others send to the node, and what it answers them, takes so long from now on.
    pub fn delay(&self, node: usize, by: Duration) {
        self.relays[node].delay(by);
    }

    /// So many of a hundred packets are lost on their way between nodes, until it is called with 0.
    pub fn lose(&self, percent: u32) {
        let bridge = self.bridge();
        run(&format!(
            "ip netns exec {bridge} nft flush chain bridge lab forward"
        ));
        if percent > 0 {
            run(&format!(
                "ip netns exec {bridge} nft add rule bridge lab forward numgen random mod 100 < {percent} drop"
            ));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A namespace lives as long as anybody is in it.
        self.relays.clear();
        for node in 0..self.nodes {
            let _ = try_run(&format!("ip netns del {}", self.namespace(node)));
            // Few nodes have one.
            let _ = try_run(&format!("ip netns del {}", self.router(node)));
        }
        let _ = try_run(&format!("ip netns del {}", self.bridge()));
    }
}

fn try_run(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn run(line: &str) {
    if let Err(why) = try_run(line) {
        panic!("`{line}`: {why}");
    }
}
