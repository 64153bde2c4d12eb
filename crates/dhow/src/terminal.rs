//! The terminal that this process was started at, while a command elsewhere has it: raw, and put back however that ends.
//!
//! Used by `dhow exec -t`. Keys go to the command as they are, Ctrl-C too: the terminal at the command's side makes a signal
//! of it.

use std::io;

use dhow_wire::api::{Terminal, TerminalSize, is_term};
use nix::sys::signal::{self, Signal as Number};
use nix::unistd::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal as listen};

/// The kind of terminal where the environment names none that can be handed over.
const TERM: &str = "xterm";

/// What stdin is a terminal of.
pub fn of_stdin() -> Terminal {
    let term = std::env::var("TERM").ok().filter(|term| is_term(term));
    Terminal {
        term: term.unwrap_or_else(|| TERM.to_owned()),
        size: size(),
    }
}

/// How large it is now. One that does not know has the size of the first ones.
pub fn size() -> TerminalSize {
    let known = tcgetwinsize(io::stdin()).ok();
    let known = known.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or_else(TerminalSize::default, |size| TerminalSize {
        rows: size.ws_row,
        cols: size.ws_col,
    })
}

/// A terminal that hands on every key. It is as it was before once this is dropped, also by a panic.
pub struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    pub fn enter() -> io::Result<Self> {
        let raw = Self {
            before: tcgetattr(io::stdin())?,
        };
        raw.again()?;
        Ok(raw)
    }

    /// Makes it raw, at first or after somebody else had it.
    fn again(&self) -> io::Result<()> {
        let mut attributes = self.before.clone();
        attributes.make_raw();
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &attributes)?)
    }

    fn put_back(&self) {
        // A terminal that has gone has nothing to put back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }

    /// Stops this process as whoever sent the signal wants, with the terminal as it was.
    pub fn stop(&self) {
        self.put_back();
        // It goes on by a signal, which is heard of.
        let _ = signal::kill(Pid::this(), Number::SIGSTOP);
    }

    /// After a stop.
    pub fn go_on(&self) {
        // Where that fails, its user sees it.
        let _ = self.again();
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// What somebody told this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Resized,
    Stop,
    GoOn,
    /// To end, by this signal.
    End(i32),
}

/// The signals that a process at a raw terminal must hear, so that it can put the terminal back.
pub struct Signals {
    resized: Signal,
    stop: Signal,
    go_on: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let kind = |number: Number| listen(SignalKind::from_raw(number as i32));
        Ok(Self {
            resized: kind(Number::SIGWINCH)?,
            stop: kind(Number::SIGTSTP)?,
            go_on: kind(Number::SIGCONT)?,
            interrupt: kind(Number::SIGINT)?,
            quit: kind(Number::SIGQUIT)?,
            terminate: kind(Number::SIGTERM)?,
            hang_up: kind(Number::SIGHUP)?,
        })
    }

    /// The next one. May be dropped while it waits.
    pub async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.resized.recv() => Heard::Resized,
            _ = self.stop.recv() => Heard::Stop,
            _ = self.go_on.recv() => Heard::GoOn,
            _ = self.interrupt.recv() => Heard::End(Number::SIGINT as i32),
            _ = self.quit.recv() => Heard::End(Number::SIGQUIT as i32),
            _ = self.terminate.recv() => Heard::End(Number::SIGTERM as i32),
            _ = self.hang_up.recv() => Heard::End(Number::SIGHUP as i32),
        }
    }
}
