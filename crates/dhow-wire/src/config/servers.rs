//! The addresses at which a worker looks for servers: `host:port`, with `http://`, `https://` or neither.

use std::net::{IpAddr, SocketAddr};

use dhow_core::spec::check::quoted;

use super::values::Wrong;

/// What is wrong with a server's address. A name is fine here: it is looked up when the worker connects.
pub(super) fn problem(server: &str) -> Option<Wrong> {
    const HOW: &str = "write `10.0.0.1:3670` or `server-1.example.org:3670`";
    let shown = quoted(server);
    if server.is_empty() {
        return Some(("the address of a server is empty".into(), HOW.into()));
    }
    let rest = match server.split_once("://") {
        None => server,
        Some(("http" | "https", rest)) => rest,
        Some((scheme, rest)) => {
            let message = format!("{} is not a scheme for a server", quoted(&format!("{scheme}://")));
            return Some((message, format!("did you mean {}?", quoted(rest))));
        }
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(c) = rest
        .chars()
        .find(|c| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | '@'))
    {
        let what = if c == '/' {
            "a path".to_owned()
        } else {
            quoted(&c.to_string())
        };
        return Some((
            format!("{shown} holds {what}, a server has a host and a port"),
            HOW.into(),
        ));
    }
    if let Ok(addr) = rest.parse::<SocketAddr>() {
        return address_problem(&shown, addr);
    }
    if let Ok(ip) = rest.trim_matches(['[', ']']).parse::<IpAddr>() {
        let hint = format!("did you mean `{}`?", SocketAddr::new(ip, 3670));
        return Some((format!("{shown} has no port"), hint));
    }
    let Some((host, port)) = rest.rsplit_once(':') else {
        let hint = format!("did you mean {}?", quoted(&format!("{rest}:3670")));
        return Some((format!("{shown} has no port"), hint));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.is_empty() || !host.chars().all(fits) {
        return Some((format!("{shown} has no possible host"), HOW.into()));
    }
    match port.parse::<u16>() {
        Ok(0) | Err(_) => Some((
            format!("{shown} has no possible port"),
            "a port is 1 to 65535; servers listen on 3670".into(),
        )),
        Ok(_) => None,
    }
}

fn address_problem(shown: &str, addr: SocketAddr) -> Option<Wrong> {
    if addr.port() == 0 {
        return Some((format!("{shown} has the port 0"), "servers listen on 3670".into()));
    }
    addr.ip().is_unspecified().then(|| {
        let hint = "write the address at which this machine reaches the server";
        (format!("{shown} is no machine's address"), hint.into())
    })
}
