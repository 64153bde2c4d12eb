//! The durable log, from outside: what it promises about crashes, damage, full disks and order.
//!
//! `DHOW_TEST_LONG=1` makes the rounds longer; the seed of every random choice is printed.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop where it is"
)]

mod faults;
mod flips;
mod golden;
mod group;
mod kill;
mod local;
mod model;
mod power;
mod refuse;
mod snapshots;
mod support;
mod torn;
