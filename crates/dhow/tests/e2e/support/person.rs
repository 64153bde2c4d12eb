//! Somebody at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::{Daemon, PATIENCE, until};

/// Runs the command, says how it ended, and waits.
const SHELL: &str = r#""$0" "$@"; echo "ended with $?."; read -r _"#;

/// A terminal with a shell and a command of `dhow` at it.
pub struct Person {
    keyboard: File,
    /// Held, so that the terminal is there for as long as this is.
    _desk: OwnedFd,
    shell: Child,
    screen: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Person {
    pub fn sits_down(daemon: &Daemon, args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let desk = ioctl_tiocgptpeer(&ours, flags).unwrap();
        tcsetwinsize(&ours, size(40, 100)).unwrap();
        let dhow = daemon.dhow_command();
        // As of somebody who has logged in: the terminal is that of the shell, which is still there when the command has ended.
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", "sh", "-c", SHELL])
            .arg(dhow.get_program())
            .args(dhow.get_args());
        command
            .env_clear()
            .envs(dhow.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.env("TERM", "xterm-e2e").args(args);
        command
            .stdin(desk.try_clone().unwrap())
            .stdout(desk.try_clone().unwrap())
            .stderr(desk.try_clone().unwrap());
        let shell = command.spawn().unwrap();
        let keyboard = File::from(ours);
        let mut reading = keyboard.try_clone().unwrap();
        let (sender, screen) = mpsc::sync_channel(16);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reading.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            keyboard,
            _desk: desk,
            shell,
            screen,
            seen: String::new(),
        }
    }

    /// Looks at the screen until it shows this, and forgets what was before.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let more = self.screen.recv_timeout(PATIENCE);
            let more = more.unwrap_or_else(|_| panic!("no `{text}` in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Makes the window larger or smaller.
    pub fn resizes(&self, rows: u16, cols: u16) {
        tcsetwinsize(&self.keyboard, size(rows, cols)).unwrap();
    }

    /// Of the command.
    pub fn pid(&self) -> u32 {
        let shell = self.shell.id();
        until("the command runs", || {
            let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
            children.ok()?.split_whitespace().next()?.parse().ok()
        })
    }

    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.keyboard).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON)
    }

    /// Waits until it has ended, and looks whether the terminal is as it was before.
    #[track_caller]
    pub fn ends_with(mut self, code: i32) {
        self.sees("ended with ");
        assert_eq!(self.sees("."), format!("{code}."));
        assert!(!self.is_raw(), "the terminal is not as it was");
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
