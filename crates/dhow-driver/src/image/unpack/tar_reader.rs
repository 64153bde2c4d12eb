//! Reads a tar stream entry by entry: ustar, GNU and PAX, as image builders write them.
//!
//! The `tar` crate decodes the header's fields. The framing is our own: that crate reads extended headers of
//! any size into memory and splits their records at line ends, which breaks on binary attributes.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::limits::{MAX_EXTENSION_BYTES, MAX_SPARSE_PARTS};
use super::pax::Pax;
use super::{EntryRefusal, LimitKind, UnpackError};

const BLOCK_BYTES: u64 = 512;
const MODE_FIELD: Field = 100..108;
const UID_FIELD: Field = 108..116;
const GID_FIELD: Field = 116..124;
const SIZE_FIELD: Field = 124..136;
const CHECKSUM_FIELD: Field = 148..156;
const TYPE_AT: usize = 156;

type Field = std::ops::Range<usize>;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File { parts: FileParts },
    HardLink { target: Vec<u8> },
    SymbolicLink { target: Vec<u8> },
    Directory,
    CharacterDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
}

/// Where a file's data goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileParts {
    /// The file's size, holes included.
    pub size_bytes: u64,
    /// Offset and length of each part that has data, in order; the rest are holes.
    pub data: Vec<(u64, u64)>,
}

/// An entry with everything that precedes its data.
#[derive(Clone, Debug)]
pub(super) struct TarEntry {
    pub raw_path: Vec<u8>,
    pub kind: EntryKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, u32),
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TarEntry {
    /// The name as messages show it.
    pub fn display_name(&self) -> String {
        String::from_utf8_lossy(&self.raw_path).into_owned()
    }

    pub fn refused(&self, why: EntryRefusal) -> UnpackError {
        UnpackError::Refused {
            entry: self.display_name(),
            why,
        }
    }
}

/// What earlier headers said of the entry to come.
#[derive(Default)]
struct Extensions {
    pax: Pax,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    any: bool,
}

/// A tar stream, read entry by entry.
pub(super) struct TarReader<R> {
    input: R,
    /// Data of the current entry that nobody has read yet.
    unread_bytes: u64,
    padding_bytes: u64,
    has_end_mark: bool,
}

impl<R: Read> TarReader<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            unread_bytes: 0,
            padding_bytes: 0,
            has_end_mark: false,
        }
    }

    /// Whether the mark was read with which an archive ends.
    pub fn is_ended(&self) -> bool {
        self.has_end_mark
    }

    pub fn into_inner(self) -> R {
        self.input
    }

    /// The next entry; none at the end mark or the end of the stream.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, UnpackError> {
        let mut extensions = Extensions::default();
        loop {
            let Some(header) = self.next_header()? else {
                if extensions.any {
                    return Err(UnpackError::malformed("it ends after an extended header"));
                }
                return Ok(None);
            };
            let size_bytes = number(&header, SIZE_FIELD, Header::entry_size)?;
            match header.entry_type() {
                EntryType::GNULongName => extensions.long_path = Some(self.extension_text(size_bytes)?),
                EntryType::GNULongLink => extensions.long_link = Some(self.extension_text(size_bytes)?),
                EntryType::XHeader => extensions.pax = Pax::parse(&self.extension(size_bytes)?)?,
                // What holds for all entries (comments, mostly) is ignored, as Docker does.
                EntryType::XGlobalHeader => {
                    self.extension(size_bytes)?;
                    continue;
                }
                _ => return self.entry(&header, size_bytes, extensions).map(Some),
            }
            extensions.any = true;
        }
    }

    /// Reads data of the current entry.
    pub fn read_data(&mut self, buffer: &mut [u8]) -> Result<usize, UnpackError> {
        let wanted = buffer
            .len()
            .min(usize::try_from(self.unread_bytes).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        loop {
            match self.input.read(&mut buffer[..wanted]) {
                Ok(0) => return Err(UnpackError::reading(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.unread_bytes -= count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(UnpackError::reading(error)),
            }
        }
    }

    fn next_header(&mut self) -> Result<Option<Header>, UnpackError> {
        if self.skip(self.unread_bytes)? < self.unread_bytes {
            return Err(UnpackError::reading(io::ErrorKind::UnexpectedEof.into()));
        }
        // Some builders leave out the padding of the last entry, and the end mark with it.
        if self.skip(self.padding_bytes)? < self.padding_bytes {
            (self.unread_bytes, self.padding_bytes) = (0, 0);
            return Ok(None);
        }
        (self.unread_bytes, self.padding_bytes) = (0, 0);
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < block.len() {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(UnpackError::malformed("it ends in the middle of a header")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(UnpackError::reading(error)),
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            self.has_end_mark = true;
            return Ok(None);
        }
        let sum = |range: Field| block[range].iter().map(|byte| u32::from(*byte)).sum::<u32>();
        // The field itself counts as eight spaces.
        let found = sum(0..CHECKSUM_FIELD.start) + sum(CHECKSUM_FIELD.end..512) + 8 * u32::from(b' ');
        if header.cksum().ok() != Some(found) {
            return Err(UnpackError::malformed(
                "a header has a wrong checksum; this may be no tar file",
            ));
        }
        Ok(Some(header))
    }

    /// Reads past this many bytes, or fewer at the end of the stream; returns how many.
    fn skip(&mut self, count: u64) -> Result<u64, UnpackError> {
        io::copy(&mut (&mut self.input).take(count), &mut io::sink()).map_err(UnpackError::reading)
    }

    fn start_data(&mut self, size_bytes: u64) {
        self.unread_bytes = size_bytes;
        self.padding_bytes = (BLOCK_BYTES - size_bytes % BLOCK_BYTES) % BLOCK_BYTES;
    }

    fn extension(&mut self, size_bytes: u64) -> Result<Vec<u8>, UnpackError> {
        if size_bytes > MAX_EXTENSION_BYTES {
            let kind = LimitKind::ExtensionBytes;
            return Err(UnpackError::TooLarge {
                kind,
                limit: MAX_EXTENSION_BYTES,
            });
        }
        self.start_data(size_bytes);
        let mut bytes = Vec::new();
        (&mut self.input)
            .take(size_bytes)
            .read_to_end(&mut bytes)
            .map_err(UnpackError::reading)?;
        if (bytes.len() as u64) < size_bytes {
            return Err(UnpackError::reading(io::ErrorKind::UnexpectedEof.into()));
        }
        self.unread_bytes = 0;
        Ok(bytes)
    }

    /// A GNU long name, which ends with a NUL byte.
    fn extension_text(&mut self, size_bytes: u64) -> Result<Vec<u8>, UnpackError> {
        let mut bytes = self.extension(size_bytes)?;
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        Ok(bytes)
    }

    fn entry(&mut self, header: &Header, size: u64, extensions: Extensions) -> Result<TarEntry, UnpackError> {
        let Extensions {
            pax,
            long_path,
            long_link,
            any: _,
        } = extensions;
        let raw_path = pax
            .path
            .clone()
            .or(long_path)
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let header_link = || {
            header
                .link_name_bytes()
                .map(|link| link.into_owned())
                .unwrap_or_default()
        };
        let target = pax.link.clone().or(long_link).unwrap_or_else(header_link);
        let mut entry = TarEntry {
            raw_path,
            kind: EntryKind::Directory,
            mode: number(header, MODE_FIELD, Header::mode)?,
            uid: 0,
            gid: 0,
            mtime: (0, 0),
            xattrs: Vec::new(),
        };
        if let Some(why) = pax.refusal() {
            return Err(entry.refused(why));
        }
        let out_of_range = |_| entry.refused(EntryRefusal::OwnerOutOfRange);
        let uid = pax
            .uid
            .map_or_else(|| number(header, UID_FIELD, Header::uid), Ok)?;
        let gid = pax
            .gid
            .map_or_else(|| number(header, GID_FIELD, Header::gid), Ok)?;
        let (uid, gid) = (
            u32::try_from(uid).map_err(out_of_range)?,
            u32::try_from(gid).map_err(out_of_range)?,
        );
        (entry.uid, entry.gid) = (uid, gid);
        let header_time = || {
            (
                header
                    .mtime()
                    .ok()
                    .and_then(|s| i64::try_from(s).ok())
                    .unwrap_or(0),
                0,
            )
        };
        entry.mtime = pax.mtime.unwrap_or_else(header_time);
        entry.kind = self.kind(header, pax.size_bytes.unwrap_or(size), target, &entry)?;
        entry.xattrs = pax.xattrs;
        Ok(entry)
    }

    /// Types without data have none, whatever size their header states.
    fn kind(
        &mut self,
        header: &Header,
        size_bytes: u64,
        target: Vec<u8>,
        entry: &TarEntry,
    ) -> Result<EntryKind, UnpackError> {
        let device = || match (header.device_major(), header.device_minor()) {
            (Ok(major), Ok(minor)) => Ok((major.unwrap_or(0), minor.unwrap_or(0))),
            (Err(_), _) | (_, Err(_)) => Err(entry.refused(EntryRefusal::DeviceOutOfRange)),
        };
        Ok(match header.entry_type() {
            EntryType::Link => EntryKind::HardLink { target },
            EntryType::Symlink => EntryKind::SymbolicLink { target },
            EntryType::Directory => EntryKind::Directory,
            EntryType::Fifo => EntryKind::Fifo,
            EntryType::Char => {
                let (major, minor) = device()?;
                EntryKind::CharacterDevice { major, minor }
            }
            EntryType::Block => {
                let (major, minor) = device()?;
                EntryKind::BlockDevice { major, minor }
            }
            // Tar of the oldest form marks a directory by the slash at the end of its name.
            EntryType::Regular if header.as_bytes()[TYPE_AT] == 0 && entry.raw_path.ends_with(b"/") => {
                EntryKind::Directory
            }
            EntryType::Regular | EntryType::Continuous => {
                self.start_data(size_bytes);
                let data = if size_bytes == 0 {
                    Vec::new()
                } else {
                    vec![(0, size_bytes)]
                };
                EntryKind::File {
                    parts: FileParts { size_bytes, data },
                }
            }
            EntryType::GNUSparse => {
                let parts = self.sparse_parts(header, size_bytes)?;
                self.start_data(size_bytes);
                EntryKind::File { parts }
            }
            other => return Err(entry.refused(EntryRefusal::UnknownType(other.as_byte()))),
        })
    }

    /// The map of a GNU sparse file: four parts in the header, more in blocks that follow it.
    fn sparse_parts(&mut self, header: &Header, stored_bytes: u64) -> Result<FileParts, UnpackError> {
        let malformed = || UnpackError::malformed("a sparse file's map is malformed");
        let gnu = header.as_gnu().ok_or_else(malformed)?;
        let size_bytes = gnu.real_size().map_err(|_| malformed())?;
        let mut data = Vec::new();
        add_parts(&mut data, &gnu.sparse).ok_or_else(malformed)?;
        let mut extended = gnu.is_extended();
        let mut seen = gnu.sparse.len() as u64;
        while extended {
            let mut more = GnuExtSparseHeader::new();
            self.input
                .read_exact(more.as_mut_bytes())
                .map_err(UnpackError::reading)?;
            // Empty parts count too, or a chain of them would never end.
            seen += more.sparse().len() as u64;
            if seen > MAX_SPARSE_PARTS {
                let kind = LimitKind::SparseParts;
                return Err(UnpackError::TooLarge {
                    kind,
                    limit: MAX_SPARSE_PARTS,
                });
            }
            add_parts(&mut data, more.sparse()).ok_or_else(malformed)?;
            extended = more.is_extended();
        }
        let mut end = 0;
        let mut stored = 0_u64;
        for (offset, length) in &data {
            if *offset < end {
                return Err(malformed());
            }
            end = offset.checked_add(*length).ok_or_else(malformed)?;
            stored = stored.checked_add(*length).ok_or_else(malformed)?;
        }
        if end > size_bytes || stored != stored_bytes {
            return Err(malformed());
        }
        Ok(FileParts { size_bytes, data })
    }
}

/// A number of the header; one that was left empty is zero.
fn number<T: Default>(
    header: &Header,
    field: Field,
    read: impl FnOnce(&Header) -> io::Result<T>,
) -> Result<T, UnpackError> {
    if header.as_bytes()[field]
        .iter()
        .all(|byte| matches!(byte, 0 | b' '))
    {
        return Ok(T::default());
    }
    read(header).map_err(|error| UnpackError::malformed(error.to_string()))
}

/// Adds the parts that have data; none if a number cannot be read.
fn add_parts(data: &mut Vec<(u64, u64)>, parts: &[GnuSparseHeader]) -> Option<()> {
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let (offset, length) = (part.offset().ok()?, part.length().ok()?);
        if length > 0 {
            data.push((offset, length));
        }
    }
    Some(())
}
