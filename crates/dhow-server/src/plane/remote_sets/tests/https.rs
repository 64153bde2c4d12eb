//! A set below an address: its files are read, over TLS with an authority out of a secret, and none where the index is known.

use std::collections::BTreeMap;
use std::io::{Read as _, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use dhow_core::state::{RemoteKind, RemoteSource, Secret, State};
use dhow_wire::manifest::FileHash;
use tempfile::TempDir;

use super::support::{respond, serve};
use crate::plane::remote_sets::{Credentials, Known, Read, RemoteError, read};
use crate::plane::secrets::SecretBox;

fn source(url: &str) -> RemoteSource {
    RemoteSource {
        kind: RemoteKind::Https,
        url: url.into(),
        reference: "".into(),
        path: "".into(),
        ca_secret: None,
        login_secret: None,
    }
}

fn known(index: Option<&[u8]>) -> Known {
    Known {
        commit: None,
        index_hash: index.map(|index| *FileHash::of(index).as_bytes()),
        looked_at: None,
    }
}

fn index(files: &[(&str, &str)]) -> String {
    let files: Vec<serde_json::Value> = files
        .iter()
        .map(|(path, text)| {
            let blake3 = FileHash::of(text.as_bytes()).to_string();
            serde_json::json!({ "path": path, "blake3": blake3, "size_bytes": text.len() })
        })
        .collect();
    serde_json::json!({ "version": 1, "created_unix_secs": 0, "files": files }).to_string()
}

/// A server of a set of two files, one of them longer than its index says, and what it is asked for.
fn longer_than_said(index: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, served) = (Arc::clone(&asked), index.to_owned());
    let url = serve(move |head, _, stream| {
        let path = head[0].split(' ').nth(1).unwrap().to_owned();
        let text = match path.as_str() {
            "/team/index.json" => served.as_str(),
            "/team/index.json.sig" => "00",
            "/team/shop.yaml" => "one",
            "/team/a/blog.yaml" => "longer than it should be",
            _ => "",
        };
        seen.lock().unwrap().push(path.clone());
        respond(stream, "200 OK", "", text.as_bytes());
    });
    (url, asked)
}

#[tokio::test]
async fn the_files_that_the_index_names_are_read() {
    let index = index(&[("shop.yaml", "one"), ("a/blog.yaml", "two")]);
    let (url, _) = longer_than_said(&index);
    let too_large = read(
        &source(&format!("{url}/team/")),
        Credentials::default(),
        &known(None),
    )
    .await
    .unwrap_err();
    assert!(matches!(too_large, RemoteError::TooLarge { .. }), "{too_large}");
    // Another server: the first one may still be asked for what was on its way.
    let (url, asked) = longer_than_said(&index);
    let source = source(&format!("{url}/team/"));
    let known = known(Some(index.as_bytes()));
    let found = read(&source, Credentials::default(), &known).await.unwrap();
    let Read::Set { set, .. } = found else {
        panic!("{found:?}")
    };
    assert_eq!(set.index, index.as_bytes());
    assert_eq!(set.files, BTreeMap::new(), "what is in force is not read again");
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// A TLS server with a certificate that nobody knows; it answers every request with two digits.
fn tls_server() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || {
                let mut tls = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
                let mut head = [0; 4_096];
                let Ok(read) = stream.read(&mut head) else { return };
                let body = match head[..read].starts_with(b"GET /index.json ") {
                    true => index(&[]),
                    false => "00".to_owned(),
                };
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes());
                tls.send_close_notify();
                let _ = tls.complete_io(&mut tcp);
            });
        }
    });
    (url, made.cert.pem())
}

#[tokio::test]
async fn an_authority_is_believed_that_a_secret_names() {
    let (url, authority) = tls_server();
    let unknown = read(&source(&url), Credentials::default(), &known(None))
        .await
        .unwrap_err();
    assert!(matches!(unknown, RemoteError::Unreachable(_)), "{unknown}");

    let dir = TempDir::new().unwrap();
    let secrets = SecretBox::open(dir.path()).unwrap();
    let named = RemoteSource {
        ca_secret: Some("ca".into()),
        ..source(&url)
    };
    let missing = Credentials::of(&named, &State::default(), Some(&secrets)).unwrap_err();
    assert!(matches!(missing, RemoteError::NoSecret(_)), "{missing}");
    let with = |value: &[u8]| {
        let secret = Secret {
            sealed: secrets.seal("ca", value).unwrap().into(),
            version: 1,
            earlier: Default::default(),
        };
        let mut state = State::default();
        state.secrets.insert("ca".into(), Arc::new(secret));
        Credentials::of(&named, &state, Some(&secrets))
    };
    let bad = with(b"no certificate").unwrap_err();
    assert!(matches!(bad, RemoteError::BadSecret(..)), "{bad}");
    let found = read(&named, with(authority.as_bytes()).unwrap(), &known(None))
        .await
        .unwrap();
    let Read::Set { set, .. } = found else {
        panic!("{found:?}")
    };
    assert_eq!((set.signature.as_slice(), set.files.len()), (b"00".as_slice(), 0));
}
