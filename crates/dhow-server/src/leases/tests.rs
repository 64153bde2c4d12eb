//! Leases with a clock that stands still.
