//! A system call filter for processes of our own that need few calls: those on a list are answered, a forbidden
//! use of one and every other call is refused with an error. The kernel keeps it for good, for all that the
//! process starts and against whoever traces it.
//!
//! Used by the init of a container and by the balancer.

use std::io;

use nix::errno::Errno;
use nix::libc;

/// Where the kernel shows a filter the call's number, the architecture and the low half of the first argument.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const FIRST_ARGUMENT_AT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xc000_00f3;

const LOAD: u16 = 0x20;
const EQUALS: u16 = 0x15;
const HAS_BITS: u16 = 0x45;
const ANSWER: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;

/// One call that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Any(libc::c_long),
    /// Refused where the first argument has one of these bits.
    Without(libc::c_long, u32),
}

/// The program that the kernel runs at each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFilter {
    program: Vec<[u32; 3]>,
}

impl CallFilter {
    /// Calls of another architecture end the process: their numbers mean something else.
    pub fn allowing(calls: &[Call], otherwise: Errno) -> Self {
        let refuse = REFUSE | (otherwise as i32).unsigned_abs();
        let mut program = vec![
            statement(LOAD, ARCHITECTURE_AT),
            jump(EQUALS, ARCHITECTURE, 1, 0),
            statement(ANSWER, KILL_PROCESS),
            statement(LOAD, NUMBER_AT),
        ];
        for call in calls {
            match *call {
                Call::Any(number) => {
                    program.extend([jump(EQUALS, call_number(number), 0, 1), statement(ANSWER, ALLOW)])
                }
                Call::Without(number, bits) => program.extend([
                    jump(EQUALS, call_number(number), 0, 4),
                    statement(LOAD, FIRST_ARGUMENT_AT),
                    jump(HAS_BITS, bits, 0, 1),
                    statement(ANSWER, refuse),
                    statement(ANSWER, ALLOW),
                ]),
            }
        }
        program.push(statement(ANSWER, refuse));
        Self { program }
    }

    /// Puts the calling thread under it, with all that it starts from then on. Nobody gains privileges by
    /// running another program afterwards.
    pub fn apply(&self) -> io::Result<()> {
        nix::sys::prctl::set_no_new_privs()?;
        let instructions: Vec<libc::sock_filter> = self.program.iter().map(instruction).collect();
        crate::shim::set_call_filter(&instructions)
    }
}

/// Operation with its two jumps, and operand.
fn statement(operation: u16, operand: u32) -> [u32; 3] {
    [u32::from(operation), 0, operand]
}

fn jump(operation: u16, operand: u32, if_true: u8, if_false: u8) -> [u32; 3] {
    [
        u32::from(operation),
        u32::from(if_true) << 8 | u32::from(if_false),
        operand,
    ]
}

fn instruction(words: &[u32; 3]) -> libc::sock_filter {
    let [operation, jumps, operand] = *words;
    // Each was made of this many bits.
    libc::sock_filter {
        code: u16::try_from(operation).unwrap_or(ANSWER),
        jt: u8::try_from(jumps >> 8).unwrap_or(0),
        jf: u8::try_from(jumps & 0xff).unwrap_or(0),
        k: operand,
    }
}

fn call_number(number: libc::c_long) -> u32 {
    // A call has a small number; one that does not fit would never be made.
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel does.
    fn answer(filter: &CallFilter, architecture: u32, number: libc::c_long, argument: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = instruction(&filter.program[at]);
            at += 1;
            match step.code {
                LOAD => {
                    loaded = match step.k {
                        NUMBER_AT => call_number(number),
                        ARCHITECTURE_AT => architecture,
                        FIRST_ARGUMENT_AT => argument,
                        other => panic!("nothing lies at {other}"),
                    }
                }
                EQUALS => at += usize::from(if loaded == step.k { step.jt } else { step.jf }),
                HAS_BITS => at += usize::from(if loaded & step.k == 0 { step.jf } else { step.jt }),
                ANSWER => return step.k,
                other => panic!("no such operation: {other}"),
            }
        }
    }

    #[test]
    fn what_is_listed_is_answered_and_nothing_else() {
        let calls = [
            Call::Any(libc::SYS_read),
            Call::Without(libc::SYS_clone, 0x7e02_0000),
            Call::Any(libc::SYS_exit_group),
        ];
        let filter = CallFilter::allowing(&calls, Errno::EPERM);
        let refused = REFUSE | 1;
        let of = |number, argument| answer(&filter, ARCHITECTURE, number, argument);
        assert_eq!(of(libc::SYS_read, 0), ALLOW);
        assert_eq!(of(libc::SYS_exit_group, u32::MAX), ALLOW);
        assert_eq!(of(libc::SYS_clone, 0x0000_0f00), ALLOW);
        assert_eq!(of(libc::SYS_clone, 0x4000_0000), refused);
        for number in [libc::SYS_execve, libc::SYS_socket, libc::SYS_read | 0x4000_0000] {
            assert_eq!(of(number, 0), refused, "{number}");
        }
        assert_eq!(answer(&filter, 0x4000_0003, libc::SYS_read, 0), KILL_PROCESS);
    }

    #[test]
    fn a_thread_under_a_filter_is_refused_what_is_not_listed() {
        let mut calls: Vec<Call> = (0..500).map(Call::Any).collect();
        calls.retain(|call| *call != Call::Any(libc::SYS_getppid));
        let seen = std::thread::spawn(move || {
            CallFilter::allowing(&calls, Errno::ENOSYS).apply().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            (nix::unistd::getppid().as_raw(), status)
        });
        let (parent, status) = seen.join().unwrap();
        assert!(parent < 0, "{parent}");
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"));
        assert!(
            nix::unistd::getppid().as_raw() > 0,
            "only that thread is under it"
        );
    }
}
