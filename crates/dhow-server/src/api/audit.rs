//! What is done without an entry of the log, told as an event with its author: commands in replicas, backups, images and
//! changes of who votes. Everything else names its caller in the log itself.

use axum::extract::Query;
use axum::http::{Method, Uri};
use dhow_core::ids::{DeploymentName, NodeId};

use crate::plane::runtime::{Event, EventKind};

/// The longest name of a program in an event.
const PROGRAM_CHARS_MAX: usize = 64;

/// The longest name of a replica: those of its service and its role, its number, and room.
const REPLICA_CHARS_MAX: usize = 160;

/// The longest name of an image in an event.
const ABOUT_CHARS_MAX: usize = 400;

/// What a handler knows better than the address: it goes with the answer, into the message of the event.
#[derive(Clone, Debug)]
pub(super) struct About(pub String);

/// The event of something that was done, with what its handler says about it.
pub(super) fn done(deed: Event, about: Option<&About>) -> Event {
    let Some(About(about)) = about else {
        return deed;
    };
    let about: String = about.chars().take(ABOUT_CHARS_MAX).collect();
    match deed.message.clone() {
        Some(what) => deed.with_message(format!("{what} {about}")),
        None => deed.with_message(about),
    }
}

/// The event of what a request is about to do, for requests that no entry of the log speaks of.
pub(super) fn deed(method: &Method, uri: &Uri) -> Option<Event> {
    let path = uri.path().strip_prefix("/api/v1/")?;
    let parts: Vec<&str> = path.split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["deployments", deployment, "replicas", replica, "exec"]) => Some(Event {
            deployment: DeploymentName::new(&read(deployment)).ok(),
            replica: Some(read(replica)),
            ..Event::new(EventKind::CommandRun).with_message(program(uri))
        }),
        ("GET", ["cluster", "backup"]) => Some(Event::new(EventKind::BackedUp)),
        ("GET", ["volumes", deployment, volume, "content"]) => Some(Event {
            deployment: DeploymentName::new(&read(deployment)).ok(),
            ..Event::new(EventKind::BackedUp).with_message(format!("volume {}", read(volume)))
        }),
        ("PUT", ["volumes", deployment, volume, "content"]) => Some(Event {
            deployment: DeploymentName::new(&read(deployment)).ok(),
            ..Event::new(EventKind::VolumesChanged).with_message(format!("restored {}", read(volume)))
        }),
        ("DELETE", ["volumes", deployment, volume]) => Some(Event {
            deployment: DeploymentName::new(&read(deployment)).ok(),
            ..Event::new(EventKind::VolumesChanged).with_message(format!("removed {}", read(volume)))
        }),
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

/// A part of an address as routes read it: letters may be written as numbers there, and names must not hide behind that.
fn read(part: &str) -> String {
    let uri = format!("/?part={part}").parse::<Uri>().ok();
    let pairs = uri.and_then(|uri| Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
    let first = pairs.and_then(|Query(pairs)| pairs.into_iter().next());
    let text = first.map_or_else(|| part.to_owned(), |(_, text)| text);
    text.chars().take(REPLICA_CHARS_MAX).collect()
}

/// The program's name alone: its arguments may be secret. Where no program is run, the port that is connected to, or
/// which way files are copied.
fn program(uri: &Uri) -> String {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let pairs = pairs.map(|Query(pairs)| pairs).unwrap_or_default();
    let port = pairs.iter().find(|(key, _)| key == "port");
    if let Some(port) = port.and_then(|(_, port)| port.parse::<u16>().ok()) {
        return format!("a connection to port {port}");
    }
    let copy = pairs.iter().find(|(key, _)| key == "copy");
    match copy.map(|(_, way)| way.as_str()) {
        Some("in") => return "files copied into it".into(),
        Some(_) => return "files copied out of it".into(),
        None => {}
    }
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
        assert_eq!(
            told("port=5432").message.as_deref(),
            Some("a connection to port 5432")
        );
        assert_eq!(told("").message.as_deref(), Some(""));
        let long = format!("command={}", "x".repeat(1_000));
        assert_eq!(told(&long).message.unwrap().len(), PROGRAM_CHARS_MAX);
    }

    #[test]
    fn names_are_told_as_routes_read_them() {
        let told = |path: &str| {
            deed(
                &Method::POST,
                &format!("/api/v1/{path}?command=sh").parse().unwrap(),
            )
            .unwrap()
        };
        let hidden = told("deployments/%73hop/replicas/web%2Ddefault%2d0/exec");
        assert_eq!(hidden.deployment.unwrap().as_str(), "shop");
        assert_eq!(hidden.replica.as_deref(), Some("web-default-0"));
        let service = "s".repeat(63);
        let long = told(&format!("deployments/shop/replicas/{service}-default-12345/exec"));
        assert_eq!(
            long.replica.unwrap().len(),
            63 + "-default-12345".len(),
            "long names stay whole"
        );
    }

    #[test]
    fn a_handlers_word_stands_behind_what_was_done() {
        let pull = deed(&Method::POST, &"/api/v1/images/pull".parse().unwrap()).unwrap();
        assert_eq!(done(pull.clone(), None).message.as_deref(), Some("pull"));
        let about = About("evil.example/x:1".into());
        assert_eq!(
            done(pull, Some(&about)).message.as_deref(),
            Some("pull evil.example/x:1")
        );
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
