//! Whether a run that failed may have missed rights that `no_new_privileges` kept from it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::protocol::Program;
use super::spawn;

/// What is added to the log of such a run.
pub const HINT: &str = "it ran with `no_new_privileges`, under which no program gains rights by set-user-id or file \
                        capabilities, as sudo, su and ping do: if it needs them, write `no_new_privileges: false`";

/// What programs say that were to gain rights and did not. In lower case.
const SYMPTOMS: [&str; 11] = [
    "no new privileges",
    "operation not permitted",
    "permission denied",
    "must be suid",
    "must be setuid",
    "setuid",
    "effective uid is not 0",
    "must be run as root",
    "su: authentication failure",
    "passwd: authentication token",
    "only root can do that",
];

/// Whether the hint helps: the program itself was to gain rights, or what it wrote last reads like it.
pub fn may_miss_them(program: &Program, last_output: &str) -> bool {
    if !program.no_new_privileges {
        return false;
    }
    let said = last_output.to_lowercase();
    SYMPTOMS.iter().any(|symptom| said.contains(symptom))
        || spawn::file_of(program).is_some_and(|file| gains_rights(&file))
}

fn gains_rights(file: &Path) -> bool {
    const SET_IDS: u32 = 0o6000;
    let set_id = std::fs::metadata(file).is_ok_and(|found| found.mode() & SET_IDS != 0);
    // Only whether there are any: what they are does not matter.
    set_id || rustix::fs::getxattr(file, "security.capability", &mut [0u8; 64]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_for_runs_that_it_may_help() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        std::fs::write(&file, "").unwrap();
        let mut program = Program {
            argv: vec![file.display().to_string()],
            no_new_privileges: true,
            ..Program::default()
        };
        assert!(!may_miss_them(&program, "no such table: users"));
        assert!(may_miss_them(
            &program,
            "sudo: The \"no new privileges\" flag is set"
        ));
        assert!(may_miss_them(&program, "bind(80): Permission denied"));
        assert!(may_miss_them(&program, "Password: \nsu: Authentication failure"));
        assert!(may_miss_them(&program, "mount: /mnt: only root can do that"));
        assert!(!may_miss_them(&program, "login: password authentication failed"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        std::fs::set_permissions(&file, mode).unwrap();
        assert!(may_miss_them(&program, ""));
        program.no_new_privileges = false;
        assert!(!may_miss_them(&program, "Operation not permitted"));
    }
}
