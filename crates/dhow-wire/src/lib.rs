//! dhow-wire
