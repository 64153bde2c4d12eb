//! What holds for every frame, and for every heap of bytes.

use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = String> {
    "[a-z0-9@/\"\\\\é-]{1,40}"
}

fn origin() -> impl Strategy<Value = Origin> {
    prop_oneof![
        (text(), text()).prop_map(|(deployment, service)| Origin::Replica { deployment, service }),
        Just(Origin::Host),
        Just(Origin::Outside),
    ]
}

fn ticket() -> impl Strategy<Value = ShownTicket> {
    prop_oneof![
        Just(ShownTicket::None),
        Just(ShownTicket::Again),
        text().prop_map(ShownTicket::Whole),
    ]
}

fn opening() -> impl Strategy<Value = Opening> {
    let transport = prop_oneof![Just(Transport::Stream), Just(Transport::Datagram)];
    (origin(), text(), text(), transport, ticket()).prop_map(
        |(origin, replica, endpoint, transport, ticket)| Opening {
            origin,
            replica,
            endpoint,
            transport,
            ticket,
        },
    )
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(kind in 0..Kind::ALL.len(), length in 0..1usize << 20) {
        let kind = Kind::ALL[kind];
        let Some(header) = Header::new(kind, length) else {
            prop_assert!(length > kind.length_max());
            return Ok(());
        };
        prop_assert_eq!(Header::read(header.bytes()), Ok(header));
    }

    #[test]
    fn any_bytes_are_a_header_within_its_bounds_or_refused(bytes: [u8; HEADER_BYTES]) {
        if let Ok(header) = Header::read(bytes) {
            prop_assert!(header.length <= OPEN_MAX_BYTES);
            prop_assert_eq!(header.bytes(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_an_opening_within_its_bounds_or_refused(bytes: Vec<u8>) {
        if let Ok(opening) = Opening::read(&bytes) {
            prop_assert!(opening.replica.len() <= TEXT_MAX_BYTES);
        }
        let _ = read_body::<Answer>(Kind::Answer, &bytes);
    }

    #[test]
    fn an_opening_is_read_as_it_was_written(opening in opening()) {
        let body = write_body(&opening);
        prop_assert!(Header::new(Kind::Open, body.len()).is_some());
        prop_assert_eq!(Opening::read(&body), Ok(opening));
    }
}

#[test]
fn the_longest_opening_fits() {
    let text = "\u{1}".repeat(TEXT_MAX_BYTES);
    let opening = Opening {
        origin: Origin::Replica {
            deployment: text.clone(),
            service: text.clone(),
        },
        replica: text.clone(),
        endpoint: text,
        transport: Transport::Datagram,
        ticket: ShownTicket::Whole("t".repeat(TICKET_MAX_BYTES)),
    };
    let body = write_body(&opening);
    assert!(Header::new(Kind::Open, body.len()).is_some());
    assert_eq!(Opening::read(&body).unwrap(), opening);
    let long = Opening {
        ticket: ShownTicket::Whole("t".repeat(TICKET_MAX_BYTES + 1)),
        ..opening
    };
    assert!(Opening::read(&write_body(&long)).is_err());
}

#[test]
fn the_words_on_the_wire_stay_as_they_are() {
    let opening = Opening {
        origin: Origin::Replica {
            deployment: "shop".into(),
            service: "web".into(),
        },
        replica: "shop/db-default-0@3".into(),
        endpoint: "pg".into(),
        transport: Transport::Stream,
        ticket: ShownTicket::Again,
    };
    let words = r#"{"origin":{"replica":{"deployment":"shop","service":"web"}},"replica":"shop/db-default-0@3","endpoint":"pg","transport":"stream","ticket":"again"}"#;
    assert_eq!(String::from_utf8(write_body(&opening)).unwrap(), words);
    assert_eq!(
        write_body(&Answer::Refused(Why::NotMine)),
        br#"{"refused":"not_mine"}"#
    );
    // What a newer dhow adds is not heard, and not an error.
    let newer = br#"{"refused":"too_hot"}"#;
    assert_eq!(
        read_body::<Answer>(Kind::Answer, newer),
        Ok(Answer::Refused(Why::Other))
    );
    let newer = br#"{"origin":"outside","replica":"r","endpoint":"e","transport":"stream","trace":1}"#;
    assert_eq!(Opening::read(newer).unwrap().ticket, ShownTicket::None);
}
