//! A connection, whatever it is made of: a socket, TLS over one, a pipe of a test.

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways. Everything that can be read and written is one; boxed where it does not matter which.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for S {}
