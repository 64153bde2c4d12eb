//! Clients that stay with the replica that they had: by their address, or by a cookie.

use std::net::IpAddr;

use dhow_core::spec::Sticky;
use hyper::header::HeaderValue;

use crate::proxy::routes::{Route, StickyTo, mark_of};

/// Where a client is to stay; none where it is new, or may go anywhere.
pub fn wanted<'c>(route: &Route, client: IpAddr, cookies: impl Iterator<Item = &'c str>) -> Option<StickyTo> {
    match route.options.sticky? {
        Sticky::Ip => Some(StickyTo::Address(client)),
        Sticky::Cookie => {
            let name = name(route);
            let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
            let value = cookies.find_map(|cookie| cookie.trim().strip_prefix(&name)?.strip_prefix('='))?;
            Some(StickyTo::Backend(u64::from_str_radix(value, 16).ok()?))
        }
    }
}

/// The cookie that a client is given with the answer of a backend, unless it has that one.
pub fn cookie(route: &Route, had: Option<StickyTo>, backend: &str, is_tls: bool) -> Option<HeaderValue> {
    match route.options.sticky? {
        Sticky::Ip => None,
        Sticky::Cookie => {
            let mark = mark_of(backend);
            if had == Some(StickyTo::Backend(mark)) {
                return None;
            }
            let path = route.prefix().filter(|path| !path.is_empty()).unwrap_or("/");
            let secure = if is_tls { "; Secure" } else { "" };
            let name = name(route);
            let text = format!("{name}={mark:016x}; Path={path}; HttpOnly; SameSite=Lax{secure}");
            HeaderValue::try_from(text).ok()
        }
    }
}

/// One for each endpoint, so that those that share a host do not take each other's.
fn name(route: &Route) -> String {
    format!("dhow-{:016x}", mark_of(&route.id))
}
