//! What volumes look like to people.

use dhow_wire::api::VolumeInfo;

use crate::human;

pub const HEADING: [&str; 8] = [
    "VOLUME",
    "NODE",
    "USED",
    "LIMIT",
    "SERVICES",
    "USED BY",
    "AGE",
    "UNUSED FOR",
];

/// The columns of a listing.
pub struct VolumeRow(pub [String; 8]);

/// How much is in it; more than was counted has a mark.
fn used(volume: &VolumeInfo) -> String {
    let more = if volume.is_larger { ">" } else { "" };
    format!("{more}{}", human::bytes(volume.used_bytes))
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

pub fn row(volume: &VolumeInfo, now_unix_secs: i64) -> VolumeRow {
    let age = |since: Option<i64>| since.map(|since| human::age(since, now_unix_secs));
    VolumeRow([
        format!("{}/{}", volume.deployment, volume.name),
        volume.node_id.to_string(),
        used(volume),
        or_dash(volume.limit_bytes.map(human::bytes).unwrap_or_default()),
        or_dash(volume.services.join(",")),
        match volume.replicas.len() {
            0 => "-".into(),
            1 => volume.replicas[0].clone(),
            more => format!("{more} replicas"),
        },
        or_dash(age(volume.created_unix_secs).unwrap_or_default()),
        or_dash(age(volume.unused_since_unix_secs).unwrap_or_default()),
    ])
}

/// All of one volume, a line for each thing.
pub fn details(volume: &VolumeInfo, now_unix_secs: i64) -> String {
    let since = |since: Option<i64>| match since {
        Some(since) => format!("{} ago", human::age(since, now_unix_secs)),
        None => "not known".into(),
    };
    let mut text = format!(
        "{}/{} on node {}\n",
        volume.deployment, volume.name, volume.node_id
    );
    let limit = match volume.limit_bytes {
        Some(limit) => format!(" of {}", human::bytes(limit)),
        None => String::new(),
    };
    text += &format!("  holds      {}{limit}\n", used(volume));
    text += &format!("  made       {}\n", since(volume.created_unix_secs));
    text += &match (volume.services.is_empty(), volume.is_named) {
        (false, _) => format!("  mounted by {}\n", volume.services.join(", ")),
        (true, true) => "  mounted by nothing now; a kept revision names it\n".into(),
        (true, false) => "  mounted by nothing: `dhow volume prune` removes it\n".into(),
    };
    match volume.replicas.as_slice() {
        [] => text += &format!("  unused     since {}\n", since(volume.unused_since_unix_secs)),
        used => text += &format!("  used by    {}\n", used.join(", ")),
    }
    text
}
