//! What is done without an entry of the log, told as an event with its author: commands in replicas, backups, images and
//! changes of who votes. Everything else names its caller in the log itself.

use axum::extract::Query;
use axum::http::{Method, Uri};
use dhow_core::ids::{DeploymentName, NodeId};

use crate::plane::runtime::{Event, EventKind};

/// The longest name of a program in an event.
const PROGRAM_CHARS_MAX: usize = 64;

/// The event of what a request is about to do, for requests that no entry of the log speaks of.
pub(super) fn deed(method: &Method, uri: &Uri) -> Option<Event> {
    let path = uri.path().strip_prefix("/api/v1/")?;
    let parts: Vec<&str> = path.split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["deployments", deployment, "replicas", replica, "exec"]) => Some(Event {
            deployment: DeploymentName::new(deployment).ok(),
            replica: Some(replica.chars().take(PROGRAM_CHARS_MAX).collect()),
            ..Event::new(EventKind::CommandRun).with_message(program(uri))
        }),
        ("GET", ["cluster", "backup"]) => Some(Event::new(EventKind::BackedUp)),
        ("POST" | "DELETE", ["images", rest @ ..]) => {
            let what = rest.first().copied().unwrap_or("remove");
            Some(Event::new(EventKind::ImagesChanged).with_message(what))
        }
        ("POST", ["cluster", "members"]) => Some(Event::new(EventKind::MemberAdded)),
        ("DELETE", ["cluster", "members", node]) => {
            let event = Event::new(EventKind::MemberRemoved);
            Some(match node.parse() {
                Ok(node) => event.with_node(NodeId(node)),
                Err(_) => event,
            })
        }
        _ => None,
    }
}

/// The program's name alone: its arguments may be secret.
fn program(uri: &Uri) -> String {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let pairs = pairs.map(|Query(pairs)| pairs).unwrap_or_default();
    let first = pairs.into_iter().find(|(key, _)| key == "command");
    let path = first.map(|(_, word)| word).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.split_whitespace().next().unwrap_or_default();
    name.chars()
        .filter(|c| !c.is_control())
        .take(PROGRAM_CHARS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_command_the_programs_name_alone_is_told() {
        let told = |query: &str| {
            let uri = format!("/api/v1/deployments/shop/replicas/web-default-0/exec?{query}");
            deed(&Method::POST, &uri.parse().unwrap()).unwrap()
        };
        let event = told("stdin=true&command=%2Fusr%2Fbin%2Fpsql&command=--password%3Dhunter2");
        assert_eq!(event.message.as_deref(), Some("psql"));
        assert_eq!(event.replica.as_deref(), Some("web-default-0"));
        assert_eq!(event.deployment.unwrap().as_str(), "shop");
        assert_eq!(told("command=sh%20-c%20secret").message.as_deref(), Some("sh"));
        assert_eq!(told("").message.as_deref(), Some(""));
        let long = format!("command={}", "x".repeat(1_000));
        assert_eq!(told(&long).message.unwrap().len(), PROGRAM_CHARS_MAX);
    }

    #[test]
    fn what_the_log_tells_is_not_told_twice() {
        for (method, path, is_told) in [
            (Method::POST, "/api/v1/deployments", false),
            (Method::GET, "/api/v1/images", false),
            (Method::GET, "/api/v1/cluster", false),
            (Method::GET, "/health", false),
            (Method::GET, "/api/v1/cluster/backup", true),
            (Method::POST, "/api/v1/images/pull", true),
            (Method::DELETE, "/api/v1/images", true),
            (Method::POST, "/api/v1/cluster/members", true),
            (Method::DELETE, "/api/v1/cluster/members/4", true),
        ] {
            let found = deed(&method, &path.parse().unwrap());
            assert_eq!(found.is_some(), is_told, "{method} {path}");
        }
    }
}
