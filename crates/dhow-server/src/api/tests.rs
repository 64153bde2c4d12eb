//! Routes over an in-process runtime and a scripted door.

mod access;
mod audit;
mod deploying;
mod document;
mod doors;
mod images_and_secrets;
mod input;
mod leader_routes;
mod listing;
mod nodes;
mod old_state;
mod progress;
mod roles;
mod serving;
mod streams;
pub(crate) mod support;
mod tokens;
mod truth;
mod volumes;
mod worker_tokens;
