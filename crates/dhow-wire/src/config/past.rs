//! `past`: how far back this server can tell what was.

use std::time::Duration;

use dhow_core::spec::ByteSize;
use dhow_core::spec::check::{FieldPath, SpecFinding};
use serde::Serialize;

use super::cluster_mode::{ClusterMode, WorkerTierRole};
use super::seconds;
use crate::document::{Decoder, Fields, Node, size, whole_seconds};

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PastConfig {
    /// What is older is forgotten; nothing is kept where it is zero.
    #[serde(serialize_with = "seconds::serialize")]
    pub window: Duration,
    /// The oldest is forgotten before there is more.
    pub max_size: ByteSize,
}

impl Default for PastConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(7 * 24 * 60 * 60),
            max_size: ByteSize(1 << 30),
        }
    }
}

/// Less would not hold the state of a large cluster twice.
const MAX_SIZE_MIN: ByteSize = ByteSize(16 << 20);

impl PastConfig {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

pub(super) fn read(decoder: &mut Decoder, node: &Node) -> Option<PastConfig> {
    let mut fields = Fields::open(decoder, node, "`past`", "`{ window: 604800, max_size: 1Gi }`")?;
    fields.elsewhere(&[
        ("keep", "write `window`, in seconds"),
        ("size", "write `max_size`"),
    ]);
    let plain = PastConfig::default();
    let past = PastConfig {
        window: fields.or("window", plain.window, whole_seconds),
        max_size: fields.or("max_size", plain.max_size, size),
    };
    fields.close();
    Some(past)
}

/// What cannot be kept is refused.
pub(super) fn check(past: &PastConfig, cluster: &ClusterMode, findings: &mut Vec<SpecFinding>) {
    if past.is_default() {
        return;
    }
    let place = FieldPath::of("past");
    let why = match cluster {
        ClusterMode::Static { .. } => Some("a static cluster keeps no past"),
        ClusterMode::WorkerTier {
            role: WorkerTierRole::Worker,
            ..
        } => Some("the servers keep the past, a worker has none"),
        ClusterMode::SingleNode {} | ClusterMode::Raft { .. } | ClusterMode::WorkerTier { .. } => None,
    };
    if let Some(why) = why {
        findings.push(SpecFinding::at(place, why).hint("remove it here"));
    } else if past.max_size < MAX_SIZE_MIN {
        let message = format!("at least {MAX_SIZE_MIN} are needed, found {}", past.max_size);
        let finding = SpecFinding::at(place.key("max_size"), message);
        findings.push(finding.hint("`window: 0` keeps nothing of the past"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_config;
    use super::*;

    #[test]
    fn it_is_read_and_written_back() {
        let of = |text: &str| {
            let config = parse_config(text, "dhow.yaml").unwrap();
            let again = serde_json::to_string(&config).unwrap();
            assert_eq!(parse_config(&again, "again.yaml").unwrap(), config);
            config.past
        };
        assert_eq!(of(""), PastConfig::default());
        let past = of("past: { window: 3600, max_size: 64Mi }\n");
        assert_eq!(
            (past.window.as_secs(), past.max_size),
            (3_600, ByteSize(64 << 20))
        );
        assert!(of("past: { window: 0 }\n").window.is_zero());
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let peers =
            "cluster: { mode: static, node_id: 1, peers: [{ id: 1, api_addr: \"127.0.0.1:3669\" }] }\n";
        for (text, why) in [
            ("past: { max_size: 1Mi }\n".to_owned(), "at least 16Mi"),
            ("past: { window: 7d }\n".to_owned(), "whole seconds"),
            ("past: { keep: 7 }\n".to_owned(), "write `window`"),
            (
                format!("{peers}past: {{ window: 60 }}\n"),
                "a static cluster keeps no past",
            ),
        ] {
            let refused = parse_config(&text, "dhow.yaml").unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
