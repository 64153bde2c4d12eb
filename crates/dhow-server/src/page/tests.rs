//! The page over an in-process runtime, asked as a browser asks.

mod hostile;
mod pages;
mod sessions;
mod streams;
mod support;
