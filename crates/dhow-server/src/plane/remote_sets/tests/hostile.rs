//! Servers that hang, drip, redirect, send too much or send nonsense: refused with the reason, within limits.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use dhow_core::state::{RemoteKind, RemoteSource};
use reqwest::header::HeaderValue;

use super::support::{header, respond, serve};
use super::{look, nothing_known};
use crate::plane::remote_sets::{Credentials, RemoteError, read};

fn files(url: &str) -> RemoteSource {
    RemoteSource {
        kind: RemoteKind::Https,
        url: url.into(),
        reference: "".into(),
        path: "".into(),
        ca_secret: None,
        login_secret: None,
    }
}

fn with_login() -> Credentials {
    let mut login = HeaderValue::from_static("Bearer s3cret");
    login.set_sensitive(true);
    Credentials {
        login: Some(login),
        ..Credentials::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up() {
    // The clock of the test goes on by itself while everybody waits.
    let url = serve(|_, _, _| std::thread::park());
    let hung = look(&url, "main", "", &nothing_known()).await.unwrap_err();
    assert!(matches!(hung, RemoteError::TooSlow), "{hung}");
    assert!(hung.to_string().contains("longer than 60 s"), "{hung}");
}

#[tokio::test]
async fn a_redirect_to_another_server_is_not_followed_and_no_login_goes_there() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let other = serve(move |head, _, stream| {
        seen.lock().unwrap().push(head.to_vec());
        respond(stream, "200 OK", "", b"00");
    });
    let to = other.clone();
    let url = serve(move |_, _, stream| {
        respond(stream, "302 Found", &format!("Location: {to}/index.json"), b"");
    });
    let refused = read(&files(&url), with_login(), &nothing_known())
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("to another server is not followed"),
        "{refused}"
    );
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_login_is_shown_to_the_server_that_is_named_and_in_no_message() {
    let url = serve(|head: &[String], _: &[u8], stream: &mut TcpStream| {
        let status = match header(head, "authorization") {
            Some("Bearer s3cret") => "403 Forbidden",
            _ => "401 Unauthorized",
        };
        respond(stream, status, "", b"s3cret is not good enough");
    });
    let told = async |credentials| {
        read(&files(&url), credentials, &nothing_known())
            .await
            .unwrap_err()
    };
    let refused = format!("{:?}", told(with_login()).await);
    assert!(refused.contains("login_secret` is not let in"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    assert!(!format!("{:?}", with_login()).contains("s3cret"));
    let asked = told(Credentials::default()).await.to_string();
    assert!(asked.contains("wants a `login_secret`"), "{asked}");
}

#[tokio::test]
async fn no_more_is_read_than_a_set_may_have() {
    let url = serve(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        // Without end, until nobody reads any more.
        while stream.write_all(&[b' '; 65_536]).is_ok() {}
    });
    let endless = read(&files(&url), Credentials::default(), &nothing_known())
        .await
        .unwrap_err();
    assert!(matches!(endless, RemoteError::TooLarge { .. }), "{endless}");
    let endless = look(&url, "main", "", &nothing_known()).await.unwrap_err();
    assert!(matches!(endless, RemoteError::TooLarge { .. }), "{endless}");

    let index =
        r#"{"version":1,"created_unix_secs":0,"files":[{"path":"a","blake3":"00","size_bytes":99999999}]}"#;
    let index = index.replace(r#""00""#, &format!(r#""{}""#, "0".repeat(64)));
    let url = serve(move |_, _, stream| respond(stream, "200 OK", "", index.as_bytes()));
    let large = read(&files(&url), Credentials::default(), &nothing_known())
        .await
        .unwrap_err();
    assert!(
        matches!(large, RemoteError::TooLarge { .. } | RemoteError::SetTooLarge),
        "{large}"
    );
}

#[tokio::test]
async fn an_older_protocol_and_other_names_of_objects_are_refused_by_name() {
    for (answer, told) in [
        (
            "001e# service=git-upload-pack\n0000000eversion 1\n0000",
            "version 1",
        ),
        ("<html>", "cannot be read"),
        ("000eversion 2\n0019object-format=sha256\n0000", "sha256"),
        ("+00eversion 2\n", "cannot be read"),
    ] {
        let url = serve(move |_, _, stream| respond(stream, "200 OK", "", answer.as_bytes()));
        let refused = look(&url, "main", "", &nothing_known())
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(told), "{answer:?}: {refused}");
    }
}
