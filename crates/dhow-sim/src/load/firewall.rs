//! Packets that are dropped: rules of the host's firewall, for a load run as root. They go with their guard.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, ensure};

/// Where a rule stands, and what it drops.
#[derive(Clone, Debug)]
struct Rule {
    chain: &'static str,
    matches: Vec<String>,
}

impl Rule {
    fn new(chain: &'static str, matches: &str) -> Self {
        let matches = matches.split(' ').map(str::to_owned).collect();
        Self { chain, matches }
    }

    fn told(&self, verb: &str) -> Command {
        let mut iptables = Command::new("iptables");
        iptables.args(["-w", verb, self.chain]).args(&self.matches);
        iptables.args(["-j", "DROP"]);
        iptables
    }
}

/// Rules that drop some packets; they go with this.
pub struct Firewall {
    rules: Vec<Rule>,
}

impl Firewall {
    /// Nothing comes from or goes to these subnets of 256 addresses each.
    pub fn around_subnets(subnets: impl Iterator<Item = Ipv4Addr>) -> anyhow::Result<Self> {
        let rules = subnets.flat_map(|subnet| {
            let [a, b, c, _] = subnet.octets();
            ["-s", "-d"].map(|direction| Rule::new("INPUT", &format!("{direction} {a}.{b}.{c}.0/24")))
        });
        Self::with(rules.collect())
    }

    /// Nothing comes to this port, or from it.
    pub fn around_port(port: u16) -> anyhow::Result<Self> {
        let rules = ["--dport", "--sport"].map(|side| Rule::new("INPUT", &format!("-p tcp {side} {port}")));
        Self::with(rules.to_vec())
    }

    /// What processes of each of these groups send to the ports beside it is dropped.
    pub fn between(groups: [(u32, &[u16]); 2]) -> anyhow::Result<Self> {
        let rules = groups.into_iter().flat_map(|(group, ports)| {
            ports.iter().map(move |port| {
                Rule::new(
                    "OUTPUT",
                    &format!("-p tcp --dport {port} -m owner --gid-owner {group}"),
                )
            })
        });
        Self::with(rules.collect())
    }

    fn with(rules: Vec<Rule>) -> anyhow::Result<Self> {
        let mut firewall = Self { rules: Vec::new() };
        for rule in rules {
            let mut iptables = rule.told("-I");
            let status = iptables.status().context("iptables cannot be started")?;
            ensure!(status.success(), "{iptables:?} failed; run this as root");
            firewall.rules.push(rule);
        }
        Ok(firewall)
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        for rule in &self.rules {
            let mut iptables = rule.told("-D");
            // A rule that stays is named, so that whoever runs this can remove it.
            if !iptables.status().is_ok_and(|status| status.success()) {
                eprintln!("{iptables:?} failed; do it by hand");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_what_is_taken_out() {
        let rule = Rule::new("OUTPUT", "-p tcp --dport 7 -m owner --gid-owner 9");
        let words = |verb| {
            let told = rule.told(verb);
            let words: Vec<_> = told
                .get_args()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            words.join(" ")
        };
        let rest = "OUTPUT -p tcp --dport 7 -m owner --gid-owner 9 -j DROP";
        assert_eq!(words("-I"), format!("-w -I {rest}"));
        assert_eq!(words("-D"), format!("-w -D {rest}"));
    }
}
