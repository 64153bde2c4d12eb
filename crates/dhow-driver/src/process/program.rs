//! From a spec to a command line with its surroundings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cgroup::CgroupHost;
use crate::driver::{Cause, StartRecord};
use crate::shim::protocol::Program;

use super::{environment, limits, user};

/// The command line of a replica, and what of its spec this host cannot do.
pub(super) struct Built {
    pub program: Program,
    pub notices: Vec<String>,
}

/// What the replica runs, without its group. Blocks.
pub(super) fn build(
    record: &StartRecord,
    secret_env: &BTreeMap<String, String>,
    cgroups: &CgroupHost,
) -> Result<Built, Cause> {
    let spec = &record.spec;
    let command = spec.command.as_ref();
    let argv: Vec<String> = command
        .into_iter()
        .flat_map(|command| command.words().cloned())
        .collect();
    if argv.is_empty() {
        return Err(Cause::NoCommand);
    }
    let user = user::resolve(spec.user.as_deref())?;
    let env = environment::build(&user.home, &record.ports, &record.env, secret_env);
    let (rlimits, notices) = limits::build(&spec.ulimits, &spec.resources, cgroups)?;
    let program = Program {
        argv,
        env: env.into_iter().collect(),
        workdir: command
            .and_then(|command| command.workdir.as_ref())
            .map(PathBuf::from),
        user: user.ids,
        rlimits,
        no_new_privileges: spec.has_no_new_privileges(),
        join: Vec::new(),
        set_up: Vec::new(),
    };
    Ok(Built { program, notices })
}
