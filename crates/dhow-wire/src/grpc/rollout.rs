//! A rollout that is open for a node, with the specs of its roles as JSON.

use std::sync::Arc;

use dhow_core::ids::{Generation, ServiceName};
use dhow_core::mirror::OpenRollout;

use super::proto;
use crate::names::deployment_on_wire;

pub fn to_open_rollout(open: &OpenRollout) -> proto::OpenRollout {
    // A spec that was deployed can be written.
    let specs = open.specs.iter();
    let spec_json = specs.filter_map(|spec| serde_json::to_vec(spec.as_ref()).ok());
    proto::OpenRollout {
        rollout_id: open.id.to_string(),
        deployment: deployment_on_wire(&open.id.deployment).unwrap_or_default(),
        service: open.service.to_string(),
        generation: Some(open.generation.0),
        spec_json: spec_json.collect(),
    }
}

/// A rollout as it came; one that cannot be read is not prepared for, and comes with its assignment.
pub fn from_open_rollout(told: proto::OpenRollout) -> Option<OpenRollout> {
    let specs = told.spec_json.iter();
    let specs = specs.map(|json| serde_json::from_slice(json).map(Arc::new));
    Some(OpenRollout {
        id: told.rollout_id.parse().ok()?,
        service: ServiceName::new(&told.service).ok()?,
        generation: Generation(told.generation.unwrap_or_default()),
        specs: specs.collect::<Result<_, _>>().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::spec::ServiceSpec;

    #[test]
    fn a_rollout_is_the_same_on_both_sides() {
        let open = OpenRollout {
            id: "shop@3".parse().unwrap(),
            service: ServiceName::new("web").unwrap(),
            generation: Generation(7),
            specs: vec![Arc::new(ServiceSpec::default())],
        };
        assert_eq!(from_open_rollout(to_open_rollout(&open)), Some(open));
    }

    #[test]
    fn what_cannot_be_read_is_none() {
        let told = proto::OpenRollout {
            rollout_id: "shop@3".into(),
            service: "web".into(),
            spec_json: vec![b"{".to_vec()],
            ..proto::OpenRollout::default()
        };
        assert_eq!(from_open_rollout(told), None);
    }
}
