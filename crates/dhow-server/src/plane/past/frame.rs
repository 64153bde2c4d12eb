//! The frames of a chapter's file: a kind, a length and a checksum before the bytes. Reading knows a frame that is not
//! whole, as a crash leaves it at the end, from the end itself.

use std::io::{self, ErrorKind, Read};

/// The first bytes of every chapter, with the version of the form.
pub const MAGIC: &[u8; 8] = b"dhowpst1";

/// Kind, length and checksum.
const HEADER_BYTES: usize = 9;

/// The largest frame: a state of 2 GiB does not become larger by compressing it.
const BODY_BYTES_MAX: u32 = u32::MAX / 2;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Where the chapter begins.
    Head,
    /// The state there.
    State,
    /// Entries that follow, in order.
    Entries,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Head, Self::State, Self::Entries];

    fn number(self) -> u8 {
        match self {
            Self::Head => 1,
            Self::State => 2,
            Self::Entries => 3,
        }
    }
}

/// The bytes of a frame.
pub fn frame(kind: Kind, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len()).ok();
    let length = length.filter(|length| *length <= BODY_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "a frame of 2 GiB"))?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.push(kind.number());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(kind.number(), body).to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

fn checksum(kind: u8, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Why the next frame cannot be read.
#[derive(Debug)]
pub enum FrameError {
    /// It is not whole, or not as it was written.
    Torn(&'static str),
    Io(io::Error),
}

/// Reads a chapter's file frame by frame.
pub struct Frames<R> {
    from: R,
    /// The end of what was read as it was written.
    pub at: u64,
}

impl<R: Read> Frames<R> {
    pub fn open(mut from: R) -> Result<Self, FrameError> {
        let mut magic = [0; MAGIC.len()];
        match fill(&mut from, &mut magic)? {
            Filled::All if magic == *MAGIC => Ok(Self {
                from,
                at: MAGIC.len() as u64,
            }),
            Filled::All | Filled::Some | Filled::Nothing => {
                Err(FrameError::Torn("it does not begin like a chapter of the past"))
            }
        }
    }

    /// The next frame; none at the end.
    pub fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, FrameError> {
        let mut header = [0; HEADER_BYTES];
        match fill(&mut self.from, &mut header)? {
            Filled::All => {}
            Filled::Nothing => return Ok(None),
            Filled::Some => return Err(FrameError::Torn("a frame is cut off")),
        }
        let [number, a, b, c, d, rest @ ..] = header;
        let (length, expected) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest));
        let kind = Kind::ALL.into_iter().find(|kind| kind.number() == number);
        let Some(kind) = kind.filter(|_| length <= BODY_BYTES_MAX) else {
            return Err(FrameError::Torn("a frame has no known beginning"));
        };
        // What a damaged length says is not set aside before it is read.
        let mut body = Vec::new();
        let read = (&mut self.from).take(u64::from(length)).read_to_end(&mut body);
        read.map_err(FrameError::Io)?;
        if body.len() as u64 != u64::from(length) {
            return Err(FrameError::Torn("a frame is cut off"));
        }
        if checksum(number, &body) != expected {
            return Err(FrameError::Torn("the checksum of a frame does not fit"));
        }
        self.at += (HEADER_BYTES + body.len()) as u64;
        Ok(Some((kind, body)))
    }
}

enum Filled {
    All,
    Some,
    Nothing,
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<Filled, FrameError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    Ok(match filled {
        0 => Filled::Nothing,
        _ if filled == buffer.len() => Filled::All,
        _ => Filled::Some,
    })
}
