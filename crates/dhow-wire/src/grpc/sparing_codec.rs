//! How messages become bytes: as Protocol Buffers, in buffers that begin small. A server has one for each session that is
//! open, and most of what is said in a session is a few hundred bytes long.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// With this much a buffer begins; it grows with its message. Twenty thousand sessions have 20 MiB of them, where the usual
/// 8 KiB would be 160.
const BUFFER_BYTES: usize = 1_024;

/// Messages that are ready go out together up to this size.
const TOGETHER_BYTES: usize = 32 * 1_024;

/// The codec of all generated clients and services.
#[derive(Clone, Copy, Debug)]
pub struct SparingCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SparingCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SparingCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES))
    }
}
