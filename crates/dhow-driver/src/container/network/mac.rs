//! Hardware addresses.

use std::fmt;

/// The hardware address of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mac(pub [u8; 6]);

impl Mac {
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
