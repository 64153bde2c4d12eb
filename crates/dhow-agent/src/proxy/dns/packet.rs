//! One question as it came, and the bytes of an answer.

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::DNSClass;

use super::Way;

/// The head of every message; without it there is nothing to answer.
pub const HEAD_BYTES: usize = 12;
/// What a datagram may have without a word about it.
const PLAIN_BYTES: u16 = 512;
/// What is promised to be taken and sent in one datagram: no path cuts it.
pub const PAYLOAD_BYTES: u16 = 1232;
/// No answer in one datagram is longer, whatever the asker says that it takes.
const PAYLOAD_MAX_BYTES: u16 = 4096;

/// A question that can be answered: one name, of the class of the Internet.
pub struct Request {
    pub metadata: Metadata,
    pub query: Query,
    pub edns: Option<Edns>,
    /// As it came, to be passed on.
    pub bytes: Vec<u8>,
}

/// What a packet is.
pub enum Read {
    Request(Request),
    /// Nonsense, or something that is not done here; with the answer to it.
    Broken(Vec<u8>),
    /// An answer to something, or too short: whoever sent it waits for nothing.
    Nothing,
}

/// Reads a packet of a stranger.
pub fn read(packet: &[u8]) -> Read {
    let Some(head) = packet.get(..HEAD_BYTES) else {
        return Read::Nothing;
    };
    let is_response = head.get(2).is_some_and(|byte| byte & 0x80 != 0);
    if is_response {
        return Read::Nothing;
    }
    let broken = |id: u16, op_code: OpCode, code: ResponseCode| {
        Read::Broken(encoded(
            &Message::error_msg(id, op_code, code),
            usize::from(PLAIN_BYTES),
        ))
    };
    let id = match head {
        [high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    let Ok(message) = Message::from_vec(packet) else {
        return broken(id, OpCode::Query, ResponseCode::FormErr);
    };
    let op_code = message.metadata.op_code;
    if op_code != OpCode::Query || message.metadata.message_type != MessageType::Query {
        return broken(id, op_code, ResponseCode::NotImp);
    }
    let [query] = message.queries.as_slice() else {
        return broken(id, op_code, ResponseCode::FormErr);
    };
    let request = Request {
        metadata: message.metadata,
        query: query.clone(),
        edns: message.edns,
        bytes: packet.to_owned(),
    };
    let plain = usize::from(PLAIN_BYTES);
    if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return Read::Broken(encoded(&request.failed(ResponseCode::BADVERS), plain));
    }
    match request.query.query_class() {
        DNSClass::IN => Read::Request(request),
        _ => Read::Broken(encoded(&request.failed(ResponseCode::Refused), plain)),
    }
}

impl Request {
    /// An answer without records yet.
    pub fn response(&self, code: ResponseCode) -> Message {
        let mut metadata = Metadata::response_from_request(&self.metadata);
        metadata.recursion_available = true;
        metadata.response_code = code;
        let mut message = Message::response(metadata.id, metadata.op_code);
        message.metadata = metadata;
        message.add_query(self.query.clone());
        if self.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD_BYTES);
            edns.set_rcode_high(code.high());
            message.set_edns(edns);
        }
        message
    }

    pub fn failed(&self, code: ResponseCode) -> Message {
        self.response(code)
    }

    /// How many bytes an answer may have.
    pub fn room(&self, way: Way) -> usize {
        match way {
            Way::Stream => usize::from(u16::MAX),
            Way::Datagram => {
                let said = self.edns.as_ref().map_or(PLAIN_BYTES, Edns::max_payload);
                usize::from(said.clamp(PLAIN_BYTES, PAYLOAD_MAX_BYTES))
            }
        }
    }

    pub fn wants_dnssec(&self) -> bool {
        self.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok)
    }
}

/// The bytes of an answer. One that has no room says that there is more, over TCP.
pub fn encoded(message: &Message, room: usize) -> Vec<u8> {
    match message.to_vec() {
        Ok(bytes) if bytes.len() <= room => bytes,
        // What cannot be written cannot be cut either; then the asker tries again.
        Ok(_) => message.truncate().to_vec().unwrap_or_default(),
        Err(_) => {
            let metadata = message.metadata;
            let failed = Message::error_msg(metadata.id, metadata.op_code, ResponseCode::ServFail);
            failed.to_vec().unwrap_or_default()
        }
    }
}
