//! A process's environment: a clean base, never the daemon's own.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::driver::PortBinding;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Base, then the ports, then what the service says: the later wins.
pub(super) fn build(
    home: &str,
    ports: &[PortBinding],
    env: &BTreeMap<String, String>,
    secret_env: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut built = BTreeMap::new();
    built.insert("PATH".to_owned(), PATH.to_owned());
    built.insert("HOME".to_owned(), home.to_owned());
    built.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    if let Some(first) = ports.first() {
        built.insert("PORT".to_owned(), first.host_port.to_string());
    }
    for port in ports {
        built.insert(port_name(&port.endpoint), port.host_port.to_string());
    }
    for (key, value) in env.iter().chain(secret_env) {
        built.insert(key.clone(), value.clone());
    }
    built
}

/// `PORT_ADMIN_UI` for the endpoint `admin-ui`.
fn port_name(endpoint: &str) -> String {
    let name: String = endpoint
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    format!("PORT_{name}")
}

/// The values that a running process was started with, for the keys whose values are on no disk. Blocks.
pub(super) fn of_process(pid: u32, keys: &[String]) -> BTreeMap<String, String> {
    if keys.is_empty() {
        return BTreeMap::new();
    }
    let bytes = read_environ(pid);
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| keys.iter().any(|wanted| wanted == key))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Empty for the moment in which a process becomes another program: 20 × 5 ms are longer than that.
fn read_environ(pid: u32) -> Vec<u8> {
    const TRIES_MAX: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 0..TRIES_MAX {
        match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(bytes) if bytes.is_empty() => std::thread::sleep(PAUSE),
            Ok(bytes) => return bytes,
            Err(_) => break,
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_wins_over_ports_and_ports_over_the_base() {
        let port = |endpoint: &str, host_port| PortBinding {
            endpoint: endpoint.into(),
            host_port,
            target_port: 80,
        };
        let env = BTreeMap::from([("HOME".to_owned(), "/data".to_owned())]);
        let secret = BTreeMap::from([("KEY".to_owned(), "s".to_owned())]);
        let built = build(
            "/root",
            &[port("http", 8001), port("admin-ui", 8002)],
            &env,
            &secret,
        );
        let get = |key: &str| built.get(key).map(String::as_str);
        assert_eq!(get("HOME"), Some("/data"));
        assert_eq!(get("PORT"), Some("8001"));
        assert_eq!(get("PORT_ADMIN_UI"), Some("8002"));
        assert_eq!(get("KEY"), Some("s"));
        assert_eq!(built.len(), 7);
    }
}
