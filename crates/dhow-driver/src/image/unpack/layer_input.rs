//! How the bytes of a layer are compressed. That is read from the bytes themselves: media types are wrong
//! often enough, and archives have none.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A skippable frame that may come before zstd data; the low half of its first byte varies.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
/// The largest window a zstd stream may ask for: 128 MiB, zstd's own default for decoding.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Large enough that system calls do not show beside decompression.
const BUFFER_BYTES: usize = 128 << 10;

/// The bytes of a layer, compressed or not.
pub(crate) type LayerInput = Box<dyn Read + Send>;

type Source = BufReader<LayerInput>;

/// The uncompressed stream.
pub(crate) enum Decompressed {
    Plain(Source),
    Gzip(Box<BufReader<MultiGzDecoder<Source>>>),
    Zstd(BufReader<zstd::stream::read::Decoder<'static, Source>>),
}

impl Decompressed {
    /// Looks at the first bytes and chooses.
    pub fn new(input: LayerInput) -> io::Result<Self> {
        let mut source = BufReader::with_capacity(BUFFER_BYTES, input);
        let magic = source.fill_buf()?;
        if magic.starts_with(&GZIP_MAGIC) {
            let gzip = BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(source));
            return Ok(Self::Gzip(Box::new(gzip)));
        }
        let skippable = magic.len() >= 4 && magic[0] & 0xf0 == 0x50 && magic[1..4] == ZSTD_SKIPPABLE;
        if magic.starts_with(&ZSTD_MAGIC) || skippable {
            let mut zstd = zstd::stream::read::Decoder::with_buffer(source)?;
            zstd.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            return Ok(Self::Zstd(BufReader::with_capacity(BUFFER_BYTES, zstd)));
        }
        Ok(Self::Plain(source))
    }

    pub fn is_plain(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Gzip(_) | Self::Zstd(_) => false,
        }
    }
}

impl Read for Decompressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}
