//! Streams of the API: lines of text, and server-sent events made of them. Both are bounded, whatever a server
//! sends.

use super::address::DaemonAddress;
use super::error::ClientError;

/// The longest line. A log line is 16 KiB at most, a progress event holds some hundred bytes for each service.
const LINE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The lines of a body as they come.
pub struct Lines {
    host: DaemonAddress,
    response: reqwest::Response,
    /// What has come; taken lines are dropped at the next read.
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no line end was found.
    searched: usize,
    is_over: bool,
}

impl Lines {
    pub fn new(host: DaemonAddress, response: reqwest::Response) -> Self {
        Self {
            host,
            response,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            is_over: false,
        }
    }

    /// The next line without its end; none at the end of the stream. May be dropped while it waits.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.is_over {
                return Ok(None);
            }
            if self.buffer.len() - self.start > LINE_MAX_BYTES {
                return Err(ClientError::Unreadable {
                    host: self.host.clone(),
                    why: format!("a line is longer than {LINE_MAX_BYTES} bytes"),
                });
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.buffer.drain(..self.start);
                    self.searched -= self.start;
                    self.start = 0;
                    self.buffer.extend_from_slice(&chunk);
                }
                Ok(None) => {
                    self.is_over = true;
                    // A last line without its end was cut off in the middle.
                    self.buffer.truncate(self.start);
                    self.searched = self.start;
                }
                Err(error) => {
                    return Err(ClientError::Broke {
                        host: self.host.clone(),
                        why: error.without_url().to_string(),
                    });
                }
            }
        }
    }

    fn take_line(&mut self) -> Option<String> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + at;
        let line = self.buffer.get(self.start..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(line).into_owned();
        self.start = end + 1;
        self.searched = self.start;
        Some(text)
    }
}

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub event: String,
    pub data: String,
    pub id: Option<String>,
}

/// The events of a body as they come.
pub struct Sse {
    lines: Lines,
    next: SseEvent,
    has_data: bool,
}

impl Sse {
    pub fn new(lines: Lines) -> Self {
        Self {
            lines,
            next: SseEvent::default(),
            has_data: false,
        }
    }

    /// The next event; none at the end of the stream. May be dropped while it waits.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, ClientError> {
        while let Some(line) = self.lines.next().await? {
            if let Some(event) = self.take(&line) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// An empty line ends an event; a line that begins with a colon only keeps the connection alive.
    fn take(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.next);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.next.event = value.into(),
            "id" => self.next.id = Some(value.into()),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.next.data.push('\n');
                }
                self.next.data.push_str(value);
            }
            // Comments, `retry` and whatever else may come.
            _ => {}
        }
        None
    }
}
