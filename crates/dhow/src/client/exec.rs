//! A command inside a replica: the connection after its upgrade, frame by frame.

use dhow_wire::api::{
    COPY_UPGRADE, CopyRequest, EXEC_FRAME_HEADER_BYTES, EXEC_PAYLOAD_BYTES_MAX, EXEC_REPLICA_HEADER,
    ExecClientFrame, ExecServerFrame, Terminal, exec_upgrade,
};
use reqwest::Upgraded;
use reqwest::header::{CONNECTION, HeaderValue, UPGRADE};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::{Client, ClientError, DaemonAddress, Request};

/// The side that sends.
pub struct ExecInput {
    host: DaemonAddress,
    connection: WriteHalf<Upgraded>,
}

/// The side that receives.
pub struct ExecOutput {
    host: DaemonAddress,
    connection: ReadHalf<Upgraded>,
    buffer: Vec<u8>,
}

/// What to run, and at what.
pub struct ExecWish<'a> {
    pub command: &'a [String],
    pub with_stdin: bool,
    pub terminal: Option<Terminal>,
    /// A connection to this port in place of a command.
    pub port: Option<u16>,
    /// Files in place of a command.
    pub copy: Option<CopyRequest>,
}

/// A running command, from both sides.
pub struct ExecSession {
    /// The id of the replica that it runs in, where the daemon says so.
    pub replica: Option<String>,
    pub input: ExecInput,
    pub output: ExecOutput,
}

impl Client {
    /// Starts a command inside a replica, or inside one of a service.
    pub async fn exec(
        &self,
        deployment: &str,
        name: &str,
        wish: &ExecWish<'_>,
    ) -> Result<ExecSession, ClientError> {
        let path = ["deployments", deployment, "replicas", name, "exec"];
        let protocol = match wish.copy {
            Some(_) => COPY_UPGRADE,
            None => exec_upgrade(wish.terminal.is_some(), wish.port.is_some()),
        };
        let mut request = Request::post(&path)
            .header(CONNECTION, HeaderValue::from_static("upgrade"))
            .header(UPGRADE, HeaderValue::from_static(protocol))
            .query("stdin", wish.with_stdin)
            .query_if("port", wish.port)
            .query_if("copy", wish.copy.as_ref().map(|copy| copy.way.word()))
            .query_if("path", wish.copy.as_ref().map(|copy| &copy.path));
        if let Some(Terminal { term, size }) = &wish.terminal {
            request = request
                .query("terminal", term)
                .query("rows", size.rows)
                .query("cols", size.cols);
        }
        for word in wish.command {
            request = request.query("command", word);
        }
        let response = self.send(&request, None).await?;
        if response.status() != 101 {
            return Err(ClientError::Unreadable {
                host: self.host.clone(),
                why: format!("it answered {} instead of starting {protocol}", response.status()),
            });
        }
        let replica = response.headers().get(EXEC_REPLICA_HEADER);
        let replica = replica.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let connection = response.upgrade().await.map_err(|error| ClientError::Broke {
            host: self.host.clone(),
            why: error.to_string(),
        })?;
        let (read, write) = tokio::io::split(connection);
        let host = self.host.clone();
        Ok(ExecSession {
            replica,
            input: ExecInput {
                host: host.clone(),
                connection: write,
            },
            output: ExecOutput {
                host,
                connection: read,
                buffer: Vec::new(),
            },
        })
    }
}

impl ExecInput {
    pub async fn send(&mut self, frame: &ExecClientFrame) -> Result<(), ClientError> {
        let sent = self.connection.write_all(&frame.encode()).await;
        sent.map_err(|error| broke(&self.host, &error))?;
        self.connection
            .flush()
            .await
            .map_err(|error| broke(&self.host, &error))
    }
}

impl ExecOutput {
    /// The next frame; none where the connection ended. May be dropped while it waits.
    pub async fn next(&mut self) -> Result<Option<ExecServerFrame>, ClientError> {
        loop {
            let decoded = ExecServerFrame::decode(&self.buffer).map_err(|error| ClientError::Unreadable {
                host: self.host.clone(),
                why: error.to_string(),
            })?;
            if let Some((frame, taken)) = decoded {
                self.buffer.drain(..taken);
                return Ok(Some(frame));
            }
            self.buffer
                .reserve(EXEC_FRAME_HEADER_BYTES + EXEC_PAYLOAD_BYTES_MAX);
            let count = self.connection.read_buf(&mut self.buffer).await;
            if count.map_err(|error| broke(&self.host, &error))? == 0 {
                return Ok(None);
            }
        }
    }
}

fn broke(host: &DaemonAddress, error: &std::io::Error) -> ClientError {
    ClientError::Broke {
        host: host.clone(),
        why: error.to_string(),
    }
}
