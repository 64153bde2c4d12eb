//! The service over loopback.
