//! Routes over an in-process runtime and a scripted door.
