//! Goldens, round trips and hostile bytes.

mod golden;
mod laws;
mod samples;
