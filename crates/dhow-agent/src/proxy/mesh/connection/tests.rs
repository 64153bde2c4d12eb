//! What one end of a connection knows of the other.

use rustls::pki_types::ServerName;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::proxy::mesh::connections::Connections;
use crate::proxy::mesh::identity::Credentials;
use crate::proxy::tests::mesh::nodes::Cluster;

/// Two records of TLS 1.3 with a frame of one byte in each.
const TWO_RECORDS_BYTES: usize = 2 * (5 + HEADER_BYTES + 1 + 1 + 16);

fn made(tls: TlsStream<Wire>, socket: Arc<TcpStream>) -> Connection {
    let registered = Arc::<Connections>::default().add(&socket).unwrap();
    Connection::new(tls, socket, registered)
}

async fn pair() -> (Connection, Connection) {
    let credentials = Credentials::new(&Cluster::new().identity(1), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
    let far = Arc::new(listener.accept().await.unwrap().0);
    let name = ServerName::try_from("node-1.dhow.internal").unwrap();
    let connector = TlsConnector::from(Arc::clone(&credentials.client));
    let acceptor = TlsAcceptor::from(Arc::clone(&credentials.server));
    let (client, server) = tokio::join!(
        connector.connect(name, Wire::new(Arc::clone(&near))),
        acceptor.accept(Wire::new(Arc::clone(&far))),
    );
    (
        made(TlsStream::Client(client.unwrap()), near),
        made(TlsStream::Server(server.unwrap()), far),
    )
}

/// Who takes a kept connection would read it as the answer to its own question.
#[tokio::test]
async fn what_tls_has_opened_and_nobody_has_taken_is_heard() {
    let (mut near, mut far) = pair().await;
    assert!(near.is_idle());
    far.send(Kind::Data, b"a").await.unwrap();
    far.send(Kind::Data, b"b").await.unwrap();
    // Both are there before anything is read, so that TLS opens them together.
    let mut seen = [0; TWO_RECORDS_BYTES];
    while near.socket.peek(&mut seen).await.unwrap() < seen.len() {}
    assert_eq!(near.frame().await.unwrap().unwrap().body, b"a");
    assert!(!near.is_idle());
    assert_eq!(near.frame().await.unwrap().unwrap().body, b"b");
    assert!(near.is_idle());
}
