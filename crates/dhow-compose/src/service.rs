//! One service: what runs, with what rights and limits. Ports, mounts and the `deploy` block have files of their own.

use dhow_core::spec::check::{FieldPath, nearest};
use dhow_core::spec::{
    Capabilities, CommandSpec, Cpu, ImageSpec, PullPolicy, Resources, RestartPolicy, ServiceSpec, TimeSpan,
    Ulimit,
};

use crate::item::Item;
use crate::load::Variables;
use crate::report::{Location, Report};
use crate::{Around, duration, environment, health, pairs, swarm, words};

/// What all services of a project are read with.
pub(crate) struct Reader<'r, 'a> {
    pub report: &'r mut Report,
    pub around: &'r Around<'a>,
    pub variables: &'r Variables,
    /// The service's name in the compose file.
    pub name: String,
    pub project: String,
    /// Where the parts of its spec stand in the files.
    pub places: Vec<(FieldPath, Location)>,
}

impl Reader<'_, '_> {
    pub fn refuse<T>(
        &mut self,
        place: Location,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Option<T> {
        let path = format!("services.{}.{key}", self.name);
        self.report.refuse(place, &path, message, hint);
        None
    }

    pub fn note(&mut self, place: Location, message: impl std::fmt::Display) {
        self.report.note(place, format!("{}: {message}", self.name));
    }

    /// Remembers where a part of the spec comes from.
    pub fn at(&mut self, path: &[&str], place: Location) {
        let path = path
            .iter()
            .fold(FieldPath::default(), |path, part| match part.parse::<usize>() {
                Ok(index) => path.index(index),
                Err(_) => path.key((*part).to_owned()),
            });
        self.places.push((path, place));
    }

    pub fn text(&mut self, item: &Item, key: &str) -> Option<String> {
        match item.text() {
            Some(text) => Some(text.to_owned()),
            None => self.refuse(
                item.place,
                key,
                format!("`{key}` takes a text, found {}", item.shown()),
                "",
            ),
        }
    }

    pub fn flag(&mut self, item: &Item, key: &str) -> Option<bool> {
        match item.text().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "yes" | "on" | "1") => Some(true),
            Some("false" | "no" | "off" | "0" | "") => Some(false),
            Some(_) | None => {
                let message = format!("`{key}` takes `true` or `false`, found {}", item.shown());
                self.refuse(item.place, key, message, "")
            }
        }
    }

    pub fn number<T: std::str::FromStr>(&mut self, item: &Item, key: &str) -> Option<T> {
        match item.text().and_then(|text| text.trim().parse().ok()) {
            Some(number) => Some(number),
            None => self.refuse(
                item.place,
                key,
                format!("`{key}` takes a number, found {}", item.shown()),
                "",
            ),
        }
    }

    pub fn span(&mut self, item: &Item, key: &str) -> Option<TimeSpan> {
        match item.text().and_then(duration::span) {
            Some(span) => Some(span),
            None => {
                let message = format!("`{key}` takes a length of time, found {}", item.shown());
                self.refuse(item.place, key, message, "such as `30s` or `1m30s`")
            }
        }
    }

    pub fn size(&mut self, item: &Item, key: &str) -> Option<dhow_core::spec::ByteSize> {
        match item.text().and_then(duration::size) {
            Some(size) => Some(size),
            None => {
                let message = format!("`{key}` takes a size, found {}", item.shown());
                self.refuse(item.place, key, message, "such as `512m` or `2g`")
            }
        }
    }

    /// One text or a list of texts.
    pub fn texts(&mut self, item: &Item, key: &str) -> Vec<(String, Location)> {
        match item.items() {
            Some(items) => items
                .iter()
                .filter_map(|item| Some((self.text(item, key)?, item.place)))
                .collect(),
            None => self
                .text(item, key)
                .map(|text| (text, item.place))
                .into_iter()
                .collect(),
        }
    }

    /// `KEY=value` as a list or a map.
    pub fn pairs(&mut self, item: &Item, key: &str) -> Vec<(String, Option<String>, Location)> {
        let map = pairs::as_map(item.clone());
        let Some(fields) = map.fields() else {
            let message = format!("`{key}` takes a map, found {}", item.shown());
            let _: Option<()> = self.refuse(item.place, key, message, "");
            return Vec::new();
        };
        let mut found = Vec::new();
        for field in fields {
            match field.value.is_nothing() {
                true => found.push((field.key.to_string(), None, field.key_place)),
                false => {
                    let place = field.value.place;
                    found.extend(
                        self.text(&field.value, key)
                            .map(|text| (field.key.to_string(), Some(text), place)),
                    );
                }
            }
        }
        found
    }

    /// Refuses fields that a map does not have.
    pub fn known(&mut self, item: &Item, key: &str, known: &[&'static str]) {
        for field in item.fields().unwrap_or_default() {
            let name: &str = &field.key;
            if known.contains(&name) || name.starts_with("x-") {
                continue;
            }
            let hint = match nearest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("its fields are {}", known.join(", ")),
            };
            let _: Option<()> = self.refuse(
                field.key_place,
                key,
                format!("`{key}` has no field `{name}`"),
                hint,
            );
        }
    }
}

/// Everything of a service that asks nothing of others.
pub(crate) fn read(reader: &mut Reader<'_, '_>, service: &Item) -> ServiceSpec {
    let mut spec = ServiceSpec {
        no_new_privileges: Some(false),
        ..ServiceSpec::default()
    };
    spec.image = image(reader, service);
    spec.command = command(reader, service);
    spec.env = environment::read(reader, service);
    spec.health = health::read(reader, service);
    restart(reader, service, &mut spec);
    rights(reader, service, &mut spec);
    limits(reader, service, &mut spec);
    host(reader, service, &mut spec);
    if let Some(item) = service.get("platform")
        && let Some(text) = reader.text(item, "platform").filter(|text| !text.is_empty())
    {
        let mut parts = text.split('/');
        spec.platform.os = parts.next().map(str::to_owned);
        spec.platform.arch = parts.next().map(str::to_owned);
        reader.at(&["platform"], item.place);
    }
    if let Some(item) = service.get("scale")
        && let Some(replicas) = reader.number(item, "scale")
    {
        spec.scale = dhow_core::spec::ScaleSpec::Fixed { replicas };
    }
    if let Some(deploy) = service.get("deploy") {
        swarm::deploy(reader, deploy, service, &mut spec);
    }
    spec
}

fn image(reader: &mut Reader<'_, '_>, service: &Item) -> Option<ImageSpec> {
    let policy = match service.get("pull_policy") {
        None => PullPolicy::default(),
        Some(item) => match item.text().unwrap_or_default() {
            "always" => PullPolicy::Always,
            "never" => PullPolicy::Never,
            "missing" | "if_not_present" | "build" => PullPolicy::IfNotPresent,
            text if text == "daily" || text == "weekly" || text.starts_with("every_") => {
                reader.note(
                    item.place,
                    format!("`pull_policy: {text}`: the image is looked up when it is deployed"),
                );
                PullPolicy::IfNotPresent
            }
            text => {
                let message = format!("`{text}` is no policy of pulling");
                reader.refuse(
                    item.place,
                    "pull_policy",
                    message,
                    "write `always`, `missing` or `never`",
                )?
            }
        },
    };
    let build = service.get("build");
    let Some(item) = service.get("image") else {
        let expected = format!("{}-{}", reader.project, reader.name);
        match build {
            Some(build) => {
                let message = format!("images are not built here; it would expect `{expected}`");
                let hint = format!(
                    "build and push it, and name it beside `build`: `image: REGISTRY/{expected}:TAG`"
                );
                let _: Option<()> = reader.refuse(build.place, "build", message, hint);
            }
            None => {
                let hint = "add one, such as `image: nginx:1.27`";
                let _: Option<()> = reader.refuse(service.place, "image", "this service has no image", hint);
            }
        }
        // It stands in, so that no rule is heard about a service without one.
        return Some(ImageSpec::named("none"));
    };
    let name = reader.text(item, "image")?;
    if let Some(build) = build {
        reader.note(
            build.place,
            format!("`build` is not carried out: `{name}` is expected where nodes find it"),
        );
    }
    reader.at(&["image"], item.place);
    Some(ImageSpec {
        pull_policy: policy,
        ..ImageSpec::named(&name)
    })
}

fn list_of_words(reader: &mut Reader<'_, '_>, item: &Item, key: &str) -> Option<Vec<String>> {
    if item.items().is_some() {
        return Some(
            reader
                .texts(item, key)
                .into_iter()
                .map(|(text, _)| text)
                .collect(),
        );
    }
    let text = reader.text(item, key)?;
    match words::split(&text) {
        Ok(words) => Some(words),
        Err(why) => reader.refuse(item.place, key, why, "write each word as an item of a list"),
    }
}

fn command(reader: &mut Reader<'_, '_>, service: &Item) -> Option<CommandSpec> {
    let mut command = CommandSpec::default();
    if let Some(item) = service.get("entrypoint") {
        command.entrypoint = list_of_words(reader, item, "entrypoint");
        reader.at(&["command", "entrypoint"], item.place);
    }
    if let Some(item) = service.get("command") {
        command.args = list_of_words(reader, item, "command").filter(|words| !words.is_empty());
        reader.at(&["command", "args"], item.place);
    }
    if let Some(item) = service.get("working_dir") {
        command.workdir = reader.text(item, "working_dir");
        reader.at(&["command", "workdir"], item.place);
    }
    (command != CommandSpec::default()).then_some(command)
}

fn restart(reader: &mut Reader<'_, '_>, service: &Item, spec: &mut ServiceSpec) {
    spec.restart.policy = RestartPolicy::Never;
    let Some(item) = service.get("restart") else {
        return;
    };
    let Some(text) = reader.text(item, "restart") else {
        return;
    };
    reader.at(&["restart"], item.place);
    let (policy, count) = text
        .split_once(':')
        .map_or((text.as_str(), None), |(policy, count)| (policy, Some(count)));
    spec.restart.policy = match policy {
        "no" | "false" | "never" | "" => RestartPolicy::Never,
        "always" | "unless-stopped" => RestartPolicy::Always,
        "on-failure" => RestartPolicy::OnFailure,
        _ => {
            let hint = "write `no`, `always`, `unless-stopped` or `on-failure:3`";
            let _: Option<()> = reader.refuse(
                item.place,
                "restart",
                format!("`{text}` is no rule of restarting"),
                hint,
            );
            return;
        }
    };
    let attempts = count.map(str::parse::<u32>);
    match attempts {
        Some(Ok(attempts)) if policy == "on-failure" => {
            spec.restart.max_attempts = (attempts > 0).then_some(attempts)
        }
        None => {}
        Some(_) => {
            let _: Option<()> = reader.refuse(
                item.place,
                "restart",
                format!("`{text}` has no count"),
                "write `on-failure:3`",
            );
        }
    }
}

fn rights(reader: &mut Reader<'_, '_>, service: &Item, spec: &mut ServiceSpec) {
    let plain = |(name, _): (String, Location)| name.trim_start_matches("CAP_").to_owned();
    let mut lists = Capabilities::default();
    for (key, list) in [("cap_add", &mut lists.add), ("cap_drop", &mut lists.drop)] {
        if let Some(item) = service.get(key) {
            *list = reader.texts(item, key).into_iter().map(plain).collect();
            reader.at(&["capabilities"], item.place);
        }
    }
    spec.capabilities = lists;
    for (key, field) in [
        ("privileged", &mut spec.privileged),
        ("read_only", &mut spec.read_only_root_fs),
        ("init", &mut spec.init),
    ] {
        if let Some(item) = service.get(key) {
            *field = reader.flag(item, key).unwrap_or_default();
            reader.at(&[key], item.place);
        }
    }
    if let Some(item) = service.get("user") {
        spec.user = reader.text(item, "user").filter(|user| !user.is_empty());
        reader.at(&["user"], item.place);
    }
    let Some(item) = service.get("security_opt") else {
        return;
    };
    for (option, place) in reader.texts(item, "security_opt") {
        match option.replace('=', ":").as_str() {
            "no-new-privileges" | "no-new-privileges:true" => spec.no_new_privileges = Some(true),
            "no-new-privileges:false" => {}
            plain if plain.starts_with("label:") || plain.starts_with("apparmor:") => {
                reader.note(
                    place,
                    format!("`{option}` has no effect: containers have no such profile here"),
                );
            }
            _ => {
                let message = format!("`{option}` cannot be carried out");
                let hint = "leave it out: calls of the kernel are filtered as by Docker; `privileged: true` is without the filter";
                let _: Option<()> = reader.refuse(place, "security_opt", message, hint);
            }
        }
    }
}

fn limits(reader: &mut Reader<'_, '_>, service: &Item, spec: &mut ServiceSpec) {
    let mut resources = Resources::default();
    if let Some(item) = service.get("cpus") {
        reader.at(&["resources"], item.place);
        resources.cpu = swarm::cpus(reader, item, "cpus");
    }
    let limit = service.get("mem_limit").and_then(|item| {
        reader.at(&["resources", "memory"], item.place);
        reader.size(item, "mem_limit")
    });
    let reserved = service
        .get("mem_reservation")
        .and_then(|item| Some((reader.size(item, "mem_reservation")?, item.place)));
    resources.memory = limit.or(reserved.map(|(size, _)| size));
    match (limit, reserved) {
        (Some(limit), Some((reserved, place))) if limit != reserved => {
            let message = format!("{reserved} are reserved and {limit} the limit: there is one amount here");
            let _: Option<()> = reader.refuse(
                place,
                "mem_reservation",
                message,
                "remove `mem_reservation`, or make both equal",
            );
        }
        (None, Some((_, place))) => reader.note(place, "what is reserved is the limit too"),
        (_, _) => {}
    }
    if let Some(item) = service.get("pids_limit") {
        resources.pids = reader
            .number::<i64>(item, "pids_limit")
            .and_then(|pids| u32::try_from(pids).ok())
            .filter(|pids| *pids > 0);
    }
    spec.resources = resources;
    ulimits(reader, service, spec);
}

fn ulimits(reader: &mut Reader<'_, '_>, service: &Item, spec: &mut ServiceSpec) {
    let Some(item) = service.get("ulimits") else {
        return;
    };
    reader.at(&["ulimits"], item.place);
    for field in item.fields().unwrap_or_default() {
        let name = field.key.to_string();
        let mut limit = |item: &Item| {
            let number: i64 = reader.number(item, "ulimits")?;
            Some(u64::try_from(number).unwrap_or(u64::MAX))
        };
        let found = match field.value.fields() {
            None => limit(&field.value).map(|both| Ulimit {
                soft: both,
                hard: both,
            }),
            Some(_) => {
                let soft = field.value.get("soft").and_then(&mut limit);
                let hard = field.value.get("hard").and_then(&mut limit);
                soft.or(hard).map(|either| Ulimit {
                    soft: soft.unwrap_or(either),
                    hard: hard.unwrap_or(either),
                })
            }
        };
        spec.ulimits.extend(found.map(|limit| (name, limit)));
    }
}

fn host(reader: &mut Reader<'_, '_>, service: &Item, spec: &mut ServiceSpec) {
    if let Some(item) = service.get("hostname")
        && let Some(name) = reader.text(item, "hostname")
    {
        let plain = name.replace('_', "-");
        if plain != name {
            reader.note(
                item.place,
                format!("its hostname is `{plain}`: a hostname holds no `_`"),
            );
        }
        spec.hostname = Some(plain);
        reader.at(&["hostname"], item.place);
    }
    if let Some(item) = service.get("dns") {
        spec.dns = reader
            .texts(item, "dns")
            .into_iter()
            .map(|(text, _)| text)
            .collect();
        reader.at(&["dns"], item.place);
        reader.note(
            item.place,
            "with `dns` of its own it does not know services by name; leave it out where it calls them",
        );
    }
    if let Some(item) = service.get("extra_hosts") {
        reader.at(&["extra_hosts"], item.place);
        for (name, address, _) in reader.pairs(item, "extra_hosts") {
            spec.extra_hosts
                .push(format!("{name}:{}", address.unwrap_or_default()));
        }
    }
    for (key, field) in [("labels", &mut spec.labels), ("sysctls", &mut spec.sysctls)] {
        let Some(item) = service.get(key) else { continue };
        reader.at(&[key], item.place);
        for (name, value, place) in reader.pairs(item, key) {
            reader.at(&[key, &name], place);
            field.insert(name, value.unwrap_or_default());
        }
    }
    if let Some(item) = service.get("stop_signal") {
        spec.stop.signal = reader.text(item, "stop_signal").unwrap_or_default();
        reader.at(&["stop", "signal"], item.place);
    }
    if let Some(item) = service.get("stop_grace_period") {
        spec.stop.grace = reader.span(item, "stop_grace_period").unwrap_or(spec.stop.grace);
        reader.at(&["stop", "grace"], item.place);
    }
}

/// A number of cores.
pub(crate) fn cpu(text: &str) -> Option<Cpu> {
    text.trim()
        .parse::<f64>()
        .ok()
        .and_then(|cores| Cpu::from_cores(cores).ok())
}
