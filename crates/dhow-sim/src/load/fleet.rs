//! All workers together, as the script sees them: several processes, because one may not have files for them all.

use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep};

use super::latencies::Quantiles;
use super::order::Order;
use super::proc_usage::ProcUsage;
use super::talk::{Answer, Ask, Look, Setup, Timing, ToldCounts, Views};

/// How often the script looks: what it measures is that much too long at most.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The word on the command line of a process that has workers.
pub const SQUAD: &str = "--squad";

/// One process, and the pipes to it. It is killed with this.
struct Squad {
    child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Squad {
    async fn start(program: &Path, setup: &Setup) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .arg(SQUAD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let to = child.stdin.take().context("it has no input")?;
        let from = child.stdout.take().context("it has no output")?;
        let mut squad = Self {
            child,
            to,
            from: BufReader::new(from).lines(),
        };
        squad.send(setup).await?;
        Ok(squad)
    }

    async fn send(&mut self, what: &impl serde::Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let sent = self.to.write_all(&line).await;
        sent.context("a process that has workers has ended")
    }

    async fn answer(&mut self) -> anyhow::Result<Answer> {
        let line = self.from.next_line().await?;
        let Some(line) = line else {
            bail!(
                "a process that has workers has ended: {:?}",
                self.child.try_wait()?
            );
        };
        match serde_json::from_str(&line)? {
            Answer::Failed(why) => bail!(why),
            answer @ (Answer::Done
            | Answer::Gave(_)
            | Answer::Look(_)
            | Answer::Samples(_)
            | Answer::Held(_)
            | Answer::Told(_)
            | Answer::Views(_)) => Ok(answer),
        }
    }
}

/// The workers of a run, for its bars.
pub struct Fleet {
    squads: Vec<Squad>,
}

impl Fleet {
    /// Makes so many processes, each with its part of the workers. Nobody sets out yet.
    pub async fn start(program: &Path, setup: Setup, processes: usize) -> anyhow::Result<Self> {
        let (count, processes) = (setup.places.len(), processes.max(1));
        let mut squads = Vec::new();
        for process in 0..processes {
            let at = |part: usize| setup.places.start + count * part / processes;
            let own = Setup {
                places: at(process)..at(process + 1),
                at_once: (setup.at_once / processes).max(1),
                ..setup.clone()
            };
            squads.push(Squad::start(program, &own).await?);
        }
        let mut fleet = Self { squads };
        // Whoever answers is there.
        fleet.look().await?;
        Ok(fleet)
    }

    /// All are asked before the first one answers.
    async fn ask(&mut self, ask: &Ask) -> anyhow::Result<Vec<Answer>> {
        for squad in &mut self.squads {
            squad.send(ask).await?;
        }
        let mut answers = Vec::new();
        for squad in &mut self.squads {
            answers.push(squad.answer().await?);
        }
        Ok(answers)
    }

    /// They begin to join.
    pub async fn go(&mut self) -> anyhow::Result<()> {
        self.ask(&Ask::Go).await.map(drop)
    }

    pub async fn look(&mut self) -> anyhow::Result<Look> {
        let mut sum = Look::default();
        for answer in self.ask(&Ask::Look).await? {
            let Answer::Look(look) = answer else {
                bail!("{answer:?} is no look");
            };
            sum = sum.and(*look);
        }
        Ok(sum)
    }

    pub async fn give(&mut self, places: Range<usize>, order: Order) -> anyhow::Result<()> {
        self.ask(&Ask::Give { places, order }).await.map(drop)
    }

    /// Tells so many of those whose session is with the server; gives their places.
    pub async fn give_at(&mut self, server: usize, count: usize, order: Order) -> anyhow::Result<Vec<usize>> {
        let mut places = Vec::new();
        let processes = self.squads.len();
        for (at, squad) in self.squads.iter_mut().enumerate() {
            // What one process has too few of the next ones take.
            let left = count - places.len();
            let count = left.div_ceil(processes - at);
            squad.send(&Ask::GiveAt { server, count, order }).await?;
            let Answer::Gave(told) = squad.answer().await? else {
                bail!("orders are answered with places");
            };
            places.extend(told);
        }
        ensure!(
            places.len() == count,
            "{} of {count} workers have a session with server {}",
            places.len(),
            server + 1
        );
        Ok(places)
    }

    /// What was timed since it was last taken.
    pub async fn take(&mut self, timing: Timing) -> anyhow::Result<Quantiles> {
        let mut all = Vec::new();
        for answer in self.ask(&Ask::Take(timing)).await? {
            let Answer::Samples(samples) = answer else {
                bail!("{answer:?} are no samples");
            };
            all.extend(samples);
        }
        Ok(Quantiles::of(all))
    }

    /// Has each worker change one of its replicas that often.
    pub async fn change_every(&mut self, every: Option<Duration>) -> anyhow::Result<()> {
        let every_ms = every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX));
        self.ask(&Ask::ChangeEvery(every_ms)).await.map(drop)
    }

    /// What was counted of what workers were told.
    pub async fn told(&mut self) -> anyhow::Result<ToldCounts> {
        let mut sum = ToldCounts::default();
        for answer in self.ask(&Ask::Told).await? {
            let Answer::Told(told) = answer else {
                bail!("{answer:?} is not what was told");
            };
            sum = sum.and(told);
        }
        Ok(sum)
    }

    /// What workers know of services.
    pub async fn views(&mut self) -> anyhow::Result<Views> {
        let mut all = Views::default();
        for answer in self.ask(&Ask::Views).await? {
            let Answer::Views(views) = answer else {
                bail!("{answer:?} are no views");
            };
            all = all.and(*views);
        }
        Ok(all)
    }

    /// The processor time of the processes that have the workers.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let pids = self.squads.iter().filter_map(|squad| squad.child.id());
        pids.map(|pid| Ok(ProcUsage::of(pid)?.cpu)).sum()
    }

    /// Replicas that run more than once on workers that count.
    pub async fn twice(&mut self) -> anyhow::Result<usize> {
        let mut all = Vec::new();
        for answer in self.ask(&Ask::Held).await? {
            let Answer::Held(held) = answer else {
                bail!("{answer:?} are no replicas");
            };
            all.extend(held);
        }
        all.sort_unstable();
        Ok(all.windows(2).filter(|pair| pair[0] == pair[1]).count())
    }

    /// Waits until it is so; tells how long that took, or nothing after this long.
    pub async fn until(
        &mut self,
        patience: Duration,
        is_so: impl Fn(&Look) -> bool,
    ) -> anyhow::Result<Option<Duration>> {
        let began = Instant::now();
        loop {
            if is_so(&self.look().await?) {
                return Ok(Some(began.elapsed()));
            }
            if began.elapsed() > patience {
                return Ok(None);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
