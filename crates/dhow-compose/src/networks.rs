//! Networks: who shares one with whom, and by which names a service is called there.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::ServiceName;

use crate::item::{Field, Item};
use crate::pairs;
use crate::report::{Location, Report};

const DEFAULT: &str = "default";

/// The networks of each service, by its name in the compose file.
#[derive(Default)]
pub(crate) struct Networks(BTreeMap<String, BTreeSet<String>>);

/// Names by which a service calls others, beside their own.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, BTreeMap<String, (ServiceName, Location)>>);

impl Networks {
    pub fn read(root: &Item, services: &[&Field], report: &mut Report) -> Self {
        let declared: BTreeMap<&str, &Item> = root
            .get("networks")
            .and_then(Item::fields)
            .unwrap_or_default()
            .iter()
            .map(|field| (&*field.key, &field.value))
            .collect();
        let mut networks = Self::default();
        let mut used: BTreeSet<String> = BTreeSet::new();
        for field in services {
            let own = of_service(field, &declared, report);
            used.extend(own.iter().cloned());
            networks.0.insert(field.key.to_string(), own);
        }
        for (name, item) in declared.iter().filter(|(name, _)| used.contains(**name)) {
            judge(name, item, report);
        }
        networks
    }

    /// Whether two services may call each other.
    pub fn share(&self, one: &str, other: &str) -> bool {
        let of = |name: &str| self.0.get(name);
        one == other
            || of(one)
                .zip(of(other))
                .is_some_and(|(one, other)| !one.is_disjoint(other))
    }

    /// The names that all services have for each other.
    pub fn names(&self, services: &BTreeMap<&str, (ServiceName, &Item)>, report: &mut Report) -> Names {
        let mut names = Names::default();
        for (written, (name, item)) in services {
            for (alias, network, place) in aliases(written, name, item) {
                for (caller, networks) in &self.0 {
                    let hears = match &network {
                        Some(network) => networks.contains(network),
                        None => self.share(written, caller),
                    };
                    if hears && services.contains_key(caller.as_str()) {
                        names.add(caller, &alias, name, (services, place), report);
                    }
                }
            }
            for (target, alias, place) in links(item) {
                match services.get(target.as_str()) {
                    Some((linked, _)) => names.add(written, &alias, linked, (services, place), report),
                    None => {
                        let at = format!("services.{written}.links");
                        report.refuse(
                            place,
                            &at,
                            format!("there is no service `{target}`"),
                            "check the name",
                        );
                    }
                }
            }
        }
        names
    }
}

impl Names {
    fn add(
        &mut self,
        caller: &str,
        alias: &str,
        service: &ServiceName,
        (services, place): (&BTreeMap<&str, (ServiceName, &Item)>, Location),
        report: &mut Report,
    ) {
        // Its own name needs none.
        if alias == service.as_str() {
            return;
        }
        let is_service = services.values().any(|(name, _)| name.as_str() == alias);
        let known = self.0.entry(caller.to_owned()).or_default();
        let clashes = known.get(alias).is_some_and(|(other, _)| other != service);
        if is_service || clashes {
            let message = format!("`{alias}` is the name of another service too");
            report.refuse(place, "services", message, "give one of the two another name");
            return;
        }
        known.insert(alias.to_owned(), (service.clone(), place));
    }

    /// The names that a caller has for a service.
    pub fn of<'n>(&'n self, caller: &str, service: &'n ServiceName) -> impl Iterator<Item = &'n str> {
        let known = self.0.get(caller).into_iter().flatten();
        known
            .filter(move |(_, (name, _))| name == service)
            .map(|(alias, _)| alias.as_str())
    }

    /// They as `extra_hosts` of a caller.
    pub fn hosts(&self, caller: &str) -> Vec<String> {
        let known = self.0.get(caller).into_iter().flatten();
        known
            .map(|(alias, (service, _))| format!("{alias}:@{service}"))
            .collect()
    }
}

fn of_service(field: &Field, declared: &BTreeMap<&str, &Item>, report: &mut Report) -> BTreeSet<String> {
    let at = format!("services.{}.networks", field.key);
    if let Some(item) = field.value.get("network_mode") {
        let mode = item.text().unwrap_or_default();
        if !matches!(mode, "bridge" | "default") {
            let message = format!(
                "`network_mode: {mode}` cannot be carried out: each replica has a network of its own"
            );
            let hint = match mode {
                "host" => {
                    "leave it out and name its ports in `ports`; a program that needs the host's network runs without an image, in a deployment file"
                }
                "none" => "leave it out: who calls nobody and has no ports is alone",
                _ => "leave it out, and call the other service by its name",
            };
            report.refuse(
                item.place,
                &format!("services.{}.network_mode", field.key),
                message,
                hint,
            );
        }
    }
    let Some(item) = field.value.get("networks") else {
        return BTreeSet::from([DEFAULT.to_owned()]);
    };
    let map = pairs::named(item.clone());
    let mut names = BTreeSet::new();
    for network in map.fields().unwrap_or_default() {
        let name: &str = &network.key;
        if name != DEFAULT && !declared.contains_key(name) {
            let hint = format!("add it at the top: `networks: {{ {name}: }}`");
            report.refuse(
                network.key_place,
                &at,
                format!("the network `{name}` is not declared"),
                hint,
            );
        }
        names.insert(name.to_owned());
        for option in network.value.fields().unwrap_or_default() {
            match &*option.key {
                "aliases" => {}
                "priority" | "gw_priority" | "driver_opts" | "interface_name" => {
                    report.note(
                        option.key_place,
                        format!("`{}` of a network has no effect", option.key),
                    );
                }
                "ipv4_address" | "ipv6_address" | "mac_address" | "link_local_ips" => {
                    let message = format!("`{}`: addresses are not fixed here", option.key);
                    report.refuse(
                        option.key_place,
                        &at,
                        message,
                        "remove it, and call the service by its name",
                    );
                }
                key if key.starts_with("x-") => {}
                key => report.refuse(
                    option.key_place,
                    &at,
                    format!("a network has no `{key}` here"),
                    "remove it",
                ),
            }
        }
    }
    names
}

fn judge(name: &str, item: &Item, report: &mut Report) {
    let at = format!("networks.{name}");
    for field in item.fields().unwrap_or_default() {
        let text = field.value.text().unwrap_or_default();
        match &*field.key {
            "internal" | "external" if text == "false" => {}
            "internal" => report.refuse(
                field.key_place,
                &at,
                "`internal: true` cannot be carried out: what a replica calls outside is not kept from it",
                "remove it; who may call a service is kept all the same: those that share a network with it",
            ),
            "external" => report.refuse(
                field.key_place,
                &at,
                format!("the network `{name}` is not this file's own"),
                "remove it, and call services of another deployment as `SERVICE.DEPLOYMENT`, where their endpoints have `expose: cluster`",
            ),
            key if key.starts_with("x-") => {}
            key => report.note(field.key_place, format!("`{key}` of a network has no effect: there are none, only who may call whom")),
        }
    }
}

/// Names of a service beside its own: in all its networks, or in one.
fn aliases(written: &str, name: &ServiceName, item: &Item) -> Vec<(String, Option<String>, Location)> {
    let mut found = Vec::new();
    if written != name.as_str() {
        found.push((written.to_owned(), None, item.place));
    }
    for key in ["container_name", "hostname"] {
        if let Some(item) = item.get(key)
            && let Some(text) = item.text()
        {
            found.push((text.to_owned(), None, item.place));
        }
    }
    for network in item.get("networks").and_then(Item::fields).unwrap_or_default() {
        for alias in network
            .value
            .get("aliases")
            .and_then(Item::items)
            .unwrap_or_default()
        {
            if let Some(text) = alias.text() {
                found.push((text.to_owned(), Some(network.key.to_string()), alias.place));
            }
        }
    }
    found
}

/// `links: [db, db:database]`: the service and what it is called.
fn links(item: &Item) -> Vec<(String, String, Location)> {
    let items = item.get("links").and_then(Item::items).unwrap_or_default().iter();
    let link = |item: &Item| {
        let text = item.text()?;
        let (target, alias) = text.split_once(':').unwrap_or((text, text));
        Some((target.to_owned(), alias.to_owned(), item.place))
    };
    items.filter_map(link).collect()
}
