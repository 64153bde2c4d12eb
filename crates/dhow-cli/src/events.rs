//! `dhow events`: the event log, resumable by revision.

use dhow_wire::api::EventDocument;

use crate::human::{one_line, time};

/// Show what has happened, and with `-f` what happens
#[derive(clap::Args)]
pub struct Args {
    /// Go on with what comes
    #[arg(long, short)]
    pub follow: bool,

    /// Only what came after this revision of the state
    #[arg(long, value_name = "REVISION")]
    pub since: Option<u64>,

    /// Only what somebody asked for, with who it was; for administrators
    #[arg(long)]
    pub audit: bool,

    /// Print the API's JSON on stdout: a list, and with `-f` a document for each event
    #[arg(long)]
    pub json: bool,
}

/// A line of the listing.
pub fn line(event: &EventDocument, with_author: bool) -> String {
    let time = match event.wall_unix_ms {
        Some(ms) => time(ms.saturating_mul(1_000)),
        // Without a wall clock, the time since the cluster began.
        None => format!("+{}.{:03}s", event.time_ms / 1_000, event.time_ms % 1_000),
    };
    let id = format!("{}.{}", event.revision, event.part);
    format!("{id:<8} {time:<23} {}\n", what(event, with_author))
}

/// What happened, to whom and where, without its place in the log and its time.
pub fn what(event: &EventDocument, with_author: bool) -> String {
    let about = [
        subject(event),
        event.node_id.map(|node| format!("node {node}")),
        event
            .author
            .as_ref()
            .filter(|_| with_author)
            .map(|author| format!("by {}", one_line(author))),
    ];
    let about: Vec<String> = about.into_iter().flatten().collect();
    let said = [Some(about.join(" ")), event.message.as_deref().map(one_line)];
    let said: Vec<String> = said
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    let text = format!("{:<18} {}", event.kind, said.join(": "));
    text.trim_end().to_owned()
}

/// Whom it is about. While one replica takes the place of another of the same name, only the generation tells them apart.
fn subject(event: &EventDocument) -> Option<String> {
    let deployment = event.deployment.as_ref()?;
    Some(match (&event.replica, event.generation, &event.service) {
        (Some(id), Some(generation), _) => format!("{deployment}/{id}#{generation}"),
        (Some(name), None, _) | (None, _, Some(name)) => format!("{deployment}/{name}"),
        (None, _, None) => deployment.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, more: serde_json::Value) -> EventDocument {
        let mut record = serde_json::json!({ "revision": 7, "part": 2, "time_ms": 1_500, "kind": kind });
        record
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_replica_and_the_one_in_its_place_are_told_apart() {
        let json = serde_json::json!({
            "deployment": "shop", "service": "web", "replica": "web-default-0", "generation": 2, "node_id": 3,
            "message": "replaced by\na newer one", "author": "uid 0"
        });
        let event = event("replica_stop_asked", json);
        assert_eq!(
            what(&event, false),
            "replica_stop_asked shop/web-default-0#2 node 3: replaced by a newer one"
        );
        assert_eq!(
            line(&event, true),
            "7.2      +1.500s                 replica_stop_asked shop/web-default-0#2 node 3 by uid 0: replaced by a newer one\n"
        );
    }

    #[test]
    fn what_is_about_nobody_has_no_stray_marks() {
        assert_eq!(
            what(&event("token_revoked", serde_json::json!({})), true),
            "token_revoked"
        );
        let service = serde_json::json!({ "deployment": "shop", "service": "web" });
        assert_eq!(
            what(&event("cron_fired", service), false),
            "cron_fired         shop/web"
        );
    }
}
