//! One attempt to start.

use std::net::IpAddr;
use std::sync::Arc;

use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::{Runtime, ServiceSpec};
use dhow_driver::driver::{
    Cause, DriverError, DriverResult, OnAddress, Preparation, Prepared, Progress, ReplicaStart,
    ReplicaStatus, Running, error_chain,
};
use dhow_driver::shim::ShimError;
use tokio::sync::watch;

use super::steps::Steps;
use super::{Runner, message, settled};
use crate::balance::CallsFrom;
use crate::environment::{self, EnvironmentError};
use crate::policy;
use crate::ports;
use crate::wish::Wish;

/// What came of getting ready.
enum Ready {
    Start(Box<ReplicaStart>),
    Failed(String),
    /// What it is made from could not be fetched.
    NotFetched(String),
    /// Something else is wished.
    Interrupted,
}

impl Runner {
    /// Starts it, or counts a failure. Ends early where another thing is wished before anything was started.
    pub(super) async fn start_once(&mut self, spec: &Arc<ServiceSpec>) {
        let ready = self.get_ready(spec).await;
        self.context.pulls.done(self.name());
        match ready {
            Ready::Interrupted => {}
            Ready::Failed(why) => self.could_not_start(&why).await,
            Ready::NotFetched(why) => self.could_not_fetch(&why).await,
            Ready::Start(start) => match self.run_steps(spec, &start).await {
                Steps::Done => self.start(&start).await,
                Steps::Failed(why) => self.could_not_start(&why).await,
                Steps::NotFetched(why) => self.could_not_fetch(&why).await,
                Steps::Interrupted => {}
            },
        }
    }

    async fn get_ready(&mut self, spec: &Arc<ServiceSpec>) -> Ready {
        self.driver = Arc::clone(self.context.drivers.of(spec));
        if let Some(why) = self.forbidden(spec).await {
            return Ready::Failed(why);
        }
        // Names of what it may call are there before it starts.
        self.context.take_directory().await;
        if let Err(why) = self.context.balancer.open(self.name(), spec).await {
            return Ready::Failed(why);
        }
        match self.prepare(spec).await {
            None => return Ready::Interrupted,
            Some(Err(error)) => {
                let why = error_chain(&*error.cause);
                return match spec.runtime() {
                    Runtime::Container => Ready::NotFetched(why),
                    Runtime::Process => Ready::Failed(why),
                };
            }
            Some(Ok(_)) => {}
        }
        match self.assemble(spec).await {
            Ok(start) => Ready::Start(Box::new(start)),
            Err(error) => Ready::Failed(error_chain(&error)),
        }
    }

    /// What the node's policy says against it.
    async fn forbidden(&self, spec: &Arc<ServiceSpec>) -> Option<String> {
        let (policy, spec) = (Arc::clone(&self.context.policy), Arc::clone(spec));
        let asked = tokio::task::spawn_blocking(move || policy::refusal(&policy, &spec)).await;
        asked.unwrap_or_else(|error| Some(format!("the node's policy could not be asked: {error}")))
    }

    /// Fetches what it needs. `None` where another thing is wished before that is done.
    pub(super) async fn prepare(&mut self, spec: &Arc<ServiceSpec>) -> Option<DriverResult<Prepared>> {
        let what = Preparation {
            spec: Arc::clone(spec),
        };
        let (pulls, pulled) = (self.context.pulls.clone(), self.name().clone());
        let (began, mut begun) = watch::channel(false);
        let progress = move |progress: Progress| {
            pulls.set(&pulled, progress);
            if matches!(progress, Progress::Pulling { .. }) {
                began.send_if_modified(|began| !std::mem::replace(began, true));
            }
        };
        let driver = Arc::clone(&self.driver);
        let preparing = driver.prepare(&what, &progress);
        tokio::pin!(preparing);
        loop {
            tokio::select! {
                biased;
                done = &mut preparing => return Some(done),
                Ok(()) = begun.changed() => {
                    let event = self.core.pull_begins();
                    self.happen_all(event).await;
                }
                () = self.wish_changed() => {
                    // A spec that changes in place changes nothing that is fetched.
                    if matches!(*self.wish.borrow(), Wish::Stop) {
                        return None;
                    }
                }
            }
        }
    }

    /// Ports, secrets and volumes.
    async fn assemble(&mut self, spec: &Arc<ServiceSpec>) -> Result<ReplicaStart, EnvironmentError> {
        self.context.ports.give_back(self.core.ports());
        // Should they not be had, those before are not its any more.
        self.core.take_ports(Vec::new());
        let ports = self.context.ports.bind(spec).map_err(EnvironmentError::Ports)?;
        self.core.take_ports(ports);
        self.track().await;
        let services = self.context.balancer.variables(self.name(), spec).await;
        let files = self.files_for_start().await?;
        let start = environment::start_of(
            self.name(),
            spec,
            self.core.ports().to_vec(),
            environment::Here {
                node: self.context.place.node,
                volumes_dir: &self.context.volumes_dir,
                session: &*self.context.session,
                policy: &self.context.policy,
                services,
                files,
            },
        );
        Ok(ReplicaStart {
            on_address: Some(self.tells_address()),
            ..start.await?
        })
    }

    /// The proxy knows who calls from an address before anything there runs.
    fn tells_address(&self) -> OnAddress {
        let (context, name) = (Arc::clone(&self.context), self.name().clone());
        OnAddress(Arc::new(move |address| {
            let (context, name) = (Arc::clone(&context), name.clone());
            Box::pin(async move {
                if let IpAddr::V4(address) = address {
                    let from = CallsFrom::Bridge(address);
                    context.balancer.calls_from(&name, from).await;
                }
            })
        }))
    }

    async fn start(&mut self, start: &ReplicaStart) {
        let context = Arc::clone(&self.context);
        let permit = tokio::select! {
            permit = context.work.acquire() => permit,
            () = self.wish_changed() => return,
        };
        let event = self.core.start_begins();
        self.happen_all(event).await;
        // Not cut off whatever is wished: what has begun is finished, and then ended in order.
        let started = self.driver.start(start).await;
        drop(permit);
        match started {
            Ok(running) => {
                for notice in &running.notices {
                    tracing::info!(replica = %self.name(), notice, "started with a limitation");
                }
                self.happen(ReplicaEvent::Started { pid: running.pid }).await;
            }
            Err(error) => match self.runs_all_the_same(&error).await {
                Some(running) => self.happen(ReplicaEvent::Started { pid: running.pid }).await,
                None => {
                    let why = error_chain(&*error.cause);
                    self.could_not_start(&why).await;
                }
            },
        }
    }

    /// A start that the runner gave up waiting for may have succeeded since. A replica has one generation, so that what
    /// runs under its name is what the runner wanted to start.
    async fn runs_all_the_same(&mut self, error: &DriverError) -> Option<Running> {
        let may_run = match &*error.cause {
            Cause::AlreadyRuns { .. } | Cause::Busy => true,
            Cause::Shim(error) => matches!(error, ShimError::Silent { .. } | ShimError::Lost(_)),
            _ => false,
        };
        if !may_run {
            return None;
        }
        let (driver, name) = (Arc::clone(&self.driver), self.name().clone());
        let settled = settled(&*driver, &name);
        tokio::pin!(settled);
        let status = loop {
            tokio::select! {
                status = &mut settled => break status?,
                () = self.wish_changed() => {
                    // Whoever ends it waits for its start by himself.
                    if matches!(*self.wish.borrow(), Wish::Stop) {
                        return None;
                    }
                }
            }
        };
        match status {
            ReplicaStatus::Running(running) => {
                tracing::info!(replica = %self.name(), pid = running.pid, "its start took long; it runs");
                Some(running)
            }
            ReplicaStatus::Starting | ReplicaStatus::Ended(_) => None,
        }
    }

    async fn could_not_fetch(&mut self, why: &str) {
        tracing::warn!(replica = %self.name(), why, "could not be started");
        let events = self.core.could_not_fetch(message(why));
        self.happen_all(events).await;
    }

    async fn could_not_start(&mut self, why: &str) {
        tracing::warn!(replica = %self.name(), why, "could not be started");
        let events = self.core.could_not_start(message(why));
        self.happen_all(events).await;
    }

    /// Where its endpoints are served, for the balancer: those of the spec that decides, and what else is listened on
    /// until all have come so far.
    pub(super) async fn backends(&self) -> Vec<crate::balance::BackendAddress> {
        let (Some(spec), Some(deciding)) = (self.core.spec(), self.core.deciding()) else {
            return Vec::new();
        };
        let address = match spec.runtime() {
            Runtime::Process => std::net::IpAddr::from([127, 0, 0, 1]),
            Runtime::Container => match self.driver.address(self.name()).await {
                Ok(Some(address)) => address,
                Ok(None) => return Vec::new(),
                Err(error) => {
                    tracing::warn!(replica = %self.name(), why = error_chain(&error), "has no address");
                    return Vec::new();
                }
            },
        };
        let mut backends: Vec<crate::balance::BackendAddress> = Vec::new();
        for spec in [&deciding, spec] {
            for binding in ports::under(self.core.ports(), spec) {
                let known = backends.iter().any(|known| known.endpoint == binding.endpoint);
                if !known && self.serves(spec, &binding.endpoint) {
                    backends.push(crate::balance::BackendAddress {
                        addr: (address, binding.host_port).into(),
                        endpoint: binding.endpoint,
                    });
                }
            }
        }
        backends
    }

    fn serves(&self, spec: &ServiceSpec, endpoint: &str) -> bool {
        let known = spec.endpoints.iter().find(|known| known.name == endpoint);
        let role = known.map(|known| known.target_role.as_ref());
        role.is_some_and(|role| role.is_none_or(|role| *role == self.name().role))
    }
}
