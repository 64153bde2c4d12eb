//! What the state keeps of orders, opened: the account, certificates, failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::acme::{self, Failures, Lifetime, OrderBudget};
use dhow_core::command::ClusterCommand;
use dhow_core::state::State;
use dhow_wire::EndpointCertificate;
use serde::Serialize;
use zeroize::Zeroizing;

use super::authority::KeptAccount;
use crate::plane::secrets::{SealError, SecretBox};

/// Opens and seals. What cannot be opened is as good as not there: it is ordered again.
pub(crate) struct Kept {
    secrets: Arc<SecretBox>,
    /// By host: when the certificate of this version is good.
    lifetimes: BTreeMap<String, (u64, Option<Lifetime>)>,
}

impl Kept {
    pub fn new(secrets: Arc<SecretBox>) -> Self {
        Self {
            secrets,
            lifetimes: BTreeMap::new(),
        }
    }

    fn open(&self, state: &State, name: &str) -> Option<Zeroizing<Vec<u8>>> {
        let secret = state.secrets.get(name)?;
        self.secrets.unseal(name, &secret.sealed).ok().map(Zeroizing::new)
    }

    pub fn account(&self, state: &State) -> Option<KeptAccount> {
        serde_json::from_slice(&self.open(state, acme::ACCOUNT)?).ok()
    }

    /// Whether nodes answer for this account.
    pub fn has_thumbprint(&self, state: &State, account: &KeptAccount) -> bool {
        let told = self.open(state, acme::THUMBPRINT);
        told.is_some_and(|told| *told == account.thumbprint.as_bytes())
    }

    pub fn failures(&self, state: &State, name: &str) -> Option<Failures> {
        serde_json::from_slice(&self.open(state, name)?).ok()
    }

    /// How many orders may still be begun, by all leaders' account of it.
    pub fn budget(&self, state: &State) -> Option<OrderBudget> {
        serde_json::from_slice(&self.open(state, acme::BUDGET)?).ok()
    }

    /// When the certificate of a host is good. It is read once for each of its versions.
    pub fn lifetime(&mut self, state: &State, host: &str) -> Option<Lifetime> {
        let name = acme::certificate_of(host);
        let version = state.secrets.get(name.as_str())?.version;
        if let Some((known, lifetime)) = self.lifetimes.get(host)
            && *known == version
        {
            return *lifetime;
        }
        let lifetime = self.read_lifetime(state, &name);
        self.lifetimes.insert(host.to_owned(), (version, lifetime));
        lifetime
    }

    fn read_lifetime(&self, state: &State, name: &str) -> Option<Lifetime> {
        let opened = self.open(state, name)?;
        let read = EndpointCertificate::read_of_any_time(&opened).ok()?;
        Some(Lifetime {
            not_before_unix_secs: read.not_before_unix_secs,
            not_after_unix_secs: read.not_after_unix_secs,
        })
    }

    /// Forgets what it has read of hosts that the state has no certificate of.
    pub fn trim(&mut self, state: &State) {
        let is_kept = |host: &String| state.secrets.contains_key(acme::certificate_of(host).as_str());
        self.lifetimes.retain(|host, _| is_kept(host));
    }

    /// The command that keeps a value.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<ClusterCommand, SealError> {
        let sealed = self.secrets.seal(name, value)?;
        Ok(ClusterCommand::SetSecret {
            name: name.into(),
            sealed: sealed.into(),
        })
    }

    pub fn set_json(&self, name: &str, value: &impl Serialize) -> Result<ClusterCommand, SealError> {
        let bytes = serde_json::to_vec(value).map_err(|_| SealError::Seal)?;
        self.set(name, &Zeroizing::new(bytes))
    }
}
