//! What a folder's files mean, without any process behind them.

use super::*;
use crate::shim::identity::ProcessId;
use crate::shim::record::RECORD_VERSION;

fn name(index: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web-a").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(7),
    }
}

fn state(shim: ProcessId, boot_id: &str) -> StateRecord {
    StateRecord {
        version: RECORD_VERSION,
        boot_id: boot_id.into(),
        shim,
        workload: shim,
        started_unix_ms: 5,
    }
}

#[test]
fn folders_are_named_after_the_whole_tuple() {
    assert_eq!(dir_name(&name(3)), "shop.web-a.default.3.g7");
    assert_eq!(parse_dir_name("shop.web-a.default.3.g7"), Some(name(3)));
    for other in [
        "shop.web-a.default.3",
        "shop.web-a.default.03.g7",
        "shop.web.x.3.g7.z",
        "zygote.sock",
        "..",
        "",
    ] {
        assert_eq!(parse_dir_name(other), None, "{other}");
    }
}

#[test]
fn a_status_is_read_from_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ReplicaDirs::open(dir.path()).unwrap();
    let name = name(0);
    assert!(matches!(dirs.status(&name), Err(Cause::NoSuchReplica)));
    let lock = dirs.lock_for_start(&name).unwrap();
    assert_eq!(dirs.status(&name).unwrap(), ReplicaStatus::Starting);
    assert!(matches!(dirs.lock_for_start(&name), Err(Cause::Busy)));
    drop(lock.lock);
    let unknown = |why| ReplicaStatus::Ended(Exit::unknown(why));
    assert_eq!(
        dirs.status(&name).unwrap(),
        unknown(UnknownExit::StartInterrupted)
    );

    let me = ProcessId::of_self().unwrap();
    let boot_id = identity::boot_id().unwrap();
    let path = dirs.dir(&name).join(STATE_FILE);
    write_record(&path, &state(me, &boot_id)).unwrap();
    assert!(matches!(dirs.status(&name).unwrap(), ReplicaStatus::Running(running) if running.pid == me.pid));
    write_record(&path, &state(me, "another start of the host")).unwrap();
    assert_eq!(dirs.status(&name).unwrap(), unknown(UnknownExit::HostRestarted));
    // The same number with another start time is somebody else.
    let other = ProcessId {
        start_ticks: me.start_ticks + 1,
        ..me
    };
    write_record(&path, &state(other, &boot_id)).unwrap();
    assert_eq!(
        dirs.status(&name).unwrap(),
        unknown(UnknownExit::SupervisorKilled)
    );

    let exit = ExitRecord {
        version: RECORD_VERSION,
        status: ExitStatus::Code(3),
        oom: false,
        ended_unix_ms: 9,
    };
    write_record(&dirs.dir(&name).join(EXIT_FILE), &exit).unwrap();
    let ended = Exit {
        kind: ExitKind::Code(3),
        oom: false,
        ended_unix_ms: Some(9),
    };
    assert_eq!(dirs.status(&name).unwrap(), ReplicaStatus::Ended(ended));

    // A new start clears what the last one left.
    let _lock = dirs.lock_for_start(&name).unwrap();
    assert_eq!(dirs.status(&name).unwrap(), ReplicaStatus::Starting);
    assert_eq!(dirs.names().unwrap(), [name]);
}

#[tokio::test]
async fn removing_takes_the_folder_and_what_is_not_there_is_fine() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ReplicaDirs::open(dir.path()).unwrap();
    let name = name(1);
    dirs.remove(&name, None).await.unwrap();
    drop(dirs.lock_for_start(&name).unwrap());
    dirs.remove(&name, None).await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
