//! A small HTTP server in a process of its own: it answers with its pid, and `/slow` takes a moment.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// Long enough for a kill to meet requests that are under way.
const SLOW: Duration = Duration::from_millis(5);

/// The server's side: `backend ADDR`, where port 0 means any. Says where it listens, serves until it is
/// killed.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let addr: SocketAddr = args.next().unwrap().into_string().unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(addr).unwrap();
        let listener = socket.listen(1024).unwrap();
        println!("{}", listener.local_addr().unwrap());
        std::io::stdout().flush().unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            });
        }
    })
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/slow" {
        tokio::time::sleep(SLOW).await;
    }
    Ok(Response::new(Full::from(std::process::id().to_string())))
}

/// The test's side. Killed when it is dropped.
pub struct BackendProcess {
    child: Child,
    pub addr: SocketAddr,
}

impl BackendProcess {
    pub fn start(addr: SocketAddr) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .args(["backend", &addr.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let addr = line.trim().parse().unwrap();
        Self { child, addr }
    }

    pub fn anywhere() -> Self {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Like kill -9.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for BackendProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
