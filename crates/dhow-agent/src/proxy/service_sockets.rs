//! Sockets in the proxy's own network namespace, where service addresses are. One thread enters it while the process may,
//! and makes what is listened on there from then on; all other threads stay in the host's network.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::bind::new_socket;
use super::privileges;
use super::table::Transport;

/// Each is answered within microseconds; whoever asks waits for the answer before the next question.
const QUESTIONS_MAX: usize = 16;

/// A network namespace, known again by another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl std::fmt::Display for NamespaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.device, self.inode)
    }
}

impl NamespaceId {
    /// Of the namespace that is mounted at a file. Blocks.
    pub fn of(pin: &Path) -> io::Result<Self> {
        Self::of_file(&File::open(pin)?)
    }

    fn of_file(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

enum Question {
    /// The process has given its rights up; this thread follows.
    GiveUp(SyncSender<io::Result<()>>),
    Bind {
        addr: SocketAddr,
        transport: Transport,
        answer: oneshot::Sender<io::Result<OwnedFd>>,
    },
}

/// The thread in the proxy's namespace. The balancer asks it for sockets.
#[derive(Debug)]
pub struct ServiceSockets {
    questions: SyncSender<Question>,
    id: NamespaceId,
}

impl ServiceSockets {
    /// Starts the thread and waits until it is inside. The process must still be root.
    pub fn enter(pin: &Path) -> io::Result<Self> {
        let namespace = File::open(pin)?;
        let id = NamespaceId::of_file(&namespace)?;
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        let (entered, inside) = sync_channel(1);
        let thread = std::thread::Builder::new().name("dhow-services".into());
        thread.spawn(move || {
            let entering = setns(namespace, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let entering = entering.and_then(|()| privileges::expect_change());
            let is_inside = entering.is_ok();
            if entered.send(entering).is_ok() && is_inside {
                answer(&asked);
            }
        })?;
        inside.recv().map_err(|_| ended())??;
        Ok(Self { questions, id })
    }

    /// Has the thread give up what the process has given up.
    pub fn give_up(&self) -> io::Result<()> {
        let (sender, given_up) = sync_channel(1);
        self.questions
            .send(Question::GiveUp(sender))
            .map_err(|_| ended())?;
        given_up.recv().map_err(|_| ended())?
    }

    pub fn id(&self) -> NamespaceId {
        self.id
    }

    pub async fn bind(&self, addr: SocketAddr, transport: Transport) -> io::Result<OwnedFd> {
        let (answer, bound) = oneshot::channel();
        let question = Question::Bind {
            addr,
            transport,
            answer,
        };
        self.questions.try_send(question).map_err(|_| ended())?;
        bound.await.map_err(|_| ended())?
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread in the proxy's network namespace does not answer")
}

/// Until nobody can ask any more.
fn answer(questions: &Receiver<Question>) {
    while let Ok(question) = questions.recv() {
        match question {
            Question::GiveUp(sender) => {
                // Whoever asked and has gone needs no answer.
                let _ = sender.send(privileges::follow());
            }
            Question::Bind {
                addr,
                transport,
                answer,
            } => {
                let _ = answer.send(new_socket(addr, transport));
            }
        }
    }
}
