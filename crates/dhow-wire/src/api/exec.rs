//! The frames that follow an upgrade to `dhow-exec/1`: one byte of kind, four of length (little endian), payload.
//! `dhow-exec/2` is a command at a terminal: the same frames and one more, the terminal's size, and whoever serves it says
//! something every few seconds, an empty piece of output where there is nothing else.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The protocol's name in the header `Upgrade`.
pub const EXEC_UPGRADE: &str = "dhow-exec/1";
/// The same for a command at a terminal: who does not know it refuses, in place of running the command without one.
const EXEC_TERMINAL_UPGRADE: &str = "dhow-exec/2";
/// The same frames for a connection to a port in place of a command: its ends are those of stdin and of the command.
const PORT_UPGRADE: &str = "dhow-port/1";
/// The same frames for a tar stream of files: into the replica as stdin, out of it as stdout.
pub const COPY_UPGRADE: &str = "dhow-copy/1";
/// The header of the answer that names the replica in which the command runs.
pub const EXEC_REPLICA_HEADER: &str = "dhow-replica";
/// A connection on which a command runs says something this often; an empty piece of output where there is nothing else.
pub const EXEC_SIGN_EVERY_SECS: u64 = 5;
/// The longest name of a kind of terminal.
const TERM_CHARS_MAX: usize = 64;
/// The longest payload of one frame.
pub const EXEC_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
pub const EXEC_FRAME_HEADER_BYTES: usize = 5;

/// What the one who asked sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecClientFrame {
    Stdin(Vec<u8>),
    StdinEnd,
    /// The terminal has another size now.
    Resize(TerminalSize),
}

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// The terminal that a command runs at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// What kind it is, as `TERM` names it.
    pub term: String,
    pub size: TerminalSize,
}

/// Files that are copied in place of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRequest {
    pub way: CopyWay,
    /// As the workload would name it.
    pub path: String,
}

/// Which way files are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyWay {
    Out,
    In,
}

impl CopyWay {
    pub fn word(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// Whether a text may be the name of a kind of terminal.
pub fn is_term(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    (1..=TERM_CHARS_MAX).contains(&text.len()) && text.chars().all(fits)
}

/// The protocol of a command with or without a terminal, or of a connection to a port.
pub fn exec_upgrade(has_terminal: bool, has_port: bool) -> &'static str {
    match (has_port, has_terminal) {
        (true, _) => PORT_UPGRADE,
        (false, true) => EXEC_TERMINAL_UPGRADE,
        (false, false) => EXEC_UPGRADE,
    }
}

/// What the replica's side sends. `Exit` is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecServerFrame {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Exit(ExecExit),
}

/// How it ended: `{"code":0}`, or `{"error":"…"}` where it could not be run or was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecExit {
    Code(i32),
    Error(String),
}

/// Why bytes are no frame of an exec session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecFrameError {
    #[error("a frame of kind {0} is not part of {EXEC_UPGRADE}")]
    Kind(u8),
    #[error("a frame holds at most {EXEC_PAYLOAD_BYTES_MAX} bytes, this one says {0}")]
    TooLong(u32),
    #[error("a terminal's size is two numbers of two bytes")]
    Size,
    #[error("the last frame does not say how the command ended")]
    Exit,
}

/// A frame taken off the front of a buffer, and how many bytes it took.
type Taken<T> = Result<Option<(T, usize)>, ExecFrameError>;

impl ExecClientFrame {
    /// Payloads above the limit must be split before.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Stdin(bytes) => frame(0, bytes),
            Self::StdinEnd => frame(1, &[]),
            Self::Resize(TerminalSize { rows, cols }) => {
                frame(2, &[rows.to_le_bytes(), cols.to_le_bytes()].concat())
            }
        }
    }

    /// The first frame of the bytes; none where they do not hold a whole one yet.
    pub fn decode(bytes: &[u8]) -> Taken<Self> {
        let Some(((kind, payload), taken)) = split(bytes)? else {
            return Ok(None);
        };
        let frame = match kind {
            0 => Self::Stdin(payload.to_vec()),
            1 => Self::StdinEnd,
            2 => match <[u8; 4]>::try_from(payload) {
                Ok([r0, r1, c0, c1]) => Self::Resize(TerminalSize {
                    rows: u16::from_le_bytes([r0, r1]),
                    cols: u16::from_le_bytes([c0, c1]),
                }),
                Err(_) => return Err(ExecFrameError::Size),
            },
            other => return Err(ExecFrameError::Kind(other)),
        };
        Ok(Some((frame, taken)))
    }
}

impl ExecServerFrame {
    /// Payloads above the limit must be split before.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Stdout(bytes) => frame(1, bytes),
            Self::Stderr(bytes) => frame(2, bytes),
            // A number or a text can always be written.
            Self::Exit(exit) => frame(3, &serde_json::to_vec(exit).unwrap_or_default()),
        }
    }

    /// The first frame of the bytes; none where they do not hold a whole one yet.
    pub fn decode(bytes: &[u8]) -> Taken<Self> {
        let Some(((kind, payload), taken)) = split(bytes)? else {
            return Ok(None);
        };
        let frame = match kind {
            1 => Self::Stdout(payload.to_vec()),
            2 => Self::Stderr(payload.to_vec()),
            3 => Self::Exit(serde_json::from_slice(payload).map_err(|_| ExecFrameError::Exit)?),
            other => return Err(ExecFrameError::Kind(other)),
        };
        Ok(Some((frame, taken)))
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let payload = payload.get(..EXEC_PAYLOAD_BYTES_MAX).unwrap_or(payload);
    let mut bytes = Vec::with_capacity(EXEC_FRAME_HEADER_BYTES + payload.len());
    bytes.push(kind);
    // At most 64 KiB after the cut above.
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn split(bytes: &[u8]) -> Taken<(u8, &[u8])> {
    let Some(([kind, length @ ..], rest)) = bytes.split_first_chunk::<EXEC_FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length);
    if length as usize > EXEC_PAYLOAD_BYTES_MAX {
        return Err(ExecFrameError::TooLong(length));
    }
    let payload = rest.get(..length as usize);
    Ok(payload.map(|payload| ((*kind, payload), EXEC_FRAME_HEADER_BYTES + payload.len())))
}
