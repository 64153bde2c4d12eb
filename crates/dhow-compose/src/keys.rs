//! Every key of a service in the compose specification, and what becomes of it.

use dhow_core::spec::check::nearest;

use crate::item::Item;
use crate::service::Reader;

/// What becomes of a key.
enum Fate {
    /// Read by one of the readers.
    Carried,
    /// It changes nothing here: why.
    NoEffect(&'static str),
    /// It cannot be carried out: what is wrong, and what to write instead.
    Refused(&'static str, &'static str),
}

use Fate::{Carried, NoEffect, Refused};

const OWN_NETWORK: &str =
    "leave it out: each replica has a network of its own, and services reach each other by name";
const CPU: &str = "write `cpus`, a number of cores";
const MEMORY: &str = "write `mem_limit`";

/// The fate of a key, or nothing for one that there is not.
fn fate(key: &str) -> Option<Fate> {
    let found = FATES.iter().find(|(name, _)| *name == key);
    found.map(|(_, make)| make())
}

/// All keys, for a hint about a slip.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    FATES.iter().map(|(name, _)| *name)
}

type Row = (&'static str, fn() -> Fate);

const FATES: &[Row] = &[
    ("annotations", || {
        NoEffect("annotations go with no container here; `labels` are kept")
    }),
    ("attach", || {
        NoEffect("`dhow logs` shows what each service writes")
    }),
    ("blkio_config", || {
        Refused("block devices are not shared out by weight", "leave it out")
    }),
    ("build", || Carried),
    ("cap_add", || Carried),
    ("cap_drop", || Carried),
    ("cgroup", || Carried),
    ("cgroup_parent", || {
        Refused(
            "the control group is Dhow's own",
            "leave it out: limits are in `mem_limit`, `cpus` and `pids_limit`",
        )
    }),
    ("command", || Carried),
    ("configs", || Carried),
    ("container_name", || Carried),
    ("cpu_count", || Refused("CPUs are not counted out", CPU)),
    ("cpu_percent", || {
        Refused("CPUs are not shared out by percent", CPU)
    }),
    ("cpu_period", || {
        Refused("the period of CPU time is Dhow's own", CPU)
    }),
    ("cpu_quota", || {
        Refused("CPU time is not given in microseconds", CPU)
    }),
    ("cpu_rt_period", || {
        Refused("there is no realtime scheduling", "leave it out")
    }),
    ("cpu_rt_runtime", || {
        Refused("there is no realtime scheduling", "leave it out")
    }),
    ("cpu_shares", || Refused("CPUs are not shared out by weight", CPU)),
    ("cpus", || Carried),
    ("cpuset", || Refused("a replica is not bound to CPUs", CPU)),
    ("credential_spec", || {
        Refused("there are no credentials of Windows", "leave it out")
    }),
    ("depends_on", || Carried),
    ("deploy", || Carried),
    ("develop", || NoEffect("nothing is built or watched here")),
    ("device_cgroup_rules", || {
        Refused(
            "rules for classes of devices are not carried out",
            "name each device in `devices`",
        )
    }),
    ("devices", || Carried),
    ("dns", || Carried),
    ("dns_opt", || {
        Refused("options of the resolver are Dhow's own", "leave it out")
    }),
    ("dns_search", || {
        Refused(
            "the search domains are the deployment's own",
            "write names in full",
        )
    }),
    ("domainname", || {
        Refused("a container has no domain", "write the whole name as `hostname`")
    }),
    ("driver_opts", || NoEffect("there is no network driver")),
    ("entrypoint", || Carried),
    ("env_file", || Carried),
    ("environment", || Carried),
    ("expose", || Carried),
    ("extends", || Carried),
    ("external_links", || {
        Refused(
            "containers of others have no names here",
            "a service of another deployment is called `SERVICE.DEPLOYMENT`, where its endpoint has `expose: cluster`",
        )
    }),
    ("extra_hosts", || Carried),
    ("gpus", || {
        Refused(
            "GPUs are not given out",
            "name their devices in `devices`, such as `/dev/dri`",
        )
    }),
    ("group_add", || {
        Refused(
            "further groups are not given",
            "write `user: UID:GID` with the group that is needed",
        )
    }),
    ("healthcheck", || Carried),
    ("hostname", || Carried),
    ("image", || Carried),
    ("init", || Carried),
    ("ipc", || Carried),
    ("isolation", || {
        Refused("there is no isolation of Windows", "leave it out")
    }),
    ("label_file", || {
        Refused("labels are not read from files", "write them as `labels`")
    }),
    ("labels", || Carried),
    ("links", || Carried),
    ("logging", || {
        NoEffect("Dhow keeps the logs itself, in turns and within bounds: `dhow logs`")
    }),
    ("mac_address", || {
        Refused("addresses of hardware are not chosen", OWN_NETWORK)
    }),
    ("mem_limit", || Carried),
    ("mem_reservation", || Carried),
    ("mem_swappiness", || NoEffect("swap is the host's affair")),
    ("memswap_limit", || NoEffect("swap is the host's affair")),
    ("models", || {
        Refused("models are not run", "run one as a service with an image")
    }),
    ("network_mode", || Carried),
    ("networks", || Carried),
    ("oom_kill_disable", || {
        Refused("who has no memory left is ended", MEMORY)
    }),
    ("oom_score_adj", || {
        Refused("who is ended first is the host's affair", MEMORY)
    }),
    ("pid", || Carried),
    ("pids_limit", || Carried),
    ("platform", || Carried),
    ("ports", || Carried),
    ("post_start", || {
        Refused(
            "hooks are not run",
            "make it a service of its own, and let others wait for it with `service_completed_successfully`",
        )
    }),
    ("pre_stop", || {
        Refused("hooks are not run", "let the program act on `stop_signal`")
    }),
    ("privileged", || Carried),
    ("profiles", || Carried),
    ("provider", || {
        Refused("providers are not run", "run it as a service with an image")
    }),
    ("pull_policy", || Carried),
    ("pull_refresh_after", || {
        NoEffect("an image is looked up when it is deployed")
    }),
    ("read_only", || Carried),
    ("restart", || Carried),
    ("runtime", || Carried),
    ("scale", || Carried),
    ("secrets", || Carried),
    ("security_opt", || Carried),
    ("shm_size", || Carried),
    ("stdin_open", || {
        NoEffect("nobody is at its standard input; `dhow exec` runs a shell inside")
    }),
    ("stop_grace_period", || Carried),
    ("stop_signal", || Carried),
    ("storage_opt", || {
        Refused("the size of the root file system is not bounded", "leave it out")
    }),
    ("sysctls", || Carried),
    ("tmpfs", || Carried),
    ("tty", || NoEffect("it has no terminal; `dhow exec` gives one")),
    ("ulimits", || Carried),
    ("use_api_socket", || {
        Refused("there is no Docker socket here", "leave it out")
    }),
    ("user", || Carried),
    ("userns_mode", || Carried),
    ("uts", || Carried),
    ("volumes", || Carried),
    ("volumes_from", || {
        Refused(
            "volumes of other services are not taken over as a whole",
            "name each volume in both services' `volumes`",
        )
    }),
    ("working_dir", || Carried),
];

/// Says what becomes of keys that no reader takes.
pub(crate) fn judge(reader: &mut Reader<'_, '_>, service: &Item) {
    for field in service.fields().unwrap_or_default() {
        let name: &str = &field.key;
        if name.starts_with("x-") {
            continue;
        }
        match fate(name) {
            Some(Carried) => {}
            Some(NoEffect(_) | Refused(..)) if field.value.is_nothing() => {}
            Some(NoEffect(why)) => reader.note(field.key_place, format!("`{name}` has no effect: {why}")),
            Some(Refused(why, hint)) => {
                let _: Option<()> = reader.refuse(field.key_place, name, format!("`{name}`: {why}"), hint);
            }
            None => {
                let hint = match nearest(name, all()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "remove it, or begin its name with `x-`".to_owned(),
                };
                let _: Option<()> = reader.refuse(
                    field.key_place,
                    name,
                    format!("a service has no key `{name}`"),
                    hint,
                );
            }
        }
    }
    for (name, allowed) in [
        ("pid", &["private"][..]),
        ("ipc", &["private", "shareable", "none"][..]),
        ("uts", &[""][..]),
        ("userns_mode", &[""][..]),
        ("cgroup", &["private"][..]),
        ("runtime", &["runc", "crun", "io.containerd.runc.v2"][..]),
    ] {
        let Some(item) = service.get(name) else { continue };
        let text = item.text().unwrap_or_default();
        if !allowed.contains(&text) {
            let message =
                format!("`{name}: {text}` cannot be carried out: replicas share nothing with the host");
            let hint = "leave it out; a program that needs the host runs as a service with `command` and no image, in a deployment file";
            let _: Option<()> = reader.refuse(item.place, name, message, hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FATES;

    #[test]
    fn each_key_has_one_row() {
        assert!(FATES.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
