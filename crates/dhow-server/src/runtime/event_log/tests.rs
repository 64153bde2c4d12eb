//! Files of the event log.
