//! The load on a worker tier: three real servers in processes of their own, and thousands of workers in some more, each
//! with its certificate, its TLS connection and its session.
//!
//! Run by `bench/ten-thousand-workers`, `bench/thirty-thousand-workers` and, with few workers, by a test. The workers obey the protocol as the agent
//! does (incarnations, numbers, acknowledgements, the pace that they are told) and run nothing: what they are assigned
//! is reported as running at once. It must never assert on a time measured, and never leave a server behind.

mod api;
mod bars;
mod firewall;
mod fleet;
mod interests;
mod latencies;
mod order;
mod proc_usage;
mod report;
mod run;
mod seat;
mod servers;
mod squad;
mod talk;
mod tally;
mod worker;

pub use bars::Bar;
pub use fleet::SQUAD;
pub use report::{Kind, Line, Report};
pub use run::{Options, run};
pub use squad::serve_squad;
