//! An assignment as the parts in which it travels.

use dhow_core::assignment::{Assignment, RoleAssignment};
use dhow_core::ids::ServiceKey;

use super::malformed::Malformed;
use super::proto;
use super::spec_texts::SpecTexts;

/// A part is closed once it is larger than this. A node's whole assignment is mostly below; one with hundreds of
/// services goes out in parts, so that no message is as large as all of them.
const PART_BYTES: usize = 512 * 1024;

/// Who reads the specs of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecReader {
    /// An agent that knows all that this version writes.
    Current,
    /// One of a version that does not know who may call an endpoint: it is told less, and never more.
    BeforeCallers,
}

/// The parts, at least one. `texts` keeps the specs' JSON for the next node that is told the same.
pub fn to_parts(
    assignment: &Assignment,
    texts: &SpecTexts,
    reader: SpecReader,
) -> Result<Vec<proto::Assignment>, Malformed> {
    let part = || proto::Assignment {
        revision: assignment.revision.0,
        whole: assignment.whole,
        more: false,
        services: Vec::new(),
        term: assignment.term.unwrap_or_default().0,
    };
    let (mut parts, mut open) = (Vec::new(), part());
    let mut size_bytes = 0;
    for (service, roles) in &assignment.services {
        if size_bytes > PART_BYTES {
            open.more = true;
            parts.push(std::mem::replace(&mut open, part()));
            size_bytes = 0;
        }
        let service = service_of(service, roles, (texts, reader))?;
        size_bytes += size_of(&service);
        open.services.push(service);
    }
    parts.push(open);
    Ok(parts)
}

/// Of the specs, beside which the rest is small.
fn size_of(service: &proto::ServiceAssignment) -> usize {
    let sizes = service
        .roles
        .iter()
        .map(|role| role.spec_json.len() + role.next.as_ref().map_or(0, |next| next.spec_json.len()));
    sizes.sum()
}

fn service_of(
    service: &ServiceKey,
    roles: &[RoleAssignment],
    (texts, reader): (&SpecTexts, SpecReader),
) -> Result<proto::ServiceAssignment, Malformed> {
    let roles = roles.iter().map(|alike| {
        let next = alike.next.as_ref().map(|next| {
            Ok(proto::NextSettings {
                id: next.id.0,
                spec_json: texts.of(&next.spec, reader)?,
            })
        });
        Ok(proto::RoleAssignment {
            role: alike.role.to_string(),
            generation: alike.generation.0,
            indices: alike.indices.clone(),
            spec_json: texts.of(&alike.spec, reader)?,
            next: next.transpose()?,
        })
    });
    Ok(proto::ServiceAssignment {
        deployment: service.deployment.to_string(),
        service: service.service.to_string(),
        roles: roles.collect::<Result<_, Malformed>>()?,
    })
}
