//! The few messages that a replica's network needs, over a plain blocking socket: one call each, no task and
//! no runtime, so that a thread inside another namespace can send them.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoBridgePort, InfoData, InfoPortData, InfoVeth, LinkAttribute, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rtnetlink::{
    AddressMessageBuilder, LinkBridge, LinkBridgePort, LinkMessageBuilder, LinkUnspec, LinkVeth,
    RouteMessageBuilder,
};

use super::Subnet;
use super::mac::Mac;

/// One answer holds many messages; a listing of links takes 32 KiB at a time at most.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// The table of routes that says which addresses are a namespace's own.
const LOCAL_TABLE: u32 = 255;

/// A socket in the network namespace of the thread that opened it, whoever uses it later.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A network device.
pub(super) struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Option<Mac>,
}

/// One end of a pair that is to be made, and what the other end is to be.
pub(super) struct Veth<'a> {
    pub name: &'a str,
    pub bridge: u32,
    /// Where the other end goes.
    pub namespace: RawFd,
    /// The other end's.
    pub mac: Mac,
    pub mtu: Option<u32>,
}

/// An address of a device.
pub(super) struct HostAddress {
    pub address: Ipv4Addr,
    pub prefix_length: u8,
}

/// A way of a host to another network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostRoute {
    pub destination: Ipv4Addr,
    pub prefix_length: u8,
    pub device: Option<String>,
    pub gateway: Option<Ipv4Addr>,
}

impl Netlink {
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    pub fn add_bridge(&mut self, name: &str, mac: Mac) -> io::Result<()> {
        let message = LinkBridge::new(name).address(mac.0.to_vec()).build();
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    pub fn set_mac(&mut self, index: u32, mac: Mac) -> io::Result<()> {
        let message = LinkMessageBuilder::<LinkUnspec>::new().index(index);
        let message = message.address(mac.0.to_vec()).build();
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Makes a pair: one end on the bridge and up, the other as `eth0` in the namespace. That cannot be up
    /// before it has its other end.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> io::Result<()> {
        let sized = |builder: LinkMessageBuilder<LinkUnspec>| match veth.mtu {
            Some(mtu) => builder.mtu(mtu),
            None => builder,
        };
        let inside = LinkMessageBuilder::<LinkUnspec>::new()
            .name("eth0".to_owned())
            .address(veth.mac.0.to_vec());
        let inside = sized(inside.setns_by_fd(veth.namespace)).build();
        let mut outside = LinkVeth::new(veth.name, "eth0").controller(veth.bridge).up();
        if let Some(mtu) = veth.mtu {
            outside = outside.mtu(mtu);
        }
        let outside = outside
            .set_info_data(InfoData::Veth(InfoVeth::Peer(inside)))
            .build();
        self.change(RouteNetlinkMessage::NewLink(outside), NLM_F_CREATE | NLM_F_EXCL)
    }

    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let message = LinkMessageBuilder::<LinkUnspec>::new().index(index).up().build();
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix_length: u8) -> io::Result<()> {
        let message = AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(address, prefix_length)
            .build();
        self.change(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    pub fn add_default_route(&mut self, gateway: Ipv4Addr) -> io::Result<()> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).build();
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// A route to a range by an address that is on the link.
    pub fn add_route(&mut self, range: Subnet, gateway: Ipv4Addr) -> io::Result<()> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(range.network(), range.prefix_length())
            .gateway(gateway)
            .build();
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Makes every address of a range one of this namespace's own.
    pub fn add_local_range(&mut self, range: Subnet, loopback: u32) -> io::Result<()> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(range.network(), range.prefix_length())
            .output_interface(loopback)
            .table_id(LOCAL_TABLE)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .build();
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Says for good who is behind a port of a bridge: nothing is learned from what comes from there, and nothing goes
    /// there that is for somebody unknown. With `isolated`, whether it reaches other ports that are isolated is set too.
    pub fn settle_port(&mut self, index: u32, mac: Mac, isolated: Option<bool>) -> io::Result<()> {
        let mut settings = vec![
            InfoBridgePort::Learning(false),
            InfoBridgePort::UnicastFlood(false),
        ];
        settings.extend(isolated.map(InfoBridgePort::Isolated));
        let settings = InfoPortData::BridgePort(settings);
        let message = LinkBridgePort::new(index).set_port_data(settings).build();
        self.change(RouteNetlinkMessage::NewLink(message), 0)?;
        let mut entry = NeighbourMessage::default();
        entry.header.family = AddressFamily::Bridge;
        entry.header.ifindex = index;
        entry.header.state = NeighbourState::Noarp;
        entry.header.flags = NeighbourFlags::Controller;
        entry.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
        // What the bridge learned of it before gives way.
        self.change(
            RouteNetlinkMessage::NewNeighbour(entry),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Ports of bridges by their numbers, with the addresses that somebody has said to be behind them.
    pub fn static_entries(&mut self) -> io::Result<Vec<(u32, Mac)>> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        let answers = self.ask(
            RouteNetlinkMessage::GetNeighbour(message),
            NLM_F_REQUEST | NLM_F_DUMP,
        )?;
        let entries = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(entry) if entry.header.state == NeighbourState::Noarp => {
                let mac = entry.attributes.iter().find_map(|attribute| match attribute {
                    NeighbourAttribute::LinkLayerAddress(bytes) => Mac::of(bytes),
                    _ => None,
                })?;
                Some((entry.header.ifindex, mac))
            }
            _ => None,
        });
        Ok(entries.collect())
    }

    /// Joins a device to a bridge, and switches it on.
    pub fn set_controller(&mut self, index: u32, bridge: u32) -> io::Result<()> {
        let message = LinkMessageBuilder::<LinkUnspec>::new()
            .index(index)
            .controller(bridge)
            .up()
            .build();
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// The ways by which this namespace sends to other networks, of all tables. Its own addresses are no ways.
    pub fn routes(&mut self) -> io::Result<Vec<HostRoute>> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST | NLM_F_DUMP)?;
        let devices = self.links()?;
        let routes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) if route.header.address_family == AddressFamily::Inet => {
                host_route(&route, &devices)
            }
            _ => None,
        });
        Ok(routes.collect())
    }

    /// Removes a device; one that does not exist is fine.
    pub fn delete_link(&mut self, name: &str) -> io::Result<()> {
        let message = LinkMessageBuilder::<LinkUnspec>::new()
            .name(name.to_owned())
            .build();
        match self.change(RouteNetlinkMessage::DelLink(message), 0) {
            Err(error) if is_absent(&error) => Ok(()),
            other => other,
        }
    }

    pub fn find_link(&mut self, name: &str) -> io::Result<Option<u32>> {
        Ok(self.link(name)?.map(|link| link.index))
    }

    pub fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let message = LinkMessageBuilder::<LinkUnspec>::new()
            .name(name.to_owned())
            .build();
        match self.ask(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST) {
            Ok(answers) => Ok(links(answers).into_iter().next()),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.ask(message, NLM_F_REQUEST | NLM_F_DUMP).map(links)
    }

    pub fn addresses(&mut self) -> io::Result<Vec<HostAddress>> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        let found = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => {
                let address = message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(std::net::IpAddr::V4(address)) => Some(*address),
                    _ => None,
                })?;
                Some(HostAddress {
                    address,
                    prefix_length: message.header.prefix_len,
                })
            }
            _ => None,
        });
        Ok(found.collect())
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(|_| ())
    }

    /// Sends a message and reads until its last answer.
    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let has_more = flags & (NLM_F_ACK | NLM_F_DUMP) != 0;
        let mut found = Vec::new();
        loop {
            let mut buffer = Vec::with_capacity(ANSWER_MAX_BYTES);
            self.socket.recv(&mut buffer, 0)?;
            let mut rest: &[u8] = &buffer;
            while !rest.is_empty() {
                let answer =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
                let length = usize::try_from(answer.header.length)
                    .unwrap_or(usize::MAX)
                    .next_multiple_of(4);
                rest = rest.get(length.max(1)..).unwrap_or_default();
                match answer.payload {
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(found),
                        Some(code) => return Err(io::Error::from_raw_os_error(code.get().saturating_neg())),
                    },
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    _ => {}
                }
            }
            if !has_more {
                return Ok(found);
            }
        }
    }
}

fn host_route(route: &RouteMessage, devices: &[Link]) -> Option<HostRoute> {
    // Own addresses, broadcasts and multicast have the other kinds.
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut found = HostRoute {
        destination: Ipv4Addr::UNSPECIFIED,
        prefix_length: route.header.destination_prefix_length,
        device: None,
        gateway: None,
    };
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => found.destination = *address,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => found.gateway = Some(*address),
            RouteAttribute::Oif(index) => {
                let device = devices.iter().find(|device| device.index == *index);
                found.device = device.map(|device| device.name.clone());
            }
            _ => {}
        }
    }
    Some(found)
}

impl fmt::Display for HostRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.destination, self.prefix_length)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        match &self.device {
            Some(device) => write!(f, " dev {device}"),
            None => Ok(()),
        }
    }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ENODEV)
}

fn links(answers: Vec<RouteNetlinkMessage>) -> Vec<Link> {
    let name = |message: &LinkMessage| {
        message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
    };
    let found = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => Some(Link {
            index: message.header.index,
            name: name(&message)?,
            mac: message.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::Address(bytes) => Mac::of(bytes),
                _ => None,
            }),
        }),
        _ => None,
    });
    found.collect()
}
