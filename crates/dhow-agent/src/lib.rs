//! dhow-agent
