//! dhow-sim
