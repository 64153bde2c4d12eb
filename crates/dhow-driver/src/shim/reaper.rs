//! The program that a container's init becomes: some instructions that reap, in a file of their own.
//!
//! A process shows its container the file that it runs, and who may look into other processes may open it there and
//! change its mode. A fork of the shim would show this binary, which is the host's. So the init becomes a file that
//! nobody else has. It is made here because the host has none that is small enough.

use std::arch::global_asm;

use nix::libc;

/// Where the kernel puts the file in the memory of its process; a multiple of every page size.
const LOADED_AT: u64 = 0x40_0000;
/// No architecture has larger pages.
const PAGE: u64 = 0x1_0000;
const FILE_HEAD_BYTES: u16 = 64;
const PART_HEAD_BYTES: u16 = 56;
/// What is loaded, and a word about the stack.
const PARTS: u16 = 2;
const HEADS_BYTES: u16 = FILE_HEAD_BYTES + PARTS * PART_HEAD_BYTES;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "riscv64")]
const MACHINE: u16 = 243;
/// What RISC-V says of a program that computes with no fractions.
const FLAGS: u32 = 0;

// For ever: while there is a child that has ended, take it; then wait for the signal that tells of the next. The signal
// is blocked by who starts it. The only memory is one word of the stack, the set with that signal.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .rodata",
    ".hidden dhow_reaper_begin",
    ".globl dhow_reaper_begin",
    "dhow_reaper_begin:",
    "mov eax, {set}",
    "push rax",
    "mov r12, rsp",
    "2:",
    "mov eax, {wait4}",
    "mov rdi, -1",
    "xor esi, esi",
    "mov edx, {nohang}",
    "xor r10d, r10d",
    "syscall",
    "test rax, rax",
    "jg 2b",
    "mov eax, {sigtimedwait}",
    "mov rdi, r12",
    "xor esi, esi",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "jmp 2b",
    ".hidden dhow_reaper_end",
    ".globl dhow_reaper_end",
    "dhow_reaper_end:",
    ".popsection",
    set = const CHILD_SET,
    wait4 = const libc::SYS_wait4,
    nohang = const libc::WNOHANG,
    sigtimedwait = const libc::SYS_rt_sigtimedwait,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .rodata",
    ".balign 4",
    ".hidden dhow_reaper_begin",
    ".globl dhow_reaper_begin",
    "dhow_reaper_begin:",
    "mov x0, #{set}",
    "str x0, [sp, #-16]!",
    "mov x19, sp",
    "2:",
    "mov x8, #{wait4}",
    "mov x0, #-1",
    "mov x1, #0",
    "mov x2, #{nohang}",
    "mov x3, #0",
    "svc #0",
    "cmp x0, #0",
    "b.gt 2b",
    "mov x8, #{sigtimedwait}",
    "mov x0, x19",
    "mov x1, #0",
    "mov x2, #0",
    "mov x3, #8",
    "svc #0",
    "b 2b",
    ".hidden dhow_reaper_end",
    ".globl dhow_reaper_end",
    "dhow_reaper_end:",
    ".popsection",
    set = const CHILD_SET,
    wait4 = const libc::SYS_wait4,
    nohang = const libc::WNOHANG,
    sigtimedwait = const libc::SYS_rt_sigtimedwait,
);

#[cfg(target_arch = "riscv64")]
global_asm!(
    ".pushsection .rodata",
    ".balign 4",
    ".hidden dhow_reaper_begin",
    ".globl dhow_reaper_begin",
    "dhow_reaper_begin:",
    "li t0, {set}",
    "addi sp, sp, -16",
    "sd t0, 0(sp)",
    "2:",
    "li a7, {wait4}",
    "li a0, -1",
    "li a1, 0",
    "li a2, {nohang}",
    "li a3, 0",
    "ecall",
    "bgtz a0, 2b",
    "li a7, {sigtimedwait}",
    "mv a0, sp",
    "li a1, 0",
    "li a2, 0",
    "li a3, 8",
    "ecall",
    "j 2b",
    ".hidden dhow_reaper_end",
    ".globl dhow_reaper_end",
    "dhow_reaper_end:",
    ".popsection",
    set = const CHILD_SET,
    wait4 = const libc::SYS_wait4,
    nohang = const libc::WNOHANG,
    sigtimedwait = const libc::SYS_rt_sigtimedwait,
);

/// The set of signals with the one that tells of a child's end.
const CHILD_SET: u32 = 1 << (libc::SIGCHLD - 1);

fn instructions() -> &'static [u8] {
    unsafe extern "C" {
        static dhow_reaper_begin: u8;
        static dhow_reaper_end: u8;
    }
    let (begin, end) = (&raw const dhow_reaper_begin, &raw const dhow_reaper_end);
    // SAFETY: both symbols are of the text above, the second behind the first, and what lies between them is constant
    // data of this program.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// The whole file: a program that needs no other file.
pub fn file() -> Vec<u8> {
    let code = instructions();
    let length = u64::from(HEADS_BYTES) + code.len() as u64;
    let mut file = Vec::new();
    // 64 bits, the machine's order of bytes, version 1, nothing special.
    file.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    const PROGRAM: u16 = 2;
    file.extend(PROGRAM.to_le_bytes());
    file.extend(MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    // Where it begins to run, where the heads of its parts are; sections it has none.
    for word in [LOADED_AT + u64::from(HEADS_BYTES), u64::from(FILE_HEAD_BYTES), 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(FLAGS.to_le_bytes());
    for half in [FILE_HEAD_BYTES, PART_HEAD_BYTES, PARTS, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    const LOAD: u32 = 1;
    const STACK: u32 = 0x6474_e551;
    const EXECUTE: u32 = 1;
    const WRITE: u32 = 2;
    const READ: u32 = 4;
    part(&mut file, LOAD, READ | EXECUTE, [LOADED_AT, length, PAGE]);
    part(&mut file, STACK, READ | WRITE, [0, 0, 16]);
    file.extend(code);
    file
}

/// The head of a part that begins with the file.
fn part(file: &mut Vec<u8>, kind: u32, flags: u32, [address, length, align]: [u64; 3]) {
    file.extend(kind.to_le_bytes());
    file.extend(flags.to_le_bytes());
    for word in [0, address, address, length, length, align] {
        file.extend(word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_kernel_takes_it_for_a_program_that_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("init");
        std::fs::write(&path, file()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).spawn().unwrap();
        let at = format!("/proc/{}", child.id());
        // Its call is one of the two that it makes, or it is about to make one.
        let exe = std::fs::read_link(format!("{at}/exe")).unwrap();
        assert_eq!(exe, path);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
        assert!(file().len() < 512, "{}", file().len());
    }
}
