//! When plans are made, and what becomes of their commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dhow_core::command::{Command, DeploymentCommand, PlanCommand};
use dhow_core::ids::{DeploymentRevision, NodeId};
use dhow_core::plan::Plan;
use dhow_core::replica::{Exit, ReplicaEvent};
use dhow_core::state::{Phase, State};
use dhow_core::time::ClusterTime;
use tokio::sync::watch;

use super::agent::{Agent, start_events};
use super::support::{Server, deploy, phase, place, register, set_secret, shop};
use crate::plane::runtime::ReportBody;
use crate::plane::runtime::limits::PLAN_TICK_MS;

/// The cluster's time once the first term has begun, which moves it by itself.
const BEGAN_MS: u64 = 1;

/// Places what is missing on node 1 and marks what is healthy as stable.
fn plan(state: &State) -> Plan {
    let mut commands = Vec::new();
    if let Some(deployment) = state
        .deployment(&shop())
        .filter(|_| state.node(NodeId(1)).is_some())
    {
        if state.replicas.is_empty() {
            commands.push(place(state, "web", NodeId(1)));
        } else if deployment.phase == Phase::Deploying
            && state.replicas.values().all(|replica| replica.is_healthy())
        {
            commands.push(PlanCommand::MarkStable {
                deployment: shop(),
                revision: DeploymentRevision(1),
            });
        }
    }
    Plan {
        commands,
        ..Plan::default()
    }
}

#[tokio::test]
async fn plans_carry_a_deployment_to_its_end() {
    let server = Server::start_volatile(|options| options.planner = Arc::new(|state, _, _| plan(state)));
    server.write(register(1)).await.unwrap();
    server.write(deploy(3)).await.unwrap();
    let state = server.wait_for(|state| state.replicas.len() == 3).await;
    let mut agent = Agent::new(1);
    agent.follow(&state);
    for event in start_events() {
        agent.happens(&event);
    }
    agent.report_from(&server, 1).await.unwrap();
    server.wait_for(|state| phase(state) == Some(Phase::Stable)).await;
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_burst_is_planned_once_it_is_over_and_never_twice_at_a_time() {
    let plans = watch::Sender::new(0usize);
    let running = Arc::new(AtomicUsize::new(0));
    let counted = plans.clone();
    let server = Server::start_volatile(|options| {
        options.plan_debounce_ms = 10;
        options.planner = Arc::new(move |_, _, _| {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one plan at a time");
            running.fetch_sub(1, Ordering::SeqCst);
            counted.send_modify(|count| *count += 1);
            Plan::default()
        });
    });
    for number in 0..50 {
        server.write(set_secret(number)).await.unwrap();
    }
    assert_eq!(
        *plans.borrow(),
        0,
        "the clock stands still, so the burst is not over"
    );
    server.clock.advance(10);
    plans.subscribe().wait_for(|count| *count == 1).await.unwrap();
    server.write(set_secret(50)).await.unwrap();
    server.clock.advance(10);
    plans.subscribe().wait_for(|count| *count == 2).await.unwrap();
    assert!(server.stop().await.is_clean());
    assert_eq!(*plans.borrow(), 2);
}

#[tokio::test]
async fn after_a_plan_of_thousands_there_is_time_for_other_work() {
    let plans = watch::Sender::new(Vec::new());
    let seen = plans.clone();
    let server = Server::start_volatile(|options| {
        options.plan_debounce_ms = 10;
        options.planner = Arc::new(move |_, _, now: ClusterTime| {
            seen.send_modify(|times: &mut Vec<u64>| times.push(now.0));
            Plan {
                wake: Some(ClusterTime(1_000_000)),
                ..Plan::default()
            }
        });
    });
    let mut times = plans.subscribe();
    server.write(register(1)).await.unwrap();
    server.write(deploy(5_000)).await.unwrap();
    server.place("web", NodeId(1)).await;
    assert_eq!(server.state().replicas.len(), 5_000);
    server.clock.advance(10);
    times.wait_for(|times| times.len() == 1).await.unwrap();
    // The wish of the plan, which is over, and the tick.
    server.clock.wait_for_sleepers(2).await;
    for number in 0..2 {
        server.write(set_secret(number)).await.unwrap();
        server.clock.advance(10);
    }
    times.wait_for(|times| times.len() == 2).await.unwrap();
    assert_eq!(*times.borrow(), [BEGAN_MS + 10, BEGAN_MS + 30]);
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_plan_is_made_at_the_tick_and_when_it_asked_to_be_woken() {
    let plans = watch::Sender::new(Vec::new());
    let seen = plans.clone();
    let server = Server::start_volatile(|options| {
        options.planner = Arc::new(move |_, _, now: ClusterTime| {
            seen.send_modify(|times: &mut Vec<ClusterTime>| times.push(now));
            let wake = ClusterTime(BEGAN_MS + 700);
            Plan {
                wake: (now < wake).then_some(wake),
                ..Plan::default()
            }
        });
    });
    let mut times = plans.subscribe();
    times.wait_for(|times| times.len() == 1).await.unwrap();
    // The tick and the wake-up.
    server.clock.wait_for_sleepers(2).await;
    server.clock.advance(700);
    times.wait_for(|times| times.len() == 2).await.unwrap();
    assert_eq!(
        *times.borrow(),
        [ClusterTime(BEGAN_MS), ClusterTime(BEGAN_MS + 700)]
    );
    server.clock.advance(PLAN_TICK_MS - 700);
    times.wait_for(|times| times.len() == 3).await.unwrap();
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_plan_that_is_always_refused_is_made_ever_more_rarely() {
    let plans = watch::Sender::new(Vec::new());
    let seen = plans.clone();
    let stale = PlanCommand::DrainFinished { node: NodeId(9) };
    let server = Server::start_volatile(|options| {
        options.plan_debounce_ms = 10;
        options.planner = Arc::new(move |_, _, now: ClusterTime| {
            seen.send_modify(|times: &mut Vec<u64>| times.push(now.0));
            Plan {
                commands: vec![stale.clone()],
                ..Plan::default()
            }
        });
    });
    let mut times = plans.subscribe();
    let mut now = BEGAN_MS;
    for (count, wait_ms) in (1..).zip([10, 20, 40, 80, 160]) {
        // The next plan and the tick.
        server.clock.wait_for_sleepers(2).await;
        server.clock.advance(wait_ms);
        now += wait_ms;
        times.wait_for(|times| times.len() == count).await.unwrap();
        assert_eq!(times.borrow().last(), Some(&now), "not before its time");
    }
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn the_planner_and_two_agents_bring_a_deployment_up_and_down() {
    let server = Server::start_volatile(|options| options.planner = Arc::new(dhow_core::plan::plan_next));
    server.write(register(1)).await.unwrap();
    server.write(register(2)).await.unwrap();
    server.write(deploy(4)).await.unwrap();
    let state = server.wait_for(|state| state.replicas.len() == 4).await;
    for node in [1, 2] {
        let mut agent = Agent::new(node);
        agent.follow(&state);
        assert_eq!(agent.machines.len(), 2, "spread over both nodes");
        for event in start_events() {
            agent.happens(&event);
        }
        agent.report_from(&server, 1).await.unwrap();
    }
    server.wait_for(|state| phase(state) == Some(Phase::Stable)).await;

    let remove = Command::Deployment(DeploymentCommand::Remove { deployment: shop() });
    server.write(remove).await.unwrap();
    let state = server
        .wait_for(|state| state.nodes.values().all(|node| node.assignments.is_empty()))
        .await;
    for node in [1, 2] {
        let stopping: Vec<_> = state
            .node(NodeId(node))
            .unwrap()
            .stopping
            .iter()
            .copied()
            .collect();
        let events = stopping.iter().flat_map(|key| {
            let name = state.replica_name(key).unwrap();
            let ended = ReplicaEvent::Ended {
                exit: Exit::Code(0),
                oom: false,
            };
            [(name.clone(), ReplicaEvent::StopBegan), (name, ended)]
        });
        let body = ReportBody::Events {
            first_seq: 9,
            events: events.collect(),
        };
        server
            .handle
            .input()
            .report(NodeId(node), None, 0, body)
            .await
            .unwrap();
    }
    server
        .wait_for(|state| state.deployments.is_empty() && state.replicas.is_empty())
        .await;
    assert!(server.stop().await.is_clean());
}
