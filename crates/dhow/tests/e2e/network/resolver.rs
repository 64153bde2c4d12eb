//! A name server that knows one name, over UDP alone. This test program starts itself as one.

use std::net::UdpSocket;

use crate::support::Service;

/// The test that is the server, where it is asked to be one.
const SERVE: &str = "network::resolver::answers_where_it_is_asked_to";
const ASKED: &str = "E2E_RESOLVER";

/// What it is asked, and what it says.
pub const NAME: &str = "answer.test";
pub const ADDRESS: &str = "192.0.2.77";

/// As a host program.
pub fn service() -> Service {
    let own = std::env::current_exe().unwrap();
    let command = [own.to_str().unwrap(), "--exact", SERVE, "--nocapture"];
    Service::program(&command).env(ASKED, "1")
}

#[test]
fn answers_where_it_is_asked_to() {
    if std::env::var(ASKED).is_err() {
        return;
    }
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let mut question = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut question).unwrap();
        if let Some(answer) = answer(&question[..length]) {
            socket.send_to(&answer, from).unwrap();
        }
    }
}

/// The question with one address in the answer: a header of twelve bytes, the name, type and class.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let header = question.get(..12)?;
    let end = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)? + 5;
    let address: std::net::Ipv4Addr = ADDRESS.parse().unwrap();
    let mut answer = header[..2].to_vec();
    // An answer without an error: one question, one answer.
    answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    answer.extend(question.get(12..end)?);
    // The same name, A, IN, a minute, four bytes.
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    answer.extend(address.octets());
    Some(answer)
}
