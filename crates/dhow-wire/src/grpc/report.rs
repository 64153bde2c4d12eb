//! A node's account of its replicas, as bytes with the version of their form before them.

use dhow_core::mirror::ReportBody;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::malformed::Malformed;
use super::proto;
use super::proto::status_report::Body;

/// The form that is written. Postcard does not describe itself: another field is another form.
const FORM: u8 = 1;

const EVENTS: &str = "events";
const REPLICAS: &str = "replicas";

pub fn to_body(body: &ReportBody) -> Result<Body, Malformed> {
    Ok(match body {
        ReportBody::Events { first_seq, events } => Body::Events(proto::Events {
            first_seq: *first_seq,
            events: encode(EVENTS, events)?,
        }),
        ReportBody::Inventory { seq, replicas } => Body::Inventory(proto::Inventory {
            seq: *seq,
            replicas: encode(REPLICAS, replicas)?,
        }),
    })
}

/// The report; none where it is only a heartbeat.
pub fn from_body(body: &Body) -> Result<Option<ReportBody>, Malformed> {
    Ok(match body {
        Body::Events(told) => Some(ReportBody::Events {
            first_seq: told.first_seq,
            events: decode(EVENTS, &told.events)?,
        }),
        Body::Inventory(told) => Some(ReportBody::Inventory {
            seq: told.seq,
            replicas: decode(REPLICAS, &told.replicas)?,
        }),
        Body::Heartbeat(_) => None,
    })
}

/// An empty list is no bytes at all.
fn encode<T: Serialize>(what: &'static str, items: &[T]) -> Result<Vec<u8>, Malformed> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    postcard::to_extend(items, vec![FORM]).map_err(|_| Malformed::Unwritable { what })
}

fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<Vec<T>, Malformed> {
    let Some((form, rest)) = bytes.split_first() else {
        return Ok(Vec::new());
    };
    if *form != FORM {
        return Err(Malformed::Form {
            what,
            found: *form,
            known: FORM,
        });
    }
    match postcard::take_from_bytes(rest) {
        Ok((items, [])) => Ok(items),
        Ok(_) | Err(_) => Err(Malformed::Bytes { what }),
    }
}
