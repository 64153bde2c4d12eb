//! A network inside the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::plane::log::copied::{
    Claim, ClaimAnswer, CopiedLog, Copies, CopyAnswer, CopyError, CopyNetwork, PeerBeat, Silent, Whole,
};

#[derive(Default)]
struct NetState {
    logs: BTreeMap<u64, CopiedLog>,
    /// Ways that are cut, from and to.
    cut: BTreeSet<(u64, u64)>,
}

/// Clones are the same network.
#[derive(Clone, Default)]
pub struct Net(Arc<Mutex<NetState>>);

impl Net {
    pub fn join(&self, node: u64, log: CopiedLog) {
        self.0.lock().unwrap().logs.insert(node, log);
    }

    pub fn part(&self, node: u64) {
        self.0.lock().unwrap().logs.remove(&node);
    }

    pub fn cut(&self, from: u64, to: u64) {
        self.0.lock().unwrap().cut.insert((from, to));
    }

    pub fn isolate(&self, node: u64, others: &[u64]) {
        for other in others {
            self.cut(node, *other);
            self.cut(*other, node);
        }
    }

    pub fn heal(&self) {
        self.0.lock().unwrap().cut.clear();
    }

    pub fn of(&self, own: u64) -> Arc<dyn CopyNetwork> {
        Arc::new(Side {
            own,
            net: self.clone(),
        })
    }
}

struct Side {
    own: u64,
    net: Net,
}

impl Side {
    fn to(&self, peer: u64) -> Result<CopiedLog, Silent> {
        let inner = self.net.0.lock().unwrap();
        let is_cut = inner.cut.contains(&(self.own, peer));
        let log = inner.logs.get(&peer).filter(|_| !is_cut);
        log.cloned().ok_or_else(|| Silent("it is not there".into()))
    }
}

fn told<T>(answer: Result<T, CopyError>) -> Result<T, Silent> {
    answer.map_err(|error| Silent(error.to_string()))
}

impl CopyNetwork for Side {
    fn beat(&self, peer: u64) -> BoxFuture<'_, Result<PeerBeat, Silent>> {
        async move { Ok(self.to(peer)?.beat()) }.boxed()
    }

    fn claim(&self, peer: u64, claim: Claim) -> BoxFuture<'_, Result<ClaimAnswer, Silent>> {
        async move { told(self.to(peer)?.claim(claim).await) }.boxed()
    }

    fn copy(&self, peer: u64, copies: Copies) -> BoxFuture<'_, Result<CopyAnswer, Silent>> {
        async move { told(self.to(peer)?.copies(copies).await) }.boxed()
    }

    fn put_whole(&self, peer: u64, whole: Whole) -> BoxFuture<'_, Result<CopyAnswer, Silent>> {
        async move { told(self.to(peer)?.put_whole(whole).await) }.boxed()
    }

    fn whole(&self, peer: u64) -> BoxFuture<'_, Result<Whole, Silent>> {
        async move { told(self.to(peer)?.whole().await) }.boxed()
    }

    fn leave(&self, peer: u64, node: u64) -> BoxFuture<'_, Result<(), Silent>> {
        async move {
            self.to(peer)?.peer_leaves(node);
            Ok(())
        }
        .boxed()
    }
}
