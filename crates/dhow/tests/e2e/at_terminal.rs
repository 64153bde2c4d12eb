//! A person at a terminal: `dhow exec -it`, whatever becomes of either end.

use std::io::Write;
use std::path::Path;

use rustix::process::Signal;

use crate::support::{Daemon, Person, Service, is_alive, signal, until};

/// Waits for something in a replica that says its number.
fn pid_in(file: &Path) -> u32 {
    until("a command says its number", || {
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    })
}

#[test]
fn a_shell_in_a_replica_is_as_one_here() {
    let daemon = Daemon::start("terminal");
    daemon.deploy("shop", &[("web", Service::sleeper())]).ends_with(0);
    let mut person = Person::sits_down(&daemon, &["exec", "-it", "shop/web", "--", "sh"]);
    person.sees("in shop/web-default-0\r\n");
    person.types("echo $TERM; stty size; test -t 2 && echo up-$((1+1))\r");
    assert!(person.sees("up-2\r\n").contains("xterm-e2e\r\n40 100\r\n"));
    assert!(person.is_raw());
    // A shell that runs a script shares its group with what it starts: both hear of the size.
    person.types("sh -c \"trap 'stty size' WINCH; echo waits-$((1+1)); while :; do sleep 0.05; done\"\r");
    person.sees("waits-2\r\n");
    person.resizes(50, 120);
    person.sees("50 120\r\n");
    // It ends the script, not the shell, and nothing here.
    person.types("\x03");
    person.types("yes | cat\r");
    person.sees("y\r\ny\r\ny\r\n");
    person.types("\x03");
    person.types("echo still-$((1+1)); exit 7\r");
    person.sees("still-2\r\n");
    person.ends_with(7);

    let nobody = daemon.dhow(&["exec", "-it", "shop/web", "--", "sh"]).ends_with(2);
    nobody.says(&["stdin is none here"]);
    let events = daemon.dhow(&["events", "--audit", "--json"]).ends_with(0).stdout;
    assert!(events.contains("sh in web-default-0"), "{events}");
    daemon.finish();
}

/// Whoever goes first, a person's program or the daemon: the command hears of it, and goes too.
#[test]
fn a_command_ends_with_its_connection() {
    let mut daemon = Daemon::start("hangup");
    daemon.deploy("shop", &[("web", Service::sleeper())]).ends_with(0);
    let heard = daemon.scratch.path.join("heard");
    let number = daemon.scratch.path.join("number");
    // One that cares, and one that does not.
    let script = format!(
        "sh -c 'trap \"\" HUP; echo $$ > {0}.new; mv {0}.new {0}; exec sleep 3600' & \
         trap 'echo hup > {1}; exit' HUP; echo up-$((1+1)); while :; do sleep 0.05; done",
        number.display(),
        heard.display()
    );
    for end in ["term", "kill", "daemon"] {
        let args = ["exec", "-it", "shop/web-default-0", "--", "sh", "-c", &script];
        let mut person = Person::sits_down(&daemon, &args);
        person.sees("up-2\r\n");
        let stubborn = pid_in(&number);
        let own = person.pid();
        match end {
            "term" => {
                signal(own, Signal::TERM);
                person.ends_with(128 + 15);
            }
            "kill" => {
                signal(own, Signal::KILL);
                person.sees("ended with 137.");
            }
            _ => {
                daemon.kill9();
                person.sees("what became of the command is not known");
                person.ends_with(3);
            }
        }
        until("the command has heard of it", || {
            std::fs::read_to_string(&heard)
                .ok()
                .filter(|text| text == "hup\n")
        });
        until("nothing is left of it", || (!is_alive(stubborn)).then_some(()));
        std::fs::remove_file(&heard).unwrap();
        std::fs::remove_file(&number).unwrap();
    }
    daemon.restart();
    // Also one that says nothing and takes nothing, with more input than there is room for.
    let args = ["exec", "-i", "shop/web", "--", "sh", "-c", &script];
    let mut child = daemon.dhow_child(&args);
    let mut stdin = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || while stdin.write_all(&[0; 65_536]).is_ok() {});
    let stubborn = pid_in(&number);
    child.kill().unwrap();
    child.wait().unwrap();
    until("nothing is left of it", || (!is_alive(stubborn)).then_some(()));
    feeding.join().unwrap();
    daemon.finish();
}
