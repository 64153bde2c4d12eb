//! A repository in a folder, and a small HTTP server on loopback before git's own program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A repository with a work tree.
pub struct Repository {
    dir: TempDir,
}

impl Repository {
    /// None, with a word about it, where the host has no git.
    pub fn make() -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            println!("SKIPPED: there is no git on this host");
            return None;
        }
        let repository = Self {
            dir: TempDir::new().unwrap(),
        };
        std::fs::create_dir(repository.work()).unwrap();
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        Some(repository)
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("shop.git")
    }

    pub fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(args)
            .current_dir(self.work())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn link(&self, path: &str, to: &str) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// The newest commit.
    pub fn tip(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }
}

/// Serves the repositories of a folder until the test's process ends: one thread for each connection.
pub struct GitServer {
    pub url: String,
}

impl GitServer {
    pub fn start(repository: &Repository) -> Self {
        let root = repository.dir.path().to_owned();
        let url = serve(move |head, body, stream| answer(&root, head, body, stream));
        Self {
            url: format!("{url}/shop.git"),
        }
    }
}

/// A server that answers each request as it is told to. Its address.
pub fn serve(answer: impl Fn(&[String], &[u8], &mut TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), answer) = (stream, answer.clone()) else {
                continue;
            };
            std::thread::spawn(move || {
                if let Some((head, body)) = request(&stream) {
                    answer(&head, &body, &mut stream);
                }
            });
        }
    });
    url
}

/// The lines of a request's head, and its body.
fn request(stream: &TcpStream) -> Option<(Vec<String>, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = header(&head, "content-length").and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

pub fn header<'a>(head: &'a [String], name: &str) -> Option<&'a str> {
    head.iter().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// Asks git's program, as a web server does.
fn answer(root: &Path, head: &[String], body: &[u8], stream: &mut TcpStream) {
    let mut words = head[0].split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header(head, "content-type").unwrap_or_default())
        .env("GIT_PROTOCOL", header(head, "git-protocol").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    let end = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let (headers, content) = (&output[..end], &output[end + 4..]);
    let headers = String::from_utf8_lossy(headers);
    let status = headers.lines().find_map(|line| line.strip_prefix("Status: "));
    let status = status.unwrap_or("200 OK");
    respond(stream, status, &headers, content);
}

pub fn respond(stream: &mut TcpStream, status: &str, headers: &str, content: &[u8]) {
    let length = content.len();
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n");
    if !headers.is_empty() {
        head += &format!("{headers}\r\n");
    }
    head += "\r\n";
    // A client that has seen enough is gone.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(content);
}
