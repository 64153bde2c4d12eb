//! Looks after the rules: whoever empties the host's packet filter, as a restart of its service does, takes ours along
//! without a word. A thread of the daemon's looks every few seconds whether they are there, and writes them again.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::bridge::Settings;
use super::netlink::Netlink;
use super::{Addresses, guard, outgoing};

/// One question to the kernel of some microseconds, unless something has changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// What is looked after, and what writing it takes.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub settings: Settings,
    /// Users of the host who may call containers by their own addresses.
    pub callers: Vec<u32>,
    pub pins: PathBuf,
    pub addresses: Addresses,
    /// The proxy's port, once containers are kept from each other's addresses.
    pub proxy: Arc<OnceLock<u32>>,
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Dropped to end it.
    _end: SyncSender<()>,
    _thread: JoinHandle<()>,
}

impl Keeper {
    pub fn start(kept: Kept) -> io::Result<Self> {
        let (end, ended) = sync_channel(1);
        let thread = std::thread::Builder::new().name("dhow-rules".into());
        Ok(Self {
            _end: end,
            _thread: thread.spawn(move || look_after(&kept, &ended))?,
        })
    }
}

fn look_after(kept: &Kept, ended: &Receiver<()>) {
    let mut seen = None;
    let mut complained = false;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_INTERVAL) {
        let now = Filter::open().and_then(|mut filter| filter.generation()).ok();
        if now.is_some() && now == seen {
            continue;
        }
        match kept.look() {
            Ok(()) => {
                seen = now;
                complained = false;
            }
            Err(why) if complained => tracing::debug!(why, "the rules of the containers' bridge"),
            Err(why) => {
                complained = true;
                tracing::error!(
                    why,
                    bridge = kept.settings.name,
                    "the rules of the containers' bridge are gone and cannot be written: containers can take each \
                     other's addresses"
                );
            }
        }
    }
}

impl Kept {
    /// Writes the rules anew where one of the tables is missing or empty.
    fn look(&self) -> Result<(), String> {
        let bridge = &self.settings.name;
        let mut filter = Filter::open().map_err(|error| error.to_string())?;
        let guarded = self.proxy.get();
        let mut tables = vec![Family::Ip];
        if guarded.is_some() {
            tables.extend([Family::Bridge, Family::Inet]);
        }
        let mut missing = false;
        for family in tables {
            missing |= !filter
                .has_rules(family, bridge)
                .map_err(|error| error.to_string())?;
        }
        // Where there is no bridge any more, somebody is removing it all.
        if !missing || !self.is_there() {
            return Ok(());
        }
        outgoing::again(&self.settings, &self.callers)?;
        if let Some(proxy) = guarded {
            guard::watch(&self.settings, *proxy, &self.pins, &self.addresses)?;
        }
        if !self.is_there() {
            outgoing::forbid(&self.settings);
            guard::unwatch(bridge);
            return Ok(());
        }
        tracing::warn!(
            bridge,
            "somebody emptied the host's packet filter: the rules of the containers' bridge were gone, and are written again"
        );
        Ok(())
    }

    fn is_there(&self) -> bool {
        let found = Netlink::open().and_then(|mut netlink| netlink.find_link(&self.settings.name));
        found.is_ok_and(|found| found.is_some())
    }
}

/// The families of tables that ours are in, by the kernel's numbers.
#[derive(Clone, Copy)]
enum Family {
    Inet = 1,
    Ip = 2,
    Bridge = 7,
}

/// Asks the kernel about its packet filter.
struct Filter {
    socket: Socket,
}

const HEAD_BYTES: usize = 16;
const GET_RULE: u16 = 10 << 8 | 7;
const NEW_RULE: u16 = 10 << 8 | 6;
const GET_GENERATION: u16 = 10 << 8 | 16;
const NEW_GENERATION: u16 = 10 << 8 | 15;
const FAILED: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
/// The one attribute of each question and answer: the name of the table, the number of the generation.
const FIRST_ATTRIBUTE: u16 = 1;

impl Filter {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket })
    }

    /// A number that is another one after each change by anybody.
    fn generation(&mut self) -> io::Result<u32> {
        let mut found = None;
        self.ask(GET_GENERATION, REQUEST, 0, &[], |kind, body| {
            // Four bytes of family and version, four of the attribute's head.
            let number = body.get(8..12).and_then(|bytes| bytes.try_into().ok());
            found = number.filter(|_| kind == NEW_GENERATION).map(u32::from_be_bytes);
            true
        })?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether there is a rule in a table.
    fn has_rules(&mut self, family: Family, table: &str) -> io::Result<bool> {
        let mut found = false;
        self.ask(
            GET_RULE,
            REQUEST | DUMP,
            family as u8,
            table.as_bytes(),
            |kind, _| {
                found |= kind == NEW_RULE;
                false
            },
        )?;
        Ok(found)
    }

    /// Shows each answer to `see` until it has seen enough or there is none left.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        table: &[u8],
        mut see: impl FnMut(u16, &[u8]) -> bool,
    ) -> io::Result<()> {
        self.socket.send(&question(kind, flags, family, table), 0)?;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = bytes.as_slice();
            while let Some((kind, body, length)) = first_message(rest) {
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                match kind {
                    DONE => return Ok(()),
                    FAILED => {
                        let code = body.get(..4).and_then(|bytes| bytes.try_into().ok());
                        let code = code.map_or(0, i32::from_ne_bytes);
                        return match code {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                        };
                    }
                    kind if see(kind, body) => return Ok(()),
                    _ => {}
                }
            }
        }
    }
}

fn question(kind: u16, flags: u16, family: u8, table: &[u8]) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0];
    if !table.is_empty() {
        // With a zero at its end; names of bridges have 15 characters at most.
        let length = u16::try_from(4 + table.len() + 1).unwrap_or(u16::MAX);
        body.extend(length.to_ne_bytes());
        body.extend(FIRST_ATTRIBUTE.to_ne_bytes());
        body.extend(table);
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(HEAD_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence and sender: one question at a time, on a socket of its own.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// The kind, the body and the whole length of the first of several messages.
fn first_message(bytes: &[u8]) -> Option<(u16, &[u8], usize)> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    Some((kind, bytes.get(HEAD_BYTES..length)?, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_one_by_one_and_cut_ones_not_at_all() {
        let mut bytes = question(GET_RULE, REQUEST | DUMP, 7, b"dhow-0123abcd");
        let length = bytes.len();
        bytes.extend(question(GET_GENERATION, REQUEST, 0, b""));
        let (kind, body, first) = first_message(&bytes).unwrap();
        assert_eq!((kind, first), (GET_RULE, length));
        assert_eq!(&body[..4], [7, 0, 0, 0]);
        assert_eq!(&body[8..22], b"dhow-0123abcd\0");
        assert_eq!(first_message(&bytes[length..]).unwrap().0, GET_GENERATION);
        for cut in [0, 3, 15, length - 1] {
            assert!(first_message(&bytes[..cut]).is_none(), "{cut}");
        }
    }
}
