//! dhow-driver
