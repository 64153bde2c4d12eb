//! PAX extended headers. Records carry their own length, so that values may hold any byte (file capabilities
//! do); they are read by that length alone.

use super::{EntryRefusal, UnpackError};

const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";
const SPARSE_PREFIX: &[u8] = b"GNU.sparse.";

/// What an extended header says of the entry that follows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size_bytes: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    /// Seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse: bool,
}

impl Pax {
    pub fn parse(mut bytes: &[u8]) -> Result<Self, UnpackError> {
        let mut pax = Self::default();
        while !bytes.is_empty() {
            let (key, value, rest) =
                record(bytes).ok_or_else(|| UnpackError::malformed("an extended header is malformed"))?;
            pax.take(key, value)?;
            bytes = rest;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size_bytes = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            key if key.starts_with(SPARSE_PREFIX) => self.sparse = true,
            key => {
                if let Some(name) = key.strip_prefix(XATTR_PREFIX) {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// The one form that cannot be read.
    pub fn refusal(&self) -> Option<EntryRefusal> {
        self.sparse.then_some(EntryRefusal::PaxSparse)
    }
}

/// One `length key=value\n` and what follows it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let body = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], &bytes[length..]))
}

fn number(value: &[u8]) -> Result<u64, UnpackError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| UnpackError::malformed("an extended header has a malformed number"))
}

/// Decimal seconds with an optional fraction; before 1970 the fraction is dropped.
fn time(value: &[u8]) -> Result<(i64, u32), UnpackError> {
    let malformed = || UnpackError::malformed("an extended header has a malformed time");
    let text = std::str::from_utf8(value).map_err(|_| malformed())?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = seconds.parse().map_err(|_| malformed())?;
    if seconds < 0 || text.starts_with('-') {
        return Ok((seconds, 0));
    }
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(malformed());
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    Ok((seconds, digits.parse().map_err(|_| malformed())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(key: &str, value: &[u8]) -> Vec<u8> {
        let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let digits = if body.len() + 2 < 100 { 2 } else { 3 };
        [(body.len() + digits).to_string().as_bytes(), &body].concat()
    }

    #[test]
    fn values_may_hold_any_byte() {
        let value = b"a\n\0=b";
        let records = [
            encoded("SCHILY.xattr.user.x", value),
            encoded("path", b"a-rather-long-path"),
            encoded("mtime", b"12.5000"),
        ];
        let pax = Pax::parse(&records.concat()).unwrap();
        assert_eq!(pax.xattrs, [(b"user.x".to_vec(), value.to_vec())]);
        assert_eq!(pax.path.as_deref(), Some(b"a-rather-long-path".as_slice()));
        assert_eq!(pax.mtime, Some((12, 500_000_000)));
    }

    #[test]
    fn malformed_records_are_errors() {
        for bytes in [
            "14 path=abcdef\n",
            "x path=a\n",
            "5 a\n",
            "99 path=a\n",
            "0 a=b\n",
            "9 size=x\n",
            "3 \n",
        ] {
            assert!(Pax::parse(bytes.as_bytes()).is_err(), "{bytes}");
        }
        assert!(
            Pax::parse(b"22 GNU.sparse.major=1\n")
                .unwrap()
                .refusal()
                .is_some()
        );
    }
}
