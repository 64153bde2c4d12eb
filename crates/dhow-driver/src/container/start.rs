//! Starting a container. The replica's folder is made first and removed last: where there is no folder, there
//! is nothing else of it either.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use dhow_core::ids::ReplicaName;

use crate::cgroup::{Group, Limits};
use crate::driver::{Cause, OnAddress, ReplicaStart, Running, StartRecord};
use crate::image::{Image, Rootfs, RootfsOptions};
use crate::shim::protocol::{Init, ShimSpec, Workload};
use crate::shim::stop::blocking;
use crate::shim::strays;
use crate::shim::{ShimError, StartLock};

use super::bundle::Written;
use super::filters::Filters;
use super::mounts::Bound;
use super::network::ReplicaAddress;
use super::oci::Process;
use super::root_view::RootView;
use super::runtime::Runtime;
use super::{ContainerDriver, bundle, container_id, exec, failure, images, leaf, support};

/// What a start has set up before the shim is asked.
struct Ready {
    lock: StartLock,
    group: Group,
    rootfs: PathBuf,
    spec: ShimSpec,
    notices: Vec<String>,
    /// The rules of a filter that the runtime makes for it.
    new_filter: Option<String>,
    address: Ipv4Addr,
    /// Held until it runs.
    _bound: Vec<Bound>,
}

/// The parts of it that can fail with nothing but the folder to be undone.
struct SetUpParts {
    group: Group,
    rootfs: PathBuf,
    spec: ShimSpec,
    written: Written,
    address: Ipv4Addr,
}

impl ContainerDriver {
    pub(super) async fn start_replica(&self, start: &ReplicaStart) -> Result<Running, Cause> {
        support::check(&start.spec)?;
        let runtime = self.runtime().await?.clone();
        self.inner.network.bridge().await?;
        self.inner.network.services().await?;
        let image = images::obtain(&self.inner.images, start.spec.image.as_ref(), &()).await?;
        let (driver, owned) = (self.clone(), start.clone());
        let ready = blocking(move || driver.ready(&owned, &image, &runtime)).await?;
        if let Some(OnAddress(tell)) = &start.on_address {
            tell(ready.address.into()).await;
        }
        match self.inner.shim.supervise(ready.spec.clone(), &ready.lock).await {
            Ok(process) => {
                if let Some(rules) = ready.new_filter {
                    let (filters, id) = (self.inner.filters.clone(), container_id(&start.name));
                    let dir = self.inner.volatile.runtime_root().join(id);
                    blocking(move || {
                        filters.learn(rules, &dir);
                        Ok(())
                    })
                    .await?;
                }
                let state = self.inner.dirs.state(&start.name)?;
                Ok(Running {
                    pid: process.pid,
                    started_unix_ms: state.map_or(0, |state| state.started_unix_ms),
                    notices: ready.notices,
                })
            }
            Err(error) => {
                let (driver, name) = (self.clone(), start.name.clone());
                blocking(move || Err(driver.failed(&name, error, ready))).await
            }
        }
    }

    /// Everything up to the start itself. Blocks. On failure nothing is left.
    fn ready(&self, start: &ReplicaStart, image: &Image, runtime: &Runtime) -> Result<Ready, Cause> {
        let before = self.group(&start.name)?;
        let lock = self.inner.dirs.lock_for_start(&start.name)?;
        if let Err(cause) = strays::make_way(&before) {
            if lock.fresh {
                std::fs::remove_dir_all(&lock.dir).map_err(Cause::file("removing", &lock.dir))?;
            }
            return Err(cause);
        }
        if !lock.fresh {
            self.release(&start.name, &before)?;
        }
        match self.set_up(start, image, runtime, &lock) {
            Ok(parts) => Ok(Ready {
                lock,
                group: parts.group,
                rootfs: parts.rootfs,
                spec: parts.spec,
                notices: parts.written.notices,
                new_filter: parts.written.new_filter,
                address: parts.address,
                _bound: parts.written.bound,
            }),
            Err(cause) => {
                let group = self.inner.cgroups.runtime_group(&leaf(&start.name));
                self.undo(&start.name, &lock, &group)?;
                Err(cause)
            }
        }
    }

    fn set_up(
        &self,
        start: &ReplicaStart,
        image: &Image,
        runtime: &Runtime,
        lock: &StartLock,
    ) -> Result<SetUpParts, Cause> {
        let inner = &self.inner;
        let id = container_id(&start.name);
        let limits = Limits::from(&start.spec.resources);
        let group = inner
            .cgroups
            .create_for_runtime(&leaf(&start.name), &limits)
            .map_err(Cause::Cgroup)?;
        let mut record = StartRecord::from(start);
        record.group = Some(group.clone());
        inner.dirs.write_spec(lock, &record)?;
        let (place, rootfs) = self.place_and_rootfs(&id, image, lock)?;
        let dir = inner.volatile.make_bundle(&id)?;
        let parts = bundle::Parts {
            start,
            image: image.config(),
            dir: &dir,
            replica_dir: &lock.dir,
            rootfs: &rootfs,
            address: place.address,
            services: inner.network.ready_services(),
            network_namespace: inner.network.pin(&id),
            cgroups: &inner.cgroups,
            cgroups_path: inner.cgroups.path_below_mounts(&group),
            filters: Filters::suits(&runtime.path).then_some(&inner.filters),
        };
        let written = bundle::write(&parts)?;
        let pid_file = dir.join("pid");
        let init = start.spec.init.then(|| Init {
            link: dir.join(bundle::PID_NAMESPACE),
            join: group.join_files(),
        });
        let unified = group.join_unified_only();
        let shown: Vec<_> = written.bound.iter().map(|bound| bound.shown.clone()).collect();
        // The workload waits until an init has joined its namespaces, and until its mounts were looked at.
        let (create, then) = if init.is_some() || !shown.is_empty() {
            let create = runtime.create(&id, &dir, &pid_file, unified.clone());
            (create, Some(Box::new(runtime.start(&id, unified))))
        } else {
            (runtime.run(&id, &dir, &pid_file, unified), None)
        };
        let spec = ShimSpec {
            dir: lock.dir.clone(),
            log: start.log,
            workload: Workload::Starter {
                create,
                pid_file,
                start: then,
                init,
                shown,
            },
            group: Some(group.clone()),
            after: Vec::new(),
        };
        Ok(SetUpParts {
            group,
            rootfs,
            spec,
            written,
            address: place.address,
        })
    }

    /// The two slow parts, beside each other.
    fn place_and_rootfs(
        &self,
        id: &str,
        image: &Image,
        lock: &StartLock,
    ) -> Result<(ReplicaAddress, PathBuf), Cause> {
        let inner = &self.inner;
        let bridge = inner.network.ready_bridge()?;
        std::thread::scope(|scope| {
            let place = scope.spawn(|| inner.network.connect(bridge, id));
            let options = RootfsOptions::default();
            let rootfs =
                Rootfs::mount(image, &lock.dir, options).map_err(|error| Cause::Rootfs(Box::new(error)));
            let place = place.join().unwrap_or_else(|_| {
                Err(Cause::Network {
                    doing: "a thread".to_owned(),
                    source: std::io::Error::other("it panicked"),
                })
            });
            Ok((place?, rootfs?.path()))
        })
    }

    /// Why a start failed, after clearing up behind it.
    fn failed(&self, name: &ReplicaName, error: ShimError, ready: Ready) -> Cause {
        let dir = self.inner.volatile.bundle(&container_id(name));
        let process: Option<Process> = exec::process_of(&dir).ok();
        let root = RootView::open(&ready.rootfs).ok();
        let refused = matches!(error, ShimError::Refused(_));
        let cause = match &process {
            Some(process) => failure::explain(error, process, root.as_ref()),
            None => Cause::Shim(error),
        };
        drop(root);
        // With any other error the shim may be at work.
        if refused && let Err(other) = self.undo(name, &ready.lock, &ready.group) {
            return other;
        }
        cause
    }

    /// A start that was refused leaves nothing, except logs of runs before it.
    fn undo(&self, name: &ReplicaName, lock: &StartLock, group: &Group) -> Result<(), Cause> {
        self.release(name, group)?;
        if lock.fresh {
            std::fs::remove_dir_all(&lock.dir).map_err(Cause::file("removing", &lock.dir))?;
        }
        Ok(())
    }
}
