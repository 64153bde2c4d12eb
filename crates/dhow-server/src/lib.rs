//! dhow-server
