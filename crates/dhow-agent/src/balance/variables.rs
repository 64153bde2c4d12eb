//! How a replica finds the services of its deployment in its environment: `DB_HOST`, `DB_PORT`, `DB_ADDR`, and a port for
//! each endpoint by its name. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Where a service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub service: String,
    pub address: Ipv4Addr,
    /// By endpoint, in the order of the file.
    pub ports: Vec<(String, u16)>,
}

/// The variables for these services. Where two give the same name, the first one has it.
pub fn variables(services: &[Reached]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut set = |name: String, value: String| {
        variables.entry(name).or_insert(value);
    };
    // The plain names of all services come before those of endpoints: `DB_HTTP_PORT` may be a service's own.
    for Reached {
        service,
        address,
        ports,
    } in services
    {
        let prefix = word(service);
        set(address_variable(service), address.to_string());
        if let Some((_, port)) = ports.first() {
            set(format!("{prefix}_PORT"), port.to_string());
            set(format!("{prefix}_ADDR"), format!("{address}:{port}"));
        }
    }
    for Reached { service, ports, .. } in services {
        let prefix = word(service);
        for (endpoint, port) in ports {
            set(format!("{prefix}_{}_PORT", word(endpoint)), port.to_string());
        }
    }
    variables
}

/// The variable that holds a service's address.
pub fn address_variable(service: &str) -> String {
    format!("{}_HOST", word(service))
}

/// A name as variables have it.
fn word(name: &str) -> String {
    let letter = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_their_names_and_their_endpoints() {
        let reached = |service: &str, last, ports: &[(&str, u16)]| Reached {
            service: service.into(),
            address: Ipv4Addr::new(10, 87, 0, last),
            ports: ports.iter().map(|(name, port)| ((*name).into(), *port)).collect(),
        };
        let services = [
            reached("db", 16, &[("pg", 5432), ("metrics.v1", 9100)]),
            reached("my-cache", 17, &[("redis", 6379)]),
            reached("db-pg", 18, &[("http", 80)]),
        ];
        let found: Vec<String> = variables(&services)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            found,
            [
                "DB_ADDR=10.87.0.16:5432",
                "DB_HOST=10.87.0.16",
                "DB_METRICS_V1_PORT=9100",
                "DB_PG_ADDR=10.87.0.18:80",
                "DB_PG_HOST=10.87.0.18",
                "DB_PG_HTTP_PORT=80",
                "DB_PG_PORT=80",
                "DB_PORT=5432",
                "MY_CACHE_ADDR=10.87.0.17:6379",
                "MY_CACHE_HOST=10.87.0.17",
                "MY_CACHE_PORT=6379",
                "MY_CACHE_REDIS_PORT=6379",
            ]
        );
    }
}
