//! The page for browsers: what the cluster does, as HTML that is made here and kept up to date over one stream for each
//! open page, and the few actions that people take while they look at it.
//!
//! The API mounts it beside its own routes. It only reads; whatever is done on it, and what the leader alone knows, is
//! asked of the API's routes on behalf of whoever looks, so that rights, forwarding and the record of who did what are the
//! same as for the command line. Everything works without the script too. It must never show what it was given other than
//! as text, load anything from elsewhere, or do work for a page that nobody looks at.

mod actions;
mod assets;
mod calls;
mod context;
mod cookie;
mod deployment;
mod diff;
mod document;
mod door;
mod events;
mod format;
mod glance;
mod html;
mod limits;
mod live;
mod log_lines;
mod login;
mod node;
mod nodes;
mod overview;
mod place;
mod plan;
mod replica;
mod replica_table;
mod search;
mod service;
mod session;
mod view;
mod viewer;

pub use door::routes;

#[cfg(test)]
mod tests;
