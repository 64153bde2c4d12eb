//! Answers to questions of containers: the cluster's names, those of the host's servers, and nonsense.

use std::net::Ipv4Addr;
use std::time::Instant;

use hickory_proto::op::{Edns, Message, OpCode, Query};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use proptest::prelude::*;

use super::*;
use crate::proxy::table::{
    Backend, Caller, Dns, Expose, NamedEndpoint, NamedReplica, NamedService, OnDemand, Protocol,
};

const SHOP_WEB: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 2));
const BLOG_WEB: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 3));
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 9));

fn service(deployment: &str, service: &str, third: u8) -> NamedService {
    let endpoint = |name: &str, protocol, port| NamedEndpoint {
        name: name.into(),
        protocol,
        port,
        expose: Expose::Internal,
        allow: None,
        path: None,
        backends: vec![Backend::here("a", SocketAddr::from(([127, 0, 0, 1], 9)))],
        options: Default::default(),
        cold_start_ms: None,
    };
    let replica = |index: u8| NamedReplica {
        name: format!("{service}-default-{index}"),
        address: Ipv4Addr::new(10, 87, 128 + third, index),
    };
    NamedService {
        deployment: deployment.into(),
        service: service.into(),
        address: Ipv4Addr::new(10, 87, third, 1),
        endpoints: vec![
            endpoint("sql", Protocol::Tcp, 5432),
            endpoint("gossip", Protocol::Udp, 7946),
        ],
        replicas: vec![replica(1), replica(2)],
    }
}

fn names(upstream: Vec<SocketAddr>) -> Names {
    let caller = |addr, deployment: &str| {
        let IpAddr::V4(addr) = addr else {
            panic!("containers have addresses of four bytes")
        };
        Caller {
            addr,
            deployment: deployment.into(),
            service: "web".into(),
        }
    };
    Names {
        dns: Some(Dns {
            addr: Ipv4Addr::new(10, 87, 0, 1),
            upstream,
            host: Ipv4Addr::new(10, 88, 0, 1),
        }),
        services: vec![service("shop", "db", 1), service("blog", "db", 2)],
        callers: vec![caller(SHOP_WEB, "shop"), caller(BLOG_WEB, "blog")],
        ..Names::default()
    }
}

fn answering(names: &Names) -> Answering {
    let dns = names.dns.as_ref().unwrap();
    Answering {
        zone: Zone::new(names, dns),
        upstream: Arc::new(Upstream::new(dns.upstream.clone())),
    }
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// What is answered at once.
fn asked_as(answering: &Answering, asker: IpAddr, question: &Message) -> Message {
    match answering
        .at_once(&question.to_vec().unwrap(), asker, Way::Datagram)
        .0
    {
        AtOnce::Answer(answer) => {
            let answer = Message::from_vec(&answer).unwrap();
            assert_eq!(answer.metadata.id, question.metadata.id);
            answer
        }
        AtOnce::Ask(_) => panic!("{:?} is passed on", question.queries),
        AtOnce::Await(_, wanted) => panic!("{wanted:?} is asked for"),
        AtOnce::Nothing => panic!("{:?} is dropped", question.queries),
    }
}

fn addresses(answer: &Message) -> Vec<String> {
    let found = answer.answers.iter().filter_map(|record| match &record.data {
        RData::A(A(address)) => Some(address.to_string()),
        _ => None,
    });
    found.collect()
}

#[track_caller]
fn resolves(answering: &Answering, asker: IpAddr, name: &str, expected: &[&str]) {
    let answer = asked_as(answering, asker, &question(name, RecordType::A));
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{name}");
    assert_eq!(addresses(&answer), expected, "{name}");
    assert!(answer.answers.iter().all(|record| record.ttl == 5), "{name}");
    assert!(
        answer.metadata.recursion_available && answer.metadata.authoritative,
        "{name}"
    );
}

#[test]
fn services_replicas_and_the_host_have_names() {
    let answering = answering(&names(Vec::new()));
    let ask = |name, expected: &[&str]| resolves(&answering, SHOP_WEB, name, expected);
    ask("db.shop.dhow.", &["10.87.1.1"]);
    ask("DB.Shop.DHOW.", &["10.87.1.1"]);
    ask("db.blog.dhow.", &["10.87.2.1"]);
    ask("db-default-2.db.shop.dhow.", &["10.87.129.2"]);
    ask("all.db.shop.dhow.", &["10.87.129.1", "10.87.129.2"]);
    ask("host.dhow.", &["10.88.0.1"]);
}

#[test]
fn a_bare_name_is_that_of_the_askers_own_deployment() {
    let answering = answering(&names(Vec::new()));
    resolves(&answering, SHOP_WEB, "db.", &["10.87.1.1"]);
    resolves(&answering, BLOG_WEB, "db.", &["10.87.2.1"]);
    // Whoever is not known, and names that the deployment does not have: the host's servers may know them.
    for (asker, name) in [(NOBODY, "db."), (SHOP_WEB, "cache."), (SHOP_WEB, "db.shop.")] {
        let bytes = question(name, RecordType::A).to_vec().unwrap();
        let at_once = answering.at_once(&bytes, asker, Way::Datagram).0;
        assert!(matches!(at_once, AtOnce::Ask(_)), "{name}");
    }
}

#[test]
fn what_is_not_there_is_said_so() {
    let mut names = names(Vec::new());
    let complete = answering(&names);
    let code = |answering: &Answering, name, kind| {
        let answer = asked_as(answering, SHOP_WEB, &question(name, kind));
        assert!(answer.answers.is_empty());
        let says_how_long = answer
            .authorities
            .iter()
            .any(|record| matches!(&record.data, RData::SOA(SOA { minimum: 5, .. })));
        (answer.metadata.response_code, says_how_long)
    };
    for name in [
        "cache.shop.dhow.",
        "db.nowhere.dhow.",
        "db.dhow.",
        "db-default-7.db.shop.dhow.",
        "x.y.db.shop.dhow.",
        "_web._tcp.db.shop.dhow.",
        "_sql._udp.db.shop.dhow.",
        "a.b.c.d.db.shop.dhow.",
    ] {
        assert_eq!(
            code(&complete, name, RecordType::A),
            (ResponseCode::NXDomain, true),
            "{name}"
        );
    }
    // There is no address of the other kind, and no error: asking again in another way would find it.
    for (name, kind) in [
        ("db.shop.dhow.", RecordType::AAAA),
        ("db.shop.dhow.", RecordType::MX),
        ("shop.dhow.", RecordType::A),
        ("_tcp.db.shop.dhow.", RecordType::A),
        ("dhow.", RecordType::A),
    ] {
        assert_eq!(
            code(&complete, name, kind),
            (ResponseCode::NoError, true),
            "{name}"
        );
    }
    names.incomplete = true;
    let incomplete = answering(&names);
    for name in ["cache.other.dhow.", "all.cache.other.dhow.", "other.dhow."] {
        assert_eq!(
            code(&incomplete, name, RecordType::A),
            (ResponseCode::ServFail, false),
            "{name}"
        );
    }
    // What a deployment of this node has is known.
    let known = code(&incomplete, "cache.shop.dhow.", RecordType::A);
    assert_eq!(known, (ResponseCode::NXDomain, true));
    resolves(&incomplete, SHOP_WEB, "db.shop.dhow.", &["10.87.1.1"]);
}

#[test]
fn an_endpoint_is_found_with_its_port() {
    let answering = answering(&names(Vec::new()));
    for (name, expected, target) in [
        ("_sql._tcp.db.shop.dhow.", &[5432][..], "db.shop.dhow."),
        ("_gossip._udp.db.shop.dhow.", &[7946], "db.shop.dhow."),
        // As people write them; what is asked next is a whole name.
        ("_sql._tcp.db.", &[5432], "db.shop.dhow."),
        ("_sql._tcp.db.shop.", &[5432], "db.shop.dhow."),
        (
            "_sql._tcp.all.db.shop.dhow.",
            &[5432, 5432],
            "db-default-1.db.shop.dhow.",
        ),
    ] {
        let answer = asked_as(&answering, SHOP_WEB, &question(name, RecordType::SRV));
        let found = answer.answers.iter().filter_map(|record| match &record.data {
            RData::SRV(srv) => Some((srv.port, srv.target.to_ascii())),
            _ => None,
        });
        let found: Vec<(u16, String)> = found.collect();
        let ports: Vec<u16> = found.iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, expected, "{name}");
        assert_eq!(found[0].1, target, "{name}");
        assert_eq!(answer.additionals.len(), expected.len(), "{name}");
    }
}

#[test]
fn what_does_not_fit_is_cut_and_says_so() {
    let mut names = names(Vec::new());
    names.services[0].replicas = (0..60)
        .map(|index| NamedReplica {
            name: format!("db-default-{index}"),
            address: Ipv4Addr::new(10, 87, 200, index),
        })
        .collect();
    let answering = answering(&names);
    let mut plain = question("all.db.shop.dhow.", RecordType::A);
    let cut = asked_as(&answering, SHOP_WEB, &plain);
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    plain.set_edns(edns);
    let whole = asked_as(&answering, SHOP_WEB, &plain);
    assert!(!whole.metadata.truncation && whole.edns.is_some());
    assert_eq!(whole.answers.len(), 60);
}

#[test]
fn other_questions_are_refused() {
    let answering = answering(&names(Vec::new()));
    let code = |message: &Message| asked_as(&answering, SHOP_WEB, message).metadata.response_code;
    let mut update = question("db.shop.dhow.", RecordType::A);
    update.metadata.op_code = OpCode::Status;
    assert_eq!(code(&update), ResponseCode::NotImp);
    let mut two = question("db.shop.dhow.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(code(&two), ResponseCode::FormErr);
    let mut newer = question("db.shop.dhow.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_version(1);
    newer.set_edns(edns);
    // The number has another name in messages that are signed.
    assert_eq!(u16::from(code(&newer)), u16::from(ResponseCode::BADVERS));
    // An answer is no question: two servers would answer each other for ever.
    let mut response = question("db.shop.dhow.", RecordType::A);
    response.metadata.message_type = hickory_proto::op::MessageType::Response;
    let at_once = answering
        .at_once(&response.to_vec().unwrap(), SHOP_WEB, Way::Datagram)
        .0;
    assert!(matches!(at_once, AtOnce::Nothing));
}

proptest! {
    #[test]
    fn no_packet_is_too_odd(packet in prop::collection::vec(any::<u8>(), 0..700)) {
        let answering = answering(&names(Vec::new()));
        let _ = answering.at_once(&packet, SHOP_WEB, Way::Datagram);
    }

    /// Close to questions, so that more of the reading is reached.
    #[test]
    fn no_broken_question_is_too_odd(
        at in 0usize..60,
        byte in any::<u8>(),
        cut in 0usize..60,
        name in "[a-z_.*-]{0,40}",
    ) {
        let answering = answering(&names(Vec::new()));
        let name = format!("{}.shop.dhow.", name.trim_matches('.'));
        let Ok(name) = Name::from_ascii(&name) else { return Ok(()) };
        let mut message = Message::query();
        message.add_query(Query::query(name, RecordType::ANY));
        message.set_edns(Edns::new());
        let mut packet = message.to_vec().unwrap();
        if let Some(found) = packet.get_mut(at) {
            *found = byte;
        }
        packet.truncate(packet.len().saturating_sub(cut));
        if let AtOnce::Answer(answer) = answering.at_once(&packet, SHOP_WEB, Way::Stream).0 {
            prop_assert!(answer.len() >= packet::HEAD_BYTES);
        }
    }
}

#[test]
fn remembered_answers_grow_old() {
    let cache = cache::Cache::default();
    let request = || match read(&question("www.example.", RecordType::A).to_vec().unwrap()) {
        Read::Request(request) => request,
        Read::Broken(_) | Read::Nothing => panic!("a question"),
    };
    let begin = Instant::now();
    let mut answer = request().response(ResponseCode::NoError);
    let name = Name::from_ascii("www.example.").unwrap();
    answer.add_answer(Record::from_rdata(name, 60, RData::A(A::new(192, 0, 2, 1))));
    cache.put(&request(), answer.clone(), begin);
    let later = request();
    let found = cache.get(&later, begin + Duration::from_secs(20)).unwrap();
    assert_eq!((found.answers[0].ttl, found.metadata.id), (40, later.metadata.id));
    assert!(cache.get(&request(), begin + Duration::from_secs(60)).is_none());
    // Neither failures nor parts are remembered.
    for change in [
        |answer: &mut Message| answer.metadata.response_code = ResponseCode::ServFail,
        |answer: &mut Message| answer.metadata.truncation = true,
        |answer: &mut Message| answer.answers.clear(),
    ] {
        let cache = cache::Cache::default();
        let mut changed = answer.clone();
        change(&mut changed);
        cache.put(&request(), changed, begin);
        assert!(cache.get(&request(), begin).is_none());
    }
}

/// A server of the host's: knows one name, and counts what it is asked.
async fn host_server() -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    let listener = TcpListener::bind(addr).await.unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    let answer = move |packet: &[u8]| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Read::Request(request) = read(packet) else {
            panic!("what is passed on can be read")
        };
        let mut answer = request.response(ResponseCode::NoError);
        let name = request.query.name().clone();
        answer.add_answer(Record::from_rdata(name, 60, RData::A(A::new(192, 0, 2, 1))));
        answer.to_vec().unwrap()
    };
    let by_stream = answer.clone();
    tokio::spawn(async move {
        let mut packet = [0; 4096];
        loop {
            let (count, asker) = socket.recv_from(&mut packet).await.unwrap();
            // A forged answer before the true one.
            let mut forged = answer(&packet[..count]);
            forged[1] ^= 1;
            socket.send_to(&forged, asker).await.unwrap();
            socket.send_to(&answer(&packet[..count]), asker).await.unwrap();
        }
    });
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let packet = read_framed(&mut stream).await.unwrap();
            write_framed(&mut stream, &by_stream(&packet)).await.unwrap();
        }
    });
    (addr, asked)
}

struct Server {
    names: NameServer,
    udp: SocketAddr,
    tcp: SocketAddr,
}

/// A name server with sockets of the loopback's.
async fn server(upstream: Vec<SocketAddr>) -> Server {
    server_of(&names(upstream)).await
}

async fn server_of(names: &Names) -> Server {
    let server = NameServer::new(TaskTracker::new(), Arc::default());
    let missing = server.learn(Some(names));
    let addr = SocketAddr::from(([10, 87, 0, 1], 53));
    assert_eq!(missing, [(Transport::Datagram, addr), (Transport::Stream, addr)]);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let datagrams = Socket::bind(any, Transport::Datagram).unwrap();
    let streams = Socket::bind(any, Transport::Stream).unwrap();
    let (Socket::Datagram(udp), Socket::Stream(tcp)) = (&datagrams, &streams) else {
        panic!("each of its kind")
    };
    let (udp, tcp) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
    server.listen(addr, datagrams);
    server.listen(addr, streams);
    assert_eq!(server.sockets().len(), 2);
    Server {
        names: server,
        udp,
        tcp,
    }
}

impl Server {
    async fn ask(&self, message: &Message) -> Message {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(self.udp).await.unwrap();
        socket.send(&message.to_vec().unwrap()).await.unwrap();
        let mut answer = [0; 4096];
        let count = socket.recv(&mut answer).await.unwrap();
        Message::from_vec(&answer[..count]).unwrap()
    }
}

#[tokio::test]
async fn other_names_come_from_the_hosts_servers_and_are_remembered() {
    let (silent, dead) = (
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        SocketAddr::from(([127, 0, 0, 1], 1)),
    );
    let (host, asked) = host_server().await;
    // The first is dead, the second says nothing: the third is asked in time, and first from then on.
    let server = server(vec![dead, silent.local_addr().unwrap(), host]).await;
    let www = question("www.example.", RecordType::A);
    let answer = server.ask(&www).await;
    assert_eq!(addresses(&answer), ["192.0.2.1"]);
    assert_eq!(answer.metadata.id, www.metadata.id);
    let before = asked.load(std::sync::atomic::Ordering::Relaxed);
    let again = server.ask(&question("WWW.example.", RecordType::A)).await;
    assert_eq!(addresses(&again), ["192.0.2.1"]);
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), before);
    // Over TCP, several on one connection, of both kinds.
    let mut stream = TcpStream::connect(server.tcp).await.unwrap();
    for (name, expected) in [
        ("db.shop.dhow.", "10.87.1.1"),
        ("tcp.example.", "192.0.2.1"),
        ("www.example.", "192.0.2.1"),
    ] {
        let message = question(name, RecordType::A);
        write_framed(&mut stream, &message.to_vec().unwrap())
            .await
            .unwrap();
        let answer = Message::from_vec(&read_framed(&mut stream).await.unwrap()).unwrap();
        assert_eq!(addresses(&answer), [expected], "{name}");
    }
    server.names.end();
    assert!(server.names.sockets().is_empty());
}

#[tokio::test]
async fn names_of_the_cluster_are_answered_while_the_hosts_servers_are_silent() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = server(vec![silent.local_addr().unwrap()]).await;
    // As many as one asker may have under way, and more: those are told at once.
    let askers: Vec<UdpSocket> = futures_util::future::join_all((0..70).map(|_| async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(server.udp).await.unwrap();
        let message = question("www.example.", RecordType::A);
        socket.send(&message.to_vec().unwrap()).await.unwrap();
        socket
    }))
    .await;
    assert_eq!(
        addresses(&server.ask(&question("db.shop.dhow.", RecordType::A)).await),
        ["10.87.1.1"]
    );
    let told = futures_util::future::select_all(askers.iter().map(|socket| {
        Box::pin(async move {
            let mut answer = [0; 512];
            let count = socket.recv(&mut answer).await.unwrap();
            Message::from_vec(&answer[..count])
                .unwrap()
                .metadata
                .response_code
        })
    }));
    assert_eq!(told.await.0, ResponseCode::ServFail);
}

#[tokio::test]
async fn one_container_that_keeps_streams_open_leaves_room_to_others() {
    let server = server(Vec::new()).await;
    let from = async |last: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(server.tcp).await.unwrap()
    };
    let ask = async |stream: &mut TcpStream| {
        let message = question("db.shop.dhow.", RecordType::A);
        write_framed(stream, &message.to_vec().unwrap()).await?;
        read_framed(stream).await
    };
    let mut held = Vec::new();
    for _ in 0..STREAMS_OF_ONE_MAX {
        let mut stream = from(2).await;
        ask(&mut stream).await.unwrap();
        held.push(stream);
    }
    assert!(ask(&mut from(2).await).await.is_err(), "one more is closed");
    assert!(ask(&mut from(3).await).await.is_ok(), "another one is served");
}

fn wanted(deployment: &str, service: &str) -> WantedService {
    WantedService {
        deployment: deployment.into(),
        service: service.into(),
    }
}

/// Names of a node that is told of other deployments' services on demand.
fn on_demand() -> Names {
    Names {
        on_demand: Some(OnDemand {
            own: vec!["shop".into(), "blog".into()],
            absent: vec![wanted("open", "x")],
            absent_deployments: vec!["com".into()],
            ..OnDemand::default()
        }),
        ..names(Vec::new())
    }
}

#[test]
fn names_that_nobody_has_asked_for_yet_are_asked_for_unless_it_is_known_that_there_are_none() {
    let answering = answering(&on_demand());
    resolves(&answering, SHOP_WEB, "db.shop.dhow.", &["10.87.1.1"]);
    for name in [
        "cache.shop.dhow.",
        "x.open.dhow.",
        "example.com.dhow.",
        "www.example.com.dhow.",
        "com.dhow.",
        "Not_A_Name.open.dhow.",
    ] {
        let answer = asked_as(&answering, SHOP_WEB, &question(name, RecordType::A));
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
    }
    for name in [
        "dns.open.dhow.",
        "DNS.Open.dhow.",
        "all.dns.open.dhow.",
        "_x._tcp.dns.open.dhow.",
    ] {
        let packet = question(name, RecordType::A).to_vec().unwrap();
        match answering.at_once(&packet, SHOP_WEB, Way::Datagram).0 {
            AtOnce::Await(_, found) => assert_eq!(found, wanted("open", "dns"), "{name}"),
            _ => panic!("{name} is answered"),
        }
    }
}

#[test]
fn what_others_have_is_kept_for_whoever_uses_it() {
    let mut names = on_demand();
    names.services.push(service("open", "dns", 7));
    let answering = answering(&names);
    let found = |asker, name: &str| {
        let packet = question(name, RecordType::A).to_vec().unwrap();
        answering.at_once(&packet, asker, Way::Datagram).1
    };
    assert_eq!(
        found(SHOP_WEB, "db.shop.dhow."),
        None,
        "it is of the same deployment"
    );
    assert_eq!(found(SHOP_WEB, "nothing.blog.dhow."), None);
    assert_eq!(found(NOBODY, "db.shop.dhow."), Some(wanted("shop", "db")));
    for name in ["dns.open.dhow.", "all.dns.open.dhow."] {
        assert_eq!(found(SHOP_WEB, name), Some(wanted("open", "dns")), "{name}");
    }
    assert_eq!(found(SHOP_WEB, "x.open.dhow."), Some(wanted("open", "x")));
    assert_eq!(
        found(SHOP_WEB, "example.com.dhow."),
        Some(wanted("com", "example"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_until_servers_have_said_what_there_is() {
    let server = server_of(&on_demand()).await;
    let number = server.names.wants.number();
    let learnt = async {
        assert_eq!(server.names.wants.changed(number).await, number + 1);
        let asked = server.names.wants.wanted(&[], Instant::now());
        assert_eq!(asked, [wanted("open", "dns")]);
        let mut names = on_demand();
        names.services.push(service("open", "dns", 7));
        server.names.learn(Some(&names));
    };
    let message = question("dns.open.dhow.", RecordType::A);
    let (answer, ()) = tokio::join!(server.ask(&message), learnt);
    assert_eq!(addresses(&answer), ["10.87.7.1"]);
    // There is none of this name, and for that one nobody answers in time.
    let learnt = async {
        server.names.wants.changed(number + 1).await;
        let mut names = on_demand();
        let on_demand = names.on_demand.as_mut().unwrap();
        on_demand.absent.push(wanted("open", "y"));
        server.names.learn(Some(&names));
    };
    let message = question("y.open.dhow.", RecordType::A);
    let (answer, ()) = tokio::join!(server.ask(&message), learnt);
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    let answer = server.ask(&question("z.open.dhow.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
}
