//! The blocking end of a connection, in a fork of the zygote.

use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::protocol::{REQUEST_MAX_BYTES, Reply, Request};
use super::unchecked;

/// A client that connects and then says nothing is given up: its fork must not stay for ever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// stdin, stdout and stderr of a command; a replica's start has two.
const DESCRIPTORS_MAX: usize = 3;

/// A request and the descriptors that came with it.
pub struct Received {
    pub request: Request,
    pub descriptors: Vec<OwnedFd>,
}

/// Reads the one request of a connection.
pub fn receive(connection: &mut UnixStream) -> io::Result<Received> {
    connection.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let mut length = [0u8; 4];
    let mut descriptors = Vec::new();
    let mut space = nix::cmsg_space!([i32; DESCRIPTORS_MAX]);
    let got = {
        let mut slices = [IoSliceMut::new(&mut length)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(connection.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                descriptors.extend(numbers.into_iter().map(unchecked::own_descriptor));
            }
        }
        message.bytes
    };
    if got == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    connection.read_exact(length.get_mut(got..).unwrap_or_default())?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > REQUEST_MAX_BYTES {
        return Err(io::Error::other(format!(
            "a request of {length} bytes is too long"
        )));
    }
    let mut body = vec![0u8; length];
    connection.read_exact(&mut body)?;
    Ok(Received {
        request: serde_json::from_slice(&body)?,
        descriptors,
    })
}

/// Answers. A client that is gone does not need the answer: the records on disk have it.
pub fn reply(connection: &mut UnixStream, reply: &Reply) {
    let Ok(body) = serde_json::to_vec(reply) else {
        return;
    };
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let _ = connection.write_all(&[&length.to_le_bytes()[..], &body].concat());
}
