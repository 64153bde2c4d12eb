//! The lines of git's protocol: four hexadecimal digits with their length, and special ones without content.

use bytes::{BufMut, Bytes, BytesMut};

use crate::plane::remote_sets::error::RemoteError;

/// One line as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Data(Bytes),
    /// The end of a message.
    Flush,
    /// Divides the sections of a message.
    Delimiter,
    /// The end of an answer.
    End,
}

impl Line {
    /// A line of text, without its end.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Data(bytes) => str::from_utf8(bytes).ok().map(|text| text.trim_end_matches('\n')),
            Self::Flush | Self::Delimiter | Self::End => None,
        }
    }
}

/// Takes lines off the front of an answer.
pub(super) struct Lines(pub Bytes);

impl Iterator for Lines {
    type Item = Result<Line, RemoteError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        Some(self.cut().ok_or_else(|| {
            self.0.clear();
            RemoteError::Malformed("a line that is no line of git's protocol".into())
        }))
    }
}

impl Lines {
    fn cut(&mut self) -> Option<Line> {
        let digits = self.0.get(..4)?;
        // A sign would be taken for a part of the number.
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let length = usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        let line = match length {
            0 => Line::Flush,
            1 => Line::Delimiter,
            2 => Line::End,
            3 => return None,
            length if length > self.0.len() => return None,
            length => {
                let mut line = self.0.split_to(length);
                return Some(Line::Data(line.split_off(4)));
            }
        };
        drop(self.0.split_to(4));
        Some(line)
    }
}

/// A message to a server.
#[derive(Default)]
pub(super) struct Message(BytesMut);

impl Message {
    pub fn line(mut self, text: &str) -> Self {
        // What is asked has some hundred bytes.
        self.0
            .put_slice(format!("{:04x}{text}\n", text.len() + 5).as_bytes());
        self
    }

    pub fn lines(self, all: impl IntoIterator<Item = String>) -> Self {
        all.into_iter().fold(self, |message, line| message.line(&line))
    }

    pub fn delimiter(mut self) -> Self {
        self.0.put_slice(b"0001");
        self
    }

    pub fn finish(mut self) -> Bytes {
        self.0.put_slice(b"0000");
        self.0.freeze()
    }
}
