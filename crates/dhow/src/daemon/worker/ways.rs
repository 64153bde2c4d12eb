//! A worker's ways to its servers: their addresses, and TLS that believes its own cluster alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use dhow_agent::session::grpc::{Connector, ConnectorFuture, Endpoint, FixedRoutes};
use dhow_server::net::keys::{WorkerIdentity, client_config_pinned};
use dhow_server::net::peer_http::{OtherCluster, dial_server};
use dhow_wire::token::CaFingerprint;
use tokio::sync::Notify;

/// Sessions speak HTTP/2.
const ALPN: &[u8] = b"h2";

/// Where servers are: `host:port`, whatever stands around it in the configuration.
pub fn routes(servers: &[String]) -> FixedRoutes {
    let bare = |server: &String| {
        let rest = server.split_once("://").map_or(server.as_str(), |(_, rest)| rest);
        rest.strip_suffix('/').unwrap_or(rest).to_owned()
    };
    let endpoints = servers.iter().map(|server| Endpoint {
        node: None,
        address: bare(server),
    });
    FixedRoutes(endpoints.collect())
}

/// How a worker connects that has a token and no certificate yet. From the first byte on it speaks only with the
/// cluster that the token names.
pub struct Newcomer {
    pin: CaFingerprint,
    /// Servers that turned out to be of another cluster.
    others: Mutex<BTreeSet<String>>,
    news: Notify,
}

impl Newcomer {
    pub fn new(pin: CaFingerprint) -> Self {
        Self {
            pin,
            others: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Resolves once every one of these has turned out to be of another cluster.
    pub async fn all_are_others(&self, routes: &FixedRoutes) {
        loop {
            let news = self.news.notified();
            let is_other = |endpoint: &Endpoint| {
                let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
                others.contains(&endpoint.address)
            };
            if routes.0.iter().all(is_other) {
                return;
            }
            news.await;
        }
    }
}

impl Connector for Newcomer {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        Box::pin(async move {
            let mut config = client_config_pinned(self.pin).map_err(std::io::Error::other)?;
            config.alpn_protocols = vec![ALPN.to_vec()];
            match dial_server(&endpoint.address, config).await {
                Ok(stream) => Ok(stream),
                Err(error) => {
                    if error.get_ref().is_some_and(|inner| inner.is::<OtherCluster>()) {
                        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
                        others.insert(endpoint.address.clone());
                        drop(others);
                        self.news.notify_one();
                    }
                    Err(error)
                }
            }
        })
    }
}

/// As the worker that it is, with the certificate of the moment.
pub struct Known(pub Arc<WorkerIdentity>);

impl Connector for Known {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        Box::pin(async move {
            let config = self.0.client_config().map_err(std::io::Error::other)?;
            dial_server(&endpoint.address, config).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_slashes_are_taken_off() {
        let written = ["https://a:1", "http://b:2/", "c:3"].map(str::to_owned);
        let read: Vec<_> = routes(&written)
            .0
            .into_iter()
            .map(|endpoint| endpoint.address)
            .collect();
        assert_eq!(read, ["a:1", "b:2", "c:3"]);
    }

    #[tokio::test]
    async fn all_have_to_be_others() {
        let newcomer = Newcomer::new(CaFingerprint([0; 32]));
        let routes = routes(&["a:1".to_owned(), "b:2".to_owned()]);
        newcomer.others.lock().unwrap().insert("a:1".into());
        assert!(futures_util::poll!(Box::pin(newcomer.all_are_others(&routes))).is_pending());
        newcomer.others.lock().unwrap().insert("b:2".into());
        newcomer.all_are_others(&routes).await;
    }
}
