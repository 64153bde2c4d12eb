//! How often the two sides of a session ask whether the other still answers. A host that is gone without a word is found
//! by the kernel's own probes; this finds one that is there and does not answer.

use std::time::Duration;

/// How often one side of a session pings the other, and how long it waits for the answer before it gives the connection
/// up. A server pings servers and its first workers often and later ones seldom. A worker does not ping: it hears the
/// server's pings, and leaves one that it does not hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub every: Duration,
    pub timeout: Duration,
}

impl KeepAlive {
    /// Members, and the first workers of a tier: a side that hangs is noticed within seven seconds, timers being
    /// whole seconds on the servers' side: less than the default grace.
    pub const OFTEN: Self = Self {
        every: Duration::from_secs(2),
        timeout: Duration::from_secs(3),
    };

    /// A server and its thousands of workers: 10,000 answers in 20 s are 500 a second and a few hundredths of a core,
    /// where they would be most of one every two seconds. A worker that hangs is noticed within 30 s.
    pub const SELDOM: Self = Self {
        every: Duration::from_secs(20),
        timeout: Duration::from_secs(8),
    };
}
