//! The pure core of Dhow.
