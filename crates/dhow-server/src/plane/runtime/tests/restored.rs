//! A state that was begun anew: what is planned in it counts, whatever term the state comes from.

use dhow_core::command::Outcome;
use dhow_core::ids::{NodeId, Term};
use dhow_core::restart::{begin_anew, first_term};
use dhow_core::state::State;
use dhow_wire::log_form::encode_snapshot;
use tempfile::TempDir;

use super::support::{Server, deploy, register};
use crate::plane::log::local;
use crate::plane::log::store::StoreOptions;

/// The state of a node that was started so often.
async fn saved(starts: usize) -> State {
    let dir = TempDir::new().unwrap();
    for start in 0..starts {
        let server = Server::start(&dir);
        if start == 0 {
            server.write(register(1)).await.unwrap();
        }
        server.wait_for(|state| state.term.0 == start as u64 + 1).await;
        assert!(server.stop().await.is_clean());
    }
    let server = Server::start(&dir);
    let state = server.wait_for(|state| state.term.0 == starts as u64 + 1).await;
    assert!(server.stop().await.is_clean());
    State::clone(&state)
}

async fn begun(state: &State, term: u64) -> (TempDir, Server) {
    let dir = TempDir::new().unwrap();
    let mut bytes = Vec::new();
    encode_snapshot(state, &mut bytes).unwrap();
    let options = StoreOptions::default();
    local::seed(&dir.path().join("log"), options, term, &mut bytes.as_slice()).unwrap();
    let server = Server::start(&dir);
    (dir, server)
}

async fn plans(server: &Server) {
    server.write(deploy(2)).await.unwrap();
    let placed = server.place("web", NodeId(1)).await;
    assert!(matches!(placed, Outcome::Placed { left_out, .. } if left_out.is_empty()));
}

#[tokio::test]
async fn a_restored_node_plans_in_terms_above_all_that_were() {
    let mut state = saved(4).await;
    begin_anew(&mut state);
    let first = first_term(state.term, 1_800_000_000);
    let (dir, server) = begun(&state, first.0).await;
    plans(&server).await;
    assert_eq!(server.state().term, Term(1_800_000_001));
    assert!(server.stop().await.is_clean());
    let server = Server::start(&dir);
    server.wait_for(|state| state.term == Term(1_800_000_002)).await;
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_log_that_an_older_version_began_below_its_state_is_led_above_it() {
    let state = saved(4).await;
    let (_dir, server) = begun(&state, 1).await;
    plans(&server).await;
    assert_eq!(server.state().term, Term(state.term.0 + 1));
    assert!(server.stop().await.is_clean());
}
