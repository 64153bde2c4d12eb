//! The `deploy` block: how many, where, with what resources, and how a new version replaces the old.

use dhow_core::spec::{
    Cpu, LabelRule, LabelTest, OnFailure, RType, RestartPolicy, ScaleSpec, ServiceSpec, TimeSpan,
};

use crate::item::Item;
use crate::service::{self, Reader};

const KNOWN: [&str; 9] = [
    "endpoint_mode",
    "labels",
    "mode",
    "placement",
    "replicas",
    "resources",
    "restart_policy",
    "rollback_config",
    "update_config",
];

pub(crate) fn deploy(reader: &mut Reader<'_, '_>, deploy: &Item, service: &Item, spec: &mut ServiceSpec) {
    reader.known(deploy, "deploy", &KNOWN);
    if let Some(item) = deploy.get("replicas")
        && let Some(replicas) = reader.number(item, "replicas")
    {
        spec.scale = ScaleSpec::Fixed { replicas };
        reader.at(&["scale"], item.place);
    }
    if let Some(item) = deploy.get("mode") {
        match item.text().unwrap_or_default() {
            "replicated" => {}
            "global" => spec.rtype = RType::System,
            "replicated-job" | "global-job" => spec.rtype = RType::Job,
            text => {
                let hint = "write `replicated` or `global`";
                let _: Option<()> =
                    reader.refuse(item.place, "deploy.mode", format!("`{text}` is no mode"), hint);
            }
        }
    }
    if let Some(item) = deploy.get("endpoint_mode")
        && item.text() != Some("vip")
    {
        let message = format!(
            "`endpoint_mode: {}` cannot be carried out",
            item.text().unwrap_or_default()
        );
        let hint = "leave it out: a service has one address; `all.SERVICE` names one for each replica";
        let _: Option<()> = reader.refuse(item.place, "deploy.endpoint_mode", message, hint);
    }
    if let Some(item) = deploy.get("labels") {
        reader.note(
            item.place,
            "`deploy.labels` has no effect: nothing here reads them",
        );
    }
    if let Some(item) = deploy.get("rollback_config") {
        reader.note(
            item.place,
            "`rollback_config` has no effect: going back follows the same rules as going on",
        );
    }
    if let Some(item) = deploy.get("restart_policy") {
        restart(reader, item, spec);
    }
    if let Some(item) = deploy.get("update_config") {
        update(reader, item, spec);
    }
    if let Some(item) = deploy.get("placement") {
        placement(reader, item, spec);
    }
    if let Some(item) = deploy.get("resources") {
        resources(reader, item, service, spec);
    }
}

fn restart(reader: &mut Reader<'_, '_>, item: &Item, spec: &mut ServiceSpec) {
    reader.known(
        item,
        "restart_policy",
        &["condition", "delay", "max_attempts", "window"],
    );
    spec.restart.policy = match item
        .get("condition")
        .map(|item| (item.text().unwrap_or_default(), item.place))
    {
        None | Some(("any", _)) => RestartPolicy::Always,
        Some(("none", _)) => RestartPolicy::Never,
        Some(("on-failure", _)) => RestartPolicy::OnFailure,
        Some((text, place)) => {
            let hint = "write `none`, `on-failure` or `any`";
            let _: Option<()> = reader.refuse(
                place,
                "deploy.restart_policy",
                format!("`{text}` is no condition"),
                hint,
            );
            return;
        }
    };
    if let Some(delay) = item.get("delay")
        && let Some(span) = reader.span(delay, "delay")
        && span != TimeSpan::ZERO
    {
        spec.restart.backoff.initial = span;
        spec.restart.backoff.max = spec.restart.backoff.max.max(span);
    }
    if let Some(attempts) = item.get("max_attempts") {
        spec.restart.max_attempts = reader
            .number(attempts, "max_attempts")
            .filter(|attempts: &u32| *attempts > 0);
    }
    if let Some(window) = item.get("window") {
        let span = reader.span(window, "window");
        let counts = spec.restart.max_attempts.is_some();
        spec.restart.interval = span.filter(|span| counts && *span != TimeSpan::ZERO);
    }
    reader.at(&["restart"], item.place);
}

fn update(reader: &mut Reader<'_, '_>, item: &Item, spec: &mut ServiceSpec) {
    const KNOWN: [&str; 6] = [
        "parallelism",
        "delay",
        "failure_action",
        "monitor",
        "max_failure_ratio",
        "order",
    ];
    reader.known(item, "update_config", &KNOWN);
    reader.at(&["rollout"], item.place);
    let at_once = match item.get("parallelism") {
        Some(item) => reader.number(item, "parallelism").unwrap_or(1u32),
        None => 1,
    };
    let count = match spec.scale {
        ScaleSpec::Fixed { replicas } => replicas.max(1),
        ScaleSpec::Adaptive { .. } | ScaleSpec::Manual {} => 1,
    };
    let at_once = if at_once == 0 { count } else { at_once };
    match item.get("order").and_then(Item::text).unwrap_or("stop-first") {
        "start-first" => (spec.rollout.max_surge, spec.rollout.max_unavailable) = (Some(at_once), Some(0)),
        _ => (spec.rollout.max_surge, spec.rollout.max_unavailable) = (Some(0), Some(at_once)),
    }
    if let Some(item) = item.get("failure_action") {
        match item.text().unwrap_or_default() {
            "rollback" => spec.rollout.on_failure = OnFailure::Revert,
            "pause" => spec.rollout.on_failure = OnFailure::Pause,
            text => {
                let message = format!(
                    "`failure_action: {text}` cannot be carried out: a version that fails does not go on"
                );
                let hint = "write `rollback` or `pause`";
                let _: Option<()> = reader.refuse(item.place, "deploy.update_config", message, hint);
            }
        }
    } else {
        spec.rollout.on_failure = OnFailure::Pause;
    }
    if let Some(item) = item.get("monitor")
        && let Some(span) = reader.span(item, "monitor")
    {
        spec.rollout.min_healthy = span;
    }
    if let Some(item) = item.get("delay") {
        reader.note(
            item.place,
            "`delay` has no effect: the next replica follows once one is healthy for `monitor` (10s)",
        );
    }
    if let Some(item) = item.get("max_failure_ratio")
        && item
            .text()
            .and_then(|text| text.parse::<f64>().ok())
            .is_none_or(|ratio| ratio != 0.0)
    {
        let hint = "leave it out";
        let message = "`max_failure_ratio`: the first replica that fails decides";
        let _: Option<()> = reader.refuse(item.place, "deploy.update_config", message, hint);
    }
}

fn placement(reader: &mut Reader<'_, '_>, item: &Item, spec: &mut ServiceSpec) {
    reader.known(
        item,
        "placement",
        &["constraints", "preferences", "max_replicas_per_node"],
    );
    if let Some(item) = item.get("max_replicas_per_node") {
        reader.at(&["max_per_node"], item.place);
        // 0 is Swarm's word for no bound.
        spec.max_per_node = reader
            .number(item, "max_replicas_per_node")
            .filter(|count: &u32| *count > 0);
    }
    if let Some(item) = item.get("constraints") {
        for (text, place) in reader.texts(item, "constraints") {
            reader.at(&["node_selector"], place);
            let pair = text
                .split_once("==")
                .map(|(key, value)| (key.trim(), value.trim()));
            match pair {
                Some(("node.platform.os", os)) => spec.platform.os = Some(os.into()),
                Some(("node.platform.arch", arch)) => spec.platform.arch = Some(arch.into()),
                Some((key, value)) if key.starts_with("node.labels.") => {
                    let key = key.trim_start_matches("node.labels.");
                    spec.node_selector.labels.insert(key.into(), value.into());
                }
                None if differs(&text).is_some() => spec.node_selector.rules.extend(differs(&text)),
                Some(_) | None => {
                    let message = format!(
                        "the constraint `{text}` cannot be carried out: nodes are chosen by labels that they have"
                    );
                    let hint = "label the nodes, as in `dhow node label 1 disk=ssd`, and write `node.labels.disk == ssd` or `!= ssd`";
                    let _: Option<()> = reader.refuse(place, "deploy.placement.constraints", message, hint);
                }
            }
        }
    }
    for preference in item.get("preferences").and_then(Item::items).unwrap_or_default() {
        let spread = preference.get("spread").and_then(Item::text);
        match spread.and_then(|text| text.strip_prefix("node.labels.")) {
            Some(label) if spec.spread_by.is_none() => spec.spread_by = Some(label.to_owned()),
            Some(_) | None => {
                let message = "this preference cannot be carried out";
                let hint = "write one, `spread: node.labels.zone`";
                let _: Option<()> =
                    reader.refuse(preference.place, "deploy.placement.preferences", message, hint);
            }
        }
    }
}

/// `node.labels.zone != a`.
fn differs(text: &str) -> Option<LabelRule> {
    let (key, value) = text.split_once("!=")?;
    let label = key.trim().strip_prefix("node.labels.")?;
    let test = LabelTest::Differs(value.trim().into());
    let label = label.into();
    Some(LabelRule { label, test })
}

pub(crate) fn cpus(reader: &mut Reader<'_, '_>, item: &Item, key: &str) -> Option<Cpu> {
    match item.text().map(|text| (service::cpu(text), text.trim())) {
        Some((Some(cpu), _)) => Some(cpu),
        Some((None, "0" | "0.0")) => None,
        Some((None, _)) | None => {
            let message = format!("`{key}` takes a number of cores, found {}", item.shown());
            reader.refuse(item.place, key, message, "such as `0.5`")
        }
    }
}

fn resources(reader: &mut Reader<'_, '_>, item: &Item, service: &Item, spec: &mut ServiceSpec) {
    reader.known(item, "resources", &["limits", "reservations"]);
    let parts = ["limits", "reservations"].map(|name| item.get(name));
    for part in parts.into_iter().flatten() {
        reader.known(
            part,
            "resources",
            &["cpus", "memory", "pids", "devices", "generic_resources"],
        );
        for name in ["devices", "generic_resources"] {
            if let Some(item) = part.get(name) {
                let message = format!("`{name}` cannot be carried out: devices are not given out by number");
                let hint = "name them in the service's `devices`, such as `/dev/dri`";
                let _: Option<()> = reader.refuse(item.place, "deploy.resources", message, hint);
            }
        }
    }
    let [limits, reserved] = parts;
    reader.at(&["resources"], item.place);
    for name in ["cpus", "memory"] {
        let limit = limits.and_then(|part| part.get(name));
        let reservation = reserved.and_then(|part| part.get(name));
        let Some(one) = limit.or(reservation) else {
            continue;
        };
        let mut read = |item: &Item| match name {
            "cpus" => cpus(reader, item, name).map(|cpu| cpu.0),
            _ => reader.size(item, name).map(|size| size.0),
        };
        let amount = read(one);
        if let (Some(_), Some(reservation)) = (limit, reservation)
            && read(reservation) != amount
        {
            let message = format!(
                "{} of `{name}` are reserved and {} the limit: there is one amount here",
                reservation.shown(),
                one.shown()
            );
            let hint = "remove one of the two, or make both equal";
            let _: Option<()> = reader.refuse(reservation.place, "deploy.resources", message, hint);
        }
        match limit {
            None => reader.note(
                one.place,
                format!("what is reserved of `{name}` is the limit too"),
            ),
            Some(_) => reader.note(one.place, format!("the limit of `{name}` is reserved too")),
        }
        match name {
            "cpus" => spec.resources.cpu = amount.map(Cpu).or(spec.resources.cpu),
            _ => spec.resources.memory = amount.map(dhow_core::spec::ByteSize).or(spec.resources.memory),
        }
    }
    if let Some(item) = limits.and_then(|part| part.get("pids")) {
        spec.resources.pids = reader
            .number::<i64>(item, "pids")
            .and_then(|pids| u32::try_from(pids).ok())
            .filter(|pids| *pids > 0);
    }
    if service.get("cpus").is_some() || service.get("mem_limit").is_some() {
        reader.note(
            item.place,
            "`deploy.resources` has the last word over `cpus` and `mem_limit`",
        );
    }
}
