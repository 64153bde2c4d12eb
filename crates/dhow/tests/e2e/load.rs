//! Requests go on while replicas and the daemon are killed.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Daemon, Load, Seed, Service, free_port, rounds, signal, until};

#[test]
fn killed_replicas_and_daemons_fail_no_request() {
    let mut seed = Seed::new("killed_replicas_and_daemons_fail_no_request");
    let mut daemon = Daemon::start("load");
    let port = free_port();
    let web = Service::web("v1", port).replicas(3);
    daemon.deploy("shop", &[("web", web)]).ends_with(0);
    let load = Load::start(port, 4);

    for _ in 0..rounds(3, 20) {
        let victim = seed.one_of(&daemon.replicas_of("web")).clone();
        signal(victim.pid.unwrap(), Signal::KILL);
        load.goes_on();
        until("it is replaced", || {
            let replicas = daemon.replicas_of("web");
            let healed = replicas.iter().find(|replica| replica.id == victim.id)?;
            (healed.healthy && healed.pid != victim.pid).then_some(())
        });
    }
    let before = daemon.replicas_of("web");
    assert_eq!(
        before.iter().map(|replica| replica.restarts).sum::<u64>(),
        u64::from(rounds(3, 20))
    );

    for _ in 0..rounds(3, 20) {
        daemon.kill9();
        load.goes_on();
        daemon.restart();
        std::thread::sleep(Duration::from_millis(u64::try_from(seed.below(500)).unwrap()));
        load.goes_on();
    }
    let pids = |replicas: Vec<crate::support::Replica>| {
        replicas
            .into_iter()
            .map(|replica| (replica.id, replica.pid))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        pids(daemon.replicas_of("web")),
        pids(before),
        "nothing was restarted"
    );
    let answered = load.ends_without_failure();
    eprintln!("{answered} requests answered, none failed");
    daemon.finish();
}
