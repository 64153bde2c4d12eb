//! The name of an object, and what kind it is.

use std::fmt;

use ring::digest;

/// The SHA-1 of an object. It finds objects and proves nothing: what counts is the signature of the set's index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId(pub [u8; ID_BYTES]);

pub(super) const ID_BYTES: usize = 20;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }
}

/// One object, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

impl Object {
    pub fn id(&self) -> ObjectId {
        let head = format!("{} {}\0", self.kind.word(), self.bytes.len());
        ObjectId::of(&[head.as_bytes(), &self.bytes])
    }

    /// The tree of a commit and its parents.
    pub fn commit(&self) -> Option<(ObjectId, Vec<ObjectId>)> {
        let text = str::from_utf8(head_of(&self.bytes)).ok()?;
        let of = |line: &str, word: &str| ObjectId::from_text(line.strip_prefix(word)?);
        let mut lines = text.lines();
        let tree = of(lines.next()?, "tree ")?;
        let parents = lines.map_while(|line| of(line, "parent "));
        Some((tree, parents.collect()))
    }
}

/// Lines before the message, which may be in any encoding: those of ids come first.
fn head_of(bytes: &[u8]) -> &[u8] {
    let author = bytes.windows(8).position(|window| window == b"\nauthor ");
    &bytes[..author.unwrap_or(0)]
}

impl ObjectId {
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        for part in parts {
            context.update(part);
        }
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(context.finish().as_ref());
        Self(id)
    }

    /// 40 hexadecimal digits.
    pub fn from_text(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * ID_BYTES {
            return None;
        }
        let mut id = [0; ID_BYTES];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(id))
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
