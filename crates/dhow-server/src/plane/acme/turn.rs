//! One leadership's orders: what is under way, what has ended and is not kept yet, and what is begun next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::acme::{self, Failures, OrderBudget};
use dhow_core::command::ClusterCommand;
use dhow_core::state::State;
use dhow_wire::EndpointCertificate;
use futures_util::FutureExt;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use super::authority::{Authority, KeptAccount, OrderError};
use super::kept::Kept;
use crate::clock::shown_utc;
use crate::plane::secrets::SealError;

/// From the moment that a host is wanted and the thumbprint kept until it is ordered: so long nodes may take to hear of
/// both. Changes reach them within half a second under load, and what a node asks for comes in less than another.
const SETTLE_MS: u64 = 3_000;
/// One order, or one registration, from its first request to the certificate: the server asks the host from several places,
/// and may be slow.
const JOB_TIMEOUT: Duration = Duration::from_secs(180);
/// Secrets of hosts that are not wanted any more, removed at a look.
const REMOVED_MAX: usize = 16;

/// What a job is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Account,
    Host(String),
}

/// What a job has brought.
enum Brought {
    Account(KeptAccount),
    Certificate(Zeroizing<String>),
}

/// A leadership's work.
pub(super) struct Turn {
    kept: Kept,
    authority: Arc<dyn Authority>,
    budget: OrderBudget,
    jobs: JoinSet<(Subject, Result<Brought, OrderError>)>,
    under_way: BTreeSet<Subject>,
    ended: Vec<(Subject, Result<Brought, OrderError>)>,
    /// Since when a host could be ordered.
    wanted_since_ms: BTreeMap<String, u64>,
    /// What the state is to keep: some commands for each job that has ended, and what is removed at a look.
    pub unwritten: VecDeque<ClusterCommand>,
}

impl Turn {
    pub fn new(kept: Kept, authority: Arc<dyn Authority>, now_ms: u64) -> Self {
        Self {
            kept,
            authority,
            budget: OrderBudget::new(now_ms),
            jobs: JoinSet::new(),
            under_way: BTreeSet::new(),
            ended: Vec::new(),
            wanted_since_ms: BTreeMap::new(),
            unwritten: VecDeque::new(),
        }
    }

    /// Returns when a job has ended.
    pub async fn ended(&mut self) {
        match self.jobs.join_next().await {
            Some(Ok(ended)) => self.ended.push(ended),
            // Jobs catch what breaks, and are aborted with the turn alone.
            Some(Err(error)) => tracing::error!(%error, "an order was cut off"),
            None => std::future::pending().await,
        }
    }

    /// Makes what has ended into what the state is to keep.
    pub fn take_ended(&mut self, state: &State, now_unix_secs: i64, random: fn() -> u64) {
        for (subject, ended) in std::mem::take(&mut self.ended) {
            let ended = ended.and_then(|brought| judge(&subject, brought, now_unix_secs));
            let commands = match &ended {
                Ok(brought) => self.keep(state, &subject, brought),
                Err(error) => self.keep_failure(state, &subject, error, now_unix_secs, random()),
            };
            match commands {
                Ok(commands) => self.unwritten.extend(commands),
                Err(error) => tracing::error!(%error, "what was ordered cannot be sealed"),
            }
            self.under_way.remove(&subject);
        }
    }

    fn keep(
        &self,
        state: &State,
        subject: &Subject,
        brought: &Brought,
    ) -> Result<Vec<ClusterCommand>, SealError> {
        let mut commands = match (subject, brought) {
            (Subject::Host(host), Brought::Certificate(pem)) => {
                vec![self.kept.set(&acme::certificate_of(host), pem.as_bytes())?]
            }
            (_, Brought::Account(account)) => vec![
                self.kept.set_json(acme::ACCOUNT, account)?,
                self.kept.set(acme::THUMBPRINT, account.thumbprint.as_bytes())?,
            ],
            // No job for the account brings a certificate.
            (Subject::Account, Brought::Certificate(_)) => Vec::new(),
        };
        commands.extend(remove(state, &failures_of(subject)));
        Ok(commands)
    }

    fn keep_failure(
        &mut self,
        state: &State,
        subject: &Subject,
        error: &OrderError,
        now_unix_secs: i64,
        random: u64,
    ) -> Result<Vec<ClusterCommand>, SealError> {
        let name = failures_of(subject);
        let lifetime = match subject {
            Subject::Host(host) => self.kept.lifetime(state, host),
            Subject::Account => None,
        };
        let before = self.kept.failures(state, &name);
        let said = (error.setback, error.words.as_str());
        let failures = Failures::after(before.as_ref(), said, lifetime, now_unix_secs, random);
        let next = shown_utc(failures.next_unix_secs);
        match subject {
            Subject::Host(host) => {
                tracing::warn!(host, %error, next, "a certificate could not be ordered");
            }
            Subject::Account => tracing::warn!(%error, next, "there is no account at the ACME server"),
        }
        let mut commands = vec![self.kept.set_json(&name, &failures)?];
        if error.is_account_gone {
            commands.extend(remove(state, acme::ACCOUNT));
        }
        Ok(commands)
    }

    /// Begins what is due, and removes what nobody wants.
    pub fn begin_due(&mut self, state: &State, now_unix_secs: i64, now_ms: u64) {
        let hosts = acme::hosts(state);
        self.remove_unwanted(state, &hosts, now_unix_secs);
        self.kept.trim(state);
        if hosts.is_empty() {
            return self.wanted_since_ms.clear();
        }
        let account = self.kept.account(state);
        let account = account.filter(|account| account.directory == self.authority.directory());
        let Some(account) = account else {
            self.wanted_since_ms.clear();
            return self.begin_account(state, now_unix_secs);
        };
        if !self.kept.has_thumbprint(state, &account) {
            let told = self.kept.set(acme::THUMBPRINT, account.thumbprint.as_bytes());
            return self.unwritten.extend(told.ok());
        }
        self.wanted_since_ms.retain(|host, _| hosts.contains(host));
        for host in self.due(state, hosts, now_unix_secs, now_ms) {
            if !self.budget.take(self.under_way.len(), now_ms) {
                return;
            }
            tracing::info!(host, "a certificate is ordered");
            let order = self.authority.order(account.clone(), host.clone());
            let order = async move { order.await.map(Brought::Certificate) };
            self.begin(Subject::Host(host), order);
        }
    }

    /// The hosts that are to be ordered now. Those that have a certificate, which ends, come before those that never had one,
    /// and among these the ones that have failed least: however many hosts are named that lead nowhere, others are renewed.
    fn due(
        &mut self,
        state: &State,
        hosts: BTreeSet<String>,
        now_unix_secs: i64,
        now_ms: u64,
    ) -> impl Iterator<Item = String> + use<> {
        let mut due = Vec::new();
        for host in hosts {
            let since_ms = *self.wanted_since_ms.entry(host.clone()).or_insert(now_ms);
            let is_settled = now_ms.saturating_sub(since_ms) >= SETTLE_MS;
            let lifetime = self.kept.lifetime(state, &host);
            let failures = self.kept.failures(state, &acme::failure_of(&host));
            let is_due = acme::is_due(lifetime, failures.as_ref(), now_unix_secs);
            if is_settled && is_due && !self.under_way.contains(&Subject::Host(host.clone())) {
                due.push((
                    lifetime.is_none(),
                    failures.map_or(0, |failures| failures.count),
                    host,
                ));
            }
        }
        due.sort();
        due.into_iter().map(|(_, _, host)| host)
    }

    fn begin_account(&mut self, state: &State, now_unix_secs: i64) {
        let failures = self.kept.failures(state, acme::ACCOUNT_FAILURE);
        let is_due = acme::is_due(None, failures.as_ref(), now_unix_secs);
        if is_due && !self.under_way.contains(&Subject::Account) {
            let register = self.authority.register();
            self.begin(
                Subject::Account,
                async move { register.await.map(Brought::Account) },
            );
        }
    }

    fn begin(
        &mut self,
        subject: Subject,
        job: impl Future<Output = Result<Brought, OrderError>> + Send + 'static,
    ) {
        self.under_way.insert(subject.clone());
        self.jobs.spawn(async move {
            let job = AssertUnwindSafe(job).catch_unwind();
            let done = match tokio::time::timeout(JOB_TIMEOUT, job).await {
                Ok(Ok(done)) => done,
                Ok(Err(_)) => Err(OrderError::new("the order broke off; this is a bug in Dhow")),
                Err(_) => {
                    let secs = JOB_TIMEOUT.as_secs();
                    Err(OrderError::new(format!(
                        "the ACME server was not done after {secs} s"
                    )))
                }
            };
            (subject, done)
        });
    }

    /// A certificate is kept for as long as it is good: a host that comes back need not be ordered again.
    fn remove_unwanted(&mut self, state: &State, hosts: &BTreeSet<String>, now_unix_secs: i64) {
        let own = state.secrets.keys().filter(|name| acme::is_own(name)).cloned();
        let mut gone = Vec::new();
        for name in own.collect::<Vec<_>>() {
            if gone.len() >= REMOVED_MAX {
                break;
            }
            let is_over = match (acme::host_of(&name), acme::failed_host_of(&name)) {
                (Some(host), _) if !hosts.contains(host) => {
                    let lifetime = self.kept.lifetime(state, host);
                    lifetime.is_none_or(|lifetime| lifetime.is_over(now_unix_secs))
                }
                (_, Some(host)) => !hosts.contains(host),
                (Some(_) | None, None) => false,
            };
            if is_over {
                gone.push(ClusterCommand::RemoveSecret { name });
            }
        }
        self.unwritten.extend(gone);
    }
}

fn failures_of(subject: &Subject) -> String {
    match subject {
        Subject::Account => acme::ACCOUNT_FAILURE.to_owned(),
        Subject::Host(host) => acme::failure_of(host),
    }
}

fn remove(state: &State, name: &str) -> Option<ClusterCommand> {
    let is_there = state.secrets.contains_key(name);
    is_there.then(|| ClusterCommand::RemoveSecret { name: name.into() })
}

/// What a server gives is looked at before it takes the place of what nodes show.
fn judge(subject: &Subject, brought: Brought, now_unix_secs: i64) -> Result<Brought, OrderError> {
    match (&brought, subject) {
        (Brought::Certificate(pem), Subject::Host(host)) => judge_certificate(host, pem, now_unix_secs)?,
        (Brought::Account(account), _) if !acme::is_thumbprint(&account.thumbprint) => {
            return Err(unusable("the account's key has no thumbprint"));
        }
        (Brought::Account(_), _) | (Brought::Certificate(_), Subject::Account) => {}
    }
    Ok(brought)
}

pub(super) fn judge_certificate(host: &str, pem: &str, now_unix_secs: i64) -> Result<(), OrderError> {
    let read = EndpointCertificate::read(pem.as_bytes(), now_unix_secs);
    let read = read.map_err(|problem| unusable(&problem.to_string()))?;
    if !read.covers(host) {
        let names = read.names.join(", ");
        return Err(unusable(&format!("the certificate is for {names}")));
    }
    let until = shown_utc(read.not_after_unix_secs);
    tracing::info!(host, until, "a certificate was ordered");
    Ok(())
}

fn unusable(why: &str) -> OrderError {
    OrderError::new(format!("the ACME server gave what cannot be used: {why}"))
}
