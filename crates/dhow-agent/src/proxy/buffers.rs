//! Buffers for bytes on their way through. Whoever waits for bytes holds none: ten thousand idle connections cost no
//! memory for what they might say.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// One read takes this much: larger ones are hardly faster.
pub const BUFFER_BYTES: usize = 64 << 10;
/// Kept by a thread for the next one: 2 MiB.
const SPARE_MAX: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes for one read, given back to the thread when it is dropped.
pub struct Buffer(Box<[u8]>);

impl Buffer {
    pub fn take() -> Self {
        let spare = SPARE.with(|spare| spare.borrow_mut().pop());
        Self(spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice()))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // A thread that ends has no list any more, and needs none.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(bytes);
            }
        });
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
