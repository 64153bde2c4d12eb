//! The body of an answer that comes in chunks, as the replica's bytes arrive. What is not exactly a chunk is refused: a
//! reader that guesses may end a message elsewhere than the next one does. Pure.

use bytes::{Buf, Bytes};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// Of all extensions and of the trailers of one body, each: as much as some servers write in signatures, and no more.
const ASIDE_MAX_BYTES: usize = 16 << 10;
const TRAILERS_MAX: usize = 64;
/// Of a chunk's size: what a number of 64 bits holds.
const DIGITS_MAX: u8 = 16;

/// Where in a body of chunks the reader is.
#[derive(Debug)]
pub struct Chunks {
    state: State,
    aside_bytes: usize,
}

#[derive(Debug)]
enum State {
    Size { value: u64, digits: u8 },
    AfterSize { value: u64 },
    Extension { value: u64 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailers(Vec<u8>),
    Over,
}

/// What came of the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// All were taken.
    More,
    Data(Bytes),
    Trailers(HeaderMap),
    Over,
}

/// The bytes are no chunks: the answer is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the replica's answer is not in chunks as it says")]
pub struct BadChunk;

impl Chunks {
    pub fn new() -> Self {
        Self {
            state: SIZE,
            aside_bytes: 0,
        }
    }

    /// Whether the last byte was seen.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The next piece, taken from the front of `input`.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Step, BadChunk> {
        loop {
            if let State::Data { left } = &mut self.state {
                if input.is_empty() {
                    return Ok(Step::More);
                }
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= u64::try_from(count).map_err(|_| BadChunk)?;
                if *left == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Step::Data(input.split_to(count)));
            }
            if self.is_over() {
                return Ok(Step::Over);
            }
            let Some(byte) = input.first().copied() else {
                return Ok(Step::More);
            };
            input.advance(1);
            let state = std::mem::replace(&mut self.state, State::Over);
            self.state = self.after(state, byte)?;
            if let State::Trailers(lines) = &self.state
                && (lines == b"\r\n" || lines.ends_with(b"\r\n\r\n"))
            {
                let trailers = trailers(lines)?;
                self.state = State::Over;
                return Ok(match trailers.is_empty() {
                    true => Step::Over,
                    false => Step::Trailers(trailers),
                });
            }
        }
    }

    fn after(&mut self, state: State, byte: u8) -> Result<State, BadChunk> {
        Ok(match (state, byte) {
            (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == DIGITS_MAX {
                    return Err(BadChunk);
                }
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                State::Size {
                    value: (value << 4) | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (State::Size { digits: 0, .. }, _) => return Err(BadChunk),
            (State::Size { value, .. } | State::AfterSize { value }, b' ' | b'\t') => {
                self.aside()?;
                State::AfterSize { value }
            }
            (State::Size { value, .. } | State::AfterSize { value }, b';') => State::Extension { value },
            (State::Size { value, .. } | State::AfterSize { value } | State::Extension { value }, b'\r') => {
                State::SizeLf { value }
            }
            (State::Extension { value }, b' '..=b'~' | b'\t' | 0x80..) => {
                self.aside()?;
                State::Extension { value }
            }
            (State::SizeLf { value: 0 }, b'\n') => State::Trailers(Vec::new()),
            (State::SizeLf { value: left }, b'\n') => State::Data { left },
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => SIZE,
            (State::Trailers(mut lines), byte) => {
                self.aside()?;
                lines.push(byte);
                State::Trailers(lines)
            }
            (
                State::Size { .. }
                | State::AfterSize { .. }
                | State::Extension { .. }
                | State::SizeLf { .. }
                | State::Data { .. }
                | State::DataCr
                | State::DataLf
                | State::Over,
                _,
            ) => return Err(BadChunk),
        })
    }

    fn aside(&mut self) -> Result<(), BadChunk> {
        self.aside_bytes += 1;
        match self.aside_bytes <= ASIDE_MAX_BYTES {
            true => Ok(()),
            false => Err(BadChunk),
        }
    }
}

const SIZE: State = State::Size { value: 0, digits: 0 };

fn trailers(lines: &[u8]) -> Result<HeaderMap, BadChunk> {
    let mut room = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let Ok(httparse::Status::Complete((count, found))) = httparse::parse_headers(lines, &mut room) else {
        return Err(BadChunk);
    };
    // A line that ends without a carriage return may be the last one for another reader.
    if count != lines.len() {
        return Err(BadChunk);
    }
    let mut trailers = HeaderMap::new();
    for header in found {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| BadChunk)?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| BadChunk)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, its trailers, and what follows.
    type Whole = (Vec<u8>, HeaderMap, Vec<u8>);

    /// Reads with a pause after every so many bytes.
    fn read(text: &[u8], stride: usize) -> Result<Option<Whole>, BadChunk> {
        let (mut chunks, mut data, mut trailers) = (Chunks::new(), Vec::new(), HeaderMap::new());
        let mut at = 0;
        while at < text.len() {
            let end = (at + stride).min(text.len());
            let mut input = Bytes::copy_from_slice(&text[at..end]);
            at = end;
            loop {
                match chunks.next(&mut input)? {
                    Step::More => break,
                    Step::Data(piece) => data.extend(piece),
                    Step::Trailers(found) => trailers = found,
                    Step::Over => {
                        let rest = [&input[..], &text[at..]].concat();
                        return Ok(Some((data, trailers, rest)));
                    }
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn a_body_is_the_same_however_its_bytes_arrive() {
        let text =
            b"5\r\nhello\r\n01;name=\"a b\"\r\n,\r\nA \r\n0123456789\r\n0\r\nx-sum: 7\r\n\r\nHTTP/1.1 200";
        for stride in 1..=text.len() {
            let (data, trailers, rest) = read(text, stride).unwrap().unwrap();
            assert_eq!(data, b"hello,0123456789", "{stride}");
            assert_eq!(trailers.get("x-sum").unwrap(), "7");
            assert_eq!(rest, b"HTTP/1.1 200");
            let (data, trailers, rest) = read(b"0\r\n\r\nx", stride).unwrap().unwrap();
            assert!(data.is_empty() && trailers.is_empty() && rest == b"x");
        }
        assert_eq!(read(b"5\r\nhell", 3), Ok(None));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        let long = [b"1;".to_vec(), vec![b'x'; ASIDE_MAX_BYTES + 1]].concat();
        let endless = [b"0\r\nx: ".to_vec(), vec![b'x'; ASIDE_MAX_BYTES + 1]].concat();
        for bad in [
            &b"\r\n"[..],
            b";\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"0x1\r\n",
            b"1 1\r\n",
            b"1\nx\r\n",
            b"1;a\nx\r\n",
            b"1\r\r\nx",
            b"1\r\nxy\r\n",
            b"1\r\nx\n0\r\n\r\n",
            b"00000000000000001\r\nx",
            b"0\r\nbad trailer\r\n\r\n",
            b"0\r\nx: y\n\nz: y\r\n\r\n",
            &long,
            &endless,
        ] {
            for stride in [1, bad.len()] {
                assert_eq!(
                    read(bad, stride),
                    Err(BadChunk),
                    "{:?}",
                    String::from_utf8_lossy(bad)
                );
            }
        }
    }
}
