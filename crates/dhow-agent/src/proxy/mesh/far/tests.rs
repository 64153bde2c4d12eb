//! Bytes of a node that does not keep to the protocol, on a connection of its own.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::proxy::mesh::Opening;
use crate::proxy::mesh::frame::{
    Answer, HEADER_BYTES, Header, Kind, ShownTicket, Why, read_body, write_body,
};
use crate::proxy::mesh::identity::Credentials;
use crate::proxy::table::{Backend, EndpointRule, Expose, Protocol, Rule};
use crate::proxy::tests::mesh::nodes::*;

async fn connection(cluster: &Cluster, node: u64, far: &Node) -> TlsStream<TcpStream> {
    let credentials = Credentials::new(&cluster.identity(node), None).unwrap();
    let socket = TcpStream::connect(far.mesh).await.unwrap();
    let connector = TlsConnector::from(Arc::clone(&credentials.client));
    let name = ServerName::try_from("node-1.dhow.internal").unwrap();
    connector.connect(name, socket).await.unwrap()
}

async fn send(tls: &mut TlsStream<TcpStream>, kind: Kind, body: &[u8]) {
    let header = Header::new(kind, body.len()).unwrap().bytes();
    tls.write_all(&header).await.unwrap();
    tls.write_all(body).await.unwrap();
    tls.flush().await.unwrap();
}

async fn answer(tls: &mut TlsStream<TcpStream>) -> Answer {
    let mut header = [0; HEADER_BYTES];
    tls.read_exact(&mut header).await.unwrap();
    let header = Header::read(header).unwrap();
    let mut body = vec![0; header.length];
    tls.read_exact(&mut body).await.unwrap();
    read_body(header.kind, &body).unwrap()
}

#[tokio::test]
async fn what_another_connection_said_proves_nothing_on_this_one() {
    let cluster = Cluster::new();
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = Node::start(&cluster, 1);
    let here = Backend::here(REPLICA, server.local_addr().unwrap());
    let mut listener = endpoint(reserve(Protocol::Tcp), Protocol::Tcp, vec![here]);
    listener.routes[0].who = Rule::Judged(EndpointRule {
        deployment: "shop".into(),
        expose: Expose::Internal,
        allow: None,
    });
    far.serve(&[], vec![listener]).await;
    let with = |shown| {
        write_body(&Opening {
            ticket: shown,
            ..opening(REPLICA)
        })
    };
    // The first opening of a connection brings the ticket, the next ones mean it.
    let (whole, again) = (
        with(ShownTicket::Whole(ticket(2, "shop/web"))),
        with(ShownTicket::Again),
    );
    let mut first = connection(&cluster, 2, &far).await;
    send(&mut first, Kind::Open, &whole).await;
    assert_eq!(answer(&mut first).await, Answer::Accepted);
    // The second one said again elsewhere means nothing there.
    let mut second = connection(&cluster, 2, &far).await;
    send(&mut second, Kind::Open, &again).await;
    assert_eq!(answer(&mut second).await, Answer::Refused(Why::Ticket));
    // The first one, heard and said again by another node, names the wrong one.
    let mut third = connection(&cluster, 3, &far).await;
    send(&mut third, Kind::Open, &whole).await;
    assert_eq!(answer(&mut third).await, Answer::Refused(Why::Ticket));
    // Nonsense ends the connection that it comes over and no other.
    send(&mut third, Kind::Answer, b"{}").await;
    assert_eq!(third.read(&mut [0; 8]).await.unwrap_or(0), 0);
    let (mut accepted, _) = server.accept().await.unwrap();
    send(&mut first, Kind::Data, b"x").await;
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    let said = far.balancer.mesh.said();
    let expected = [
        "node 2 is refused: as \"shop/web\" it asks for endpoint \"main\" of \"shop/db-default-0@1\": the ticket does not \
         say that the calling node runs the caller: its node has shown no ticket on this connection",
        "node 3 is refused: as \"shop/web\" it asks for endpoint \"main\" of \"shop/db-default-0@1\": the ticket does not \
         say that the calling node runs the caller: the ticket is that of node 2, and node 3 shows it",
        "node 3 is refused: it sends a frame of Answer where none may stand",
    ];
    assert_eq!(said, expected);
}
