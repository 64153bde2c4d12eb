//! The certificates of public endpoints: asks the control plane for those that the node's directory names, and hands them
//! to the balancer. They are in memory here and nowhere else; the balancer keeps them in its own folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::balance::Balancer;
use crate::proxy::GivenCertificates;
use crate::session::{KnownDirectory, Session};

/// After a question that was not answered, as when no server is there: what is shown already goes on meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Follows which certificates the node is to show. The agent runs one.
pub struct CertificateFeed {
    pub directory: watch::Receiver<Option<Arc<KnownDirectory>>>,
    pub session: Arc<dyn Session>,
    pub balancer: Arc<dyn Balancer>,
}

/// A secret as it was given last.
#[derive(Clone, Default, PartialEq, Eq)]
struct Held {
    version: u64,
    value: Option<String>,
}

impl CertificateFeed {
    /// Runs for as long as the agent.
    pub async fn run(mut self) {
        let mut held = BTreeMap::new();
        let mut given = None;
        loop {
            let told = self.directory.borrow_and_update().clone();
            let is_complete = match told {
                Some(told) => {
                    let is_complete = self.ask(&told.directory.certificates, &mut held).await;
                    self.give(&held, &mut given).await;
                    is_complete
                }
                None => true,
            };
            let again = async {
                match is_complete {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(ASK_AGAIN).await,
                }
            };
            tokio::select! {
                changed = self.directory.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = again => {}
            }
        }
    }

    /// Asks for those of which there is a newer version; whether all of them are there.
    async fn ask(&self, wanted: &BTreeMap<Arc<str>, u64>, held: &mut BTreeMap<Arc<str>, Held>) -> bool {
        held.retain(|name, _| wanted.contains_key(name));
        let mut is_complete = true;
        for (name, version) in wanted {
            let known = held.entry(Arc::clone(name)).or_default();
            // One that was removed stays what it was: a host without a certificate serves nobody.
            if known.version == *version || *version == 0 {
                continue;
            }
            // One by one: a secret that cannot be had keeps no other back.
            match self.session.secrets(&[name.to_string()]).await {
                Ok(mut values) => {
                    known.value = values.remove(&**name).or(known.value.take());
                    known.version = *version;
                }
                Err(error) => {
                    tracing::warn!(%error, secret = &**name, "a certificate cannot be had; it is asked for again");
                    is_complete = false;
                }
            }
        }
        is_complete
    }

    async fn give(&self, held: &BTreeMap<Arc<str>, Held>, given: &mut Option<BTreeMap<Arc<str>, Held>>) {
        if given.as_ref() == Some(held) {
            return;
        }
        let values = held.iter();
        let values = values.map(|(name, held)| (name.to_string(), held.value.clone()));
        let refused = self.balancer.certify(GivenCertificates(values.collect())).await;
        for (secret, why) in refused {
            tracing::error!(
                secret,
                why,
                "the balancer does not show a certificate; what it showed before it still shows"
            );
        }
        *given = Some(held.clone());
    }
}
