//! One check of one replica.

use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::{Check, Protocol, ServiceSpec};
use dhow_driver::driver::{Driver, ExecRequest, PortBinding, error_chain};
use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;

use crate::limits::CHECK_OUTPUT_MAX_BYTES;

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
            Ok::<u16, String>(response.status().as_u16())
        };
        tokio::pin!(answer);
        let status = tokio::select! {
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
        Err(format!("GET {path} gave {status}, expected {expect_status}"))
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

/// The cause alone: the reader of a probe knows what it does and to which replica.
fn cause_of(error: &dhow_driver::driver::DriverError) -> String {
    error_chain(&*error.cause)
}
