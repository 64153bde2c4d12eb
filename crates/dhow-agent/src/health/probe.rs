//! One check of one replica.

use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::{Check, Protocol, ServiceSpec};
use dhow_driver::driver::{Driver, ExecRequest, PortBinding, error_chain};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::{Body, Bytes};
use hyper_util::rt::TokioIo;

use crate::limits::CHECK_OUTPUT_MAX_BYTES;

/// What of a wrong answer is shown: a status page says in its first line what is wrong.
const ANSWER_BYTES_SHOWN: usize = 160;
/// How long it is waited for once the status is known.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// The replica that is looked at.
pub struct Subject<'a> {
    pub driver: &'a dyn Driver,
    pub name: &'a ReplicaName,
    pub spec: &'a ServiceSpec,
    pub ports: &'a [PortBinding],
}

impl Subject<'_> {
    /// Makes the check, or says why it failed.
    pub async fn probe(&self, check: &Check, timeout: Duration) -> Result<(), String> {
        match check {
            Check::Tcp { port } => self.tcp(*port).await,
            Check::Http { url, expect_status } => self.http(url, *expect_status).await,
            Check::Command { command } => self.command(command, timeout).await,
        }
    }

    async fn tcp(&self, port: u16) -> Result<(), String> {
        let port = self.port(port);
        let opened = self.driver.connect(self.name, port).await;
        opened.map(drop).map_err(|error| cause_of(&error))
    }

    async fn http(&self, url: &str, expect_status: u16) -> Result<(), String> {
        let (host, port, path) = self.target(url)?;
        let stream = self.driver.connect(self.name, port).await;
        let stream = stream.map_err(|error| cause_of(&error))?;
        let broken = |error: hyper::Error| format!("GET {path}: {}", error_chain(&error));
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(broken)?;
        let request = Request::get(&path)
            .header("Host", host)
            .header("User-Agent", "dhow-health")
            .header("Connection", "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| format!("GET {path}: {error}"))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            let status = response.status().as_u16();
            let said = match status == expect_status {
                true => String::new(),
                false => first_words(response.into_body()).await,
            };
            Ok::<_, String>((status, said))
        };
        tokio::pin!(answer);
        let (status, said) = tokio::select! {
            answer = &mut answer => answer?,
            // The answer may lie ready behind a connection that has done its work.
            ended = connection => match ended {
                Ok(()) => answer.await?,
                Err(error) => return Err(broken(error)),
            },
        };
        if status == expect_status {
            return Ok(());
        }
        let wrong = format!("GET {path} gave {status}, expected {expect_status}");
        Err(match said.is_empty() {
            true => wrong,
            false => format!("{wrong}: {said}"),
        })
    }

    async fn command(&self, command: &[String], timeout: Duration) -> Result<(), String> {
        let session = self
            .driver
            .exec(self.name, ExecRequest::new(command.iter().cloned()))
            .await;
        let session = session.map_err(|error| cause_of(&error))?;
        let Some(output) = session.finish(CHECK_OUTPUT_MAX_BYTES, timeout).await else {
            return Err(format!(
                "the command did not end within {} ms",
                timeout.as_millis()
            ));
        };
        let output = output.map_err(|error| cause_of(&error))?;
        if output.exit.is_success() {
            return Ok(());
        }
        let said = [output.stderr, output.stdout]
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned())
            .find(|text| !text.is_empty());
        Err(match said {
            Some(said) => format!("the command ended with {}: {said}", output.exit),
            None => format!("the command ended with {}", output.exit),
        })
    }

    /// A check names the port that the service's endpoint has inside; a host program was given another one.
    fn port(&self, port: u16) -> u16 {
        let binding = self.ports.iter().find(|binding| binding.target_port == port);
        binding.map_or(port, |binding| binding.host_port)
    }

    /// Host header, port and path of a check's address.
    fn target(&self, url: &str) -> Result<(String, u16, String), String> {
        if url.starts_with('/') {
            let endpoint = self
                .spec
                .endpoints
                .iter()
                .find(|endpoint| match endpoint.protocol {
                    Protocol::Http | Protocol::Websocket => true,
                    Protocol::Https | Protocol::Tcp | Protocol::Udp => false,
                });
            let endpoint = endpoint.ok_or("it has no http endpoint to check")?;
            let binding = self
                .ports
                .iter()
                .find(|binding| binding.endpoint == endpoint.name);
            let port = binding.map_or(endpoint.target_port(), |binding| binding.host_port);
            return Ok((format!("localhost:{port}"), port, url.to_owned()));
        }
        let uri: hyper::Uri = url.parse().map_err(|_| format!("`{url}` is not an address"))?;
        let port = self.port(uri.port_u16().unwrap_or(80));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let host = uri
            .authority()
            .map_or("localhost", |authority| authority.as_str());
        Ok((host.to_owned(), port, path.to_owned()))
    }
}

/// What an answer begins with, as far as it comes at once, in one line that moves no terminal.
async fn first_words(body: impl Body<Data = Bytes>) -> String {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    let read = async {
        while bytes.len() < ANSWER_BYTES_SHOWN
            && let Some(Ok(frame)) = body.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            let room = ANSWER_BYTES_SHOWN - bytes.len();
            bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        }
    };
    // What has come by then is shown.
    let _ = tokio::time::timeout(ANSWER_TIMEOUT, read).await;
    let text = String::from_utf8_lossy(&bytes);
    let plain = text.replace(char::is_control, " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The cause alone: the reader of a probe knows what it does and to which replica.
fn cause_of(error: &dhow_driver::driver::DriverError) -> String {
    error_chain(&*error.cause)
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn of_a_wrong_answer_one_plain_line_is_shown() {
        let shown = async |text: &str| first_words(Full::new(Bytes::copy_from_slice(text.as_bytes()))).await;
        assert_eq!(
            shown("no database\r\n\x1b[2J\x07 at\tall\u{9b}31m").await,
            "no database [2J at all 31m"
        );
        assert_eq!(shown(&"x".repeat(10_000)).await.len(), ANSWER_BYTES_SHOWN);
        assert_eq!(shown("").await, "");
    }
}
