//! A network between the logs of one process. Links can be cut in either direction, and made slow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dhow_server::net::peers::{Lane, PeerError, PeerHandler, PeerTransport};
use futures_util::future::BoxFuture;

#[derive(Clone, Default)]
pub struct Network {
    inner: Arc<Mutex<NetworkState>>,
}

#[derive(Default)]
struct NetworkState {
    handlers: BTreeMap<u64, Arc<dyn PeerHandler>>,
    /// From, to.
    cuts: BTreeSet<(u64, u64)>,
    delay: Duration,
    messages: BTreeMap<Lane, u64>,
    /// By sender.
    lost: BTreeMap<u64, u64>,
}

impl Network {
    /// The way out of one node.
    pub fn transport(&self, from: u64) -> Arc<dyn PeerTransport> {
        Arc::new(Transport {
            from,
            network: self.clone(),
        })
    }

    pub fn plug(&self, node: u64, handler: Arc<dyn PeerHandler>) {
        self.inner.lock().unwrap().handlers.insert(node, handler);
    }

    pub fn unplug(&self, node: u64) {
        self.inner.lock().unwrap().handlers.remove(&node);
    }

    /// Cuts a node off from everybody, in both directions.
    pub fn isolate(&self, node: u64, others: impl IntoIterator<Item = u64>) {
        for other in others {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    pub fn cut(&self, from: u64, to: u64) {
        self.inner.lock().unwrap().cuts.insert((from, to));
    }

    pub fn heal(&self) {
        self.inner.lock().unwrap().cuts.clear();
    }

    pub fn delay(&self, delay: Duration) {
        self.inner.lock().unwrap().delay = delay;
    }

    /// Messages that were delivered on a lane.
    pub fn delivered(&self, lane: Lane) -> u64 {
        self.inner
            .lock()
            .unwrap()
            .messages
            .get(&lane)
            .copied()
            .unwrap_or(0)
    }

    /// Questions of a node that nobody got.
    pub fn lost(&self, from: u64) -> u64 {
        self.inner.lock().unwrap().lost.get(&from).copied().unwrap_or(0)
    }

    fn is_cut(&self, from: u64, to: u64) -> bool {
        self.inner.lock().unwrap().cuts.contains(&(from, to))
    }

    fn lose(&self, from: u64) {
        *self.inner.lock().unwrap().lost.entry(from).or_default() += 1;
    }

    fn deliver(&self, to: u64, lane: Lane) -> Option<(Arc<dyn PeerHandler>, Duration)> {
        let mut inner = self.inner.lock().unwrap();
        *inner.messages.entry(lane).or_default() += 1;
        let handler = inner.handlers.get(&to)?.clone();
        Some((handler, inner.delay))
    }
}

struct Transport {
    from: u64,
    network: Network,
}

impl PeerTransport for Transport {
    fn ask(
        &self,
        node: u64,
        addr: SocketAddr,
        lane: Lane,
        question: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, PeerError>> {
        let (from, network) = (self.from, self.network.clone());
        Box::pin(async move {
            let lost = || async {
                tokio::time::sleep(timeout).await;
                Err(PeerError::TimedOut { node })
            };
            if network.is_cut(from, node) {
                network.lose(from);
                return lost().await;
            }
            let Some((handler, delay)) = network.deliver(node, lane) else {
                let why = "nobody listens".to_owned();
                return Err(PeerError::Unreachable { node, addr, why });
            };
            let answered = async {
                tokio::time::sleep(delay).await;
                let answer = handler.answer(from, question).await;
                tokio::time::sleep(delay).await;
                answer
            };
            let Ok(answer) = tokio::time::timeout(timeout, answered).await else {
                return Err(PeerError::TimedOut { node });
            };
            match network.is_cut(node, from) {
                true => lost().await,
                false => Ok(answer),
            }
        })
    }
}
