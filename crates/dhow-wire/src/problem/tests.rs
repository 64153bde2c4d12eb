//! The body's bytes, and that codes keep their promises.

use super::*;

#[test]
fn the_body_is_fixed() {
    let problem = Problem::new(ProblemCode::Busy, "the inbox is full: try again")
        .with_findings(vec!["a".into()])
        .with_retry_after_secs(1);
    assert_eq!(
        serde_json::to_string(&problem).unwrap(),
        "{\"type\":\"about:blank\",\"title\":\"The server is busy\",\"status\":503,\
         \"detail\":\"the inbox is full: try again\",\"code\":\"busy\",\"findings\":[\"a\"],\
         \"retry_after_secs\":1}"
    );
    let text = serde_json::to_string(&Problem::new(ProblemCode::NotFound, "x")).unwrap();
    assert_eq!(
        text,
        "{\"type\":\"about:blank\",\"title\":\"There is no such thing\",\"status\":404,\
         \"detail\":\"x\",\"code\":\"not_found\"}"
    );
    assert_eq!(
        serde_json::from_str::<Problem>(&text)
            .unwrap()
            .exit_code()
            .as_u8(),
        4
    );
}

#[test]
fn codes_are_distinct_and_read_back() {
    for code in ProblemCode::ALL {
        assert_eq!(ProblemCode::from_text(code.as_str()), Some(*code));
        assert!((400..600).contains(&code.status()), "{code:?}");
        assert_ne!(code.exit_code(), ExitCode::Done, "{code:?}");
    }
}

#[test]
fn a_strange_server_still_gives_words_and_an_exit_code() {
    let newer: Problem =
        serde_json::from_str("{\"status\":409,\"code\":\"brand_new\",\"title\":\"No\",\"more\":1}").unwrap();
    assert_eq!(newer.to_string(), "No");
    assert_eq!(newer.exit_code(), ExitCode::NotFoundOrRefused);
    let bare: Problem = serde_json::from_str("{\"status\":502}").unwrap();
    assert_eq!(bare.to_string(), "the server answered with status 502");
    assert_eq!(bare.exit_code(), ExitCode::NoLeader);
    for (status, exit) in [
        (200, 0),
        (400, 2),
        (404, 4),
        (422, 2),
        (500, 1),
        (0, 1),
        (u16::MAX, 1),
    ] {
        assert_eq!(ExitCode::of_status(status).as_u8(), exit, "{status}");
    }
    let invalid =
        Problem::new(ProblemCode::InvalidSpec, "2 errors").with_findings(vec!["a".into(), "b".into()]);
    assert_eq!(invalid.to_string(), "2 errors\n  a\n  b");
}
