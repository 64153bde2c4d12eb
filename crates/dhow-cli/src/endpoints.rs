//! The addresses of endpoints as whoever asks can use them.
//!
//! The API names an endpoint by an address of the node that serves it, `localhost`. That is right where the user sits on
//! such a node; elsewhere the node's own address takes its place, and what answers on its node alone is said to.

use dhow_wire::{ServedEndpoint, ServiceHealthSummary, ServingNode};

const LOCAL: &str = "//localhost:";

/// From where the endpoints are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewpoint {
    /// The machine that answers; none where the user sits on it.
    pub host: Option<String>,
    /// The node that answers, where that matters.
    pub node_id: Option<u64>,
}

impl Viewpoint {
    /// Whether it matters which node answers: not where all is on one machine.
    pub fn depends_on_node(served: &[ServedEndpoint]) -> bool {
        let mut nodes = served.iter().flat_map(|endpoint| &endpoint.nodes);
        nodes.any(|node| node.host.is_some())
    }

    /// The addresses of a service's endpoints, parted by spaces.
    pub fn addresses(&self, service: &ServiceHealthSummary, served: &[ServedEndpoint]) -> String {
        let shown = service.endpoints.iter().map(|address| {
            let same = |known: &&ServedEndpoint| known.service == service.name && known.address == *address;
            match served.iter().find(same) {
                Some(endpoint) => self.address(endpoint),
                // An older daemon does not say where.
                None => address.clone(),
            }
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn address(&self, endpoint: &ServedEndpoint) -> String {
        let is_here = |node: &&ServingNode| node.host.is_none() || Some(node.node_id) == self.node_id;
        let here = endpoint.nodes.iter().find(is_here);
        let elsewhere = endpoint.nodes.iter().find_map(|node| node.host.as_deref());
        match (here, &self.host, elsewhere, endpoint.public) {
            // Nobody serves it yet, or this very machine does.
            (Some(_), None, _, _) => endpoint.address.clone(),
            (None, None, None, _) => endpoint.address.clone(),
            (Some(_) | None, Some(host), None, true) => at(&endpoint.address, host),
            (Some(_), Some(host), Some(_), true) => at(&endpoint.address, host),
            (None, _, Some(host), true) => at(&endpoint.address, host),
            (_, _, _, false) => match endpoint.nodes.first() {
                Some(node) => format!("{} (on node {} alone)", endpoint.address, node.node_id),
                None => endpoint.address.clone(),
            },
        }
    }
}

fn at(address: &str, host: &str) -> String {
    let host = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    address.replacen(LOCAL, &format!("//{host}:"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(public: bool, nodes: &[(u64, Option<&str>)]) -> ServedEndpoint {
        ServedEndpoint {
            service: "web".into(),
            address: "http://localhost:8080".into(),
            public,
            nodes: nodes
                .iter()
                .map(|(node_id, host)| ServingNode {
                    node_id: *node_id,
                    host: host.map(str::to_owned),
                })
                .collect(),
            requests_per_second: None,
            errors_per_second: None,
        }
    }

    fn seen(host: Option<&str>, node_id: Option<u64>, endpoint: ServedEndpoint) -> String {
        let service = ServiceHealthSummary {
            name: "web".into(),
            endpoints: vec![endpoint.address.clone()],
            ..ServiceHealthSummary::default()
        };
        let viewpoint = Viewpoint {
            host: host.map(str::to_owned),
            node_id,
        };
        viewpoint.addresses(&service, &[endpoint])
    }

    #[test]
    fn an_address_works_from_where_the_user_is() {
        let local = "http://localhost:8080";
        let three = &[(2, Some("10.0.0.2")), (3, Some("10.0.0.3"))];
        // On one machine, at it and from afar.
        assert_eq!(seen(None, None, endpoint(false, &[(1, None)])), local);
        assert_eq!(seen(None, None, endpoint(true, &[])), local);
        assert_eq!(
            seen(Some("dhow.example"), None, endpoint(true, &[(1, None)])),
            "http://dhow.example:8080"
        );
        assert_eq!(
            seen(Some("dhow.example"), None, endpoint(false, &[(1, None)])),
            "http://localhost:8080 (on node 1 alone)"
        );
        // In a cluster: on a node that serves it, and on one that does not.
        assert_eq!(seen(None, Some(3), endpoint(true, three)), local);
        assert_eq!(seen(None, Some(1), endpoint(true, three)), "http://10.0.0.2:8080");
        assert_eq!(
            seen(None, Some(1), endpoint(false, three)),
            "http://localhost:8080 (on node 2 alone)"
        );
        assert_eq!(
            seen(Some("lb.example"), Some(3), endpoint(true, three)),
            "http://lb.example:8080"
        );
        assert_eq!(
            seen(Some("lb.example"), Some(1), endpoint(true, three)),
            "http://10.0.0.2:8080"
        );
        assert_eq!(
            seen(Some("x"), Some(1), endpoint(true, &[(2, Some("fd00::2"))])),
            "http://[fd00::2]:8080"
        );
    }
}
