//! The processes of the service, and where each client connects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::ground::Ground;
use crate::crash::Ready;
use crate::dice::Dice;
use crate::drill::{tail, until};
use crate::scenes::served::{ServedProcess, read};

const LOG_TAIL: usize = 25;

struct Member {
    served: ServedProcess,
    /// What its clients know.
    ready: Option<Arc<Value>>,
    /// No new client is sent to it.
    is_avoided: bool,
}

struct Client {
    place: watch::Sender<Ready>,
    member: usize,
    /// Over FIX.
    is_session: bool,
}

pub(super) struct Fleet {
    pub(super) ground: Ground,
    members: Vec<Member>,
    clients: Vec<Client>,
    /// One of each start.
    logs: Vec<PathBuf>,
    /// The programs that are changed to in turn, the next release's first.
    pub(super) releases: Vec<PathBuf>,
    /// How often they were.
    pub(super) updates: usize,
}

impl Fleet {
    pub(super) async fn start(ground: Ground, processes: usize, limit: Duration) -> anyhow::Result<Self> {
        let mut fleet = Self {
            ground,
            members: Vec::new(),
            clients: Vec::new(),
            logs: Vec::new(),
            releases: Vec::new(),
            updates: 0,
        };
        for _ in 0..processes {
            let member = fleet.spawn();
            fleet.members.push(member);
        }
        for n in 0..processes {
            fleet.wait_until_ready(n, limit).await?;
        }
        Ok(fleet)
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    fn spawn(&mut self) -> Member {
        let log = format!("process-{}.log", self.logs.len() + 1);
        self.logs.push(self.ground.service.path(&log));
        let served = self.ground.serve(&log);
        Member { served, ready: None, is_avoided: false }
    }

    fn member(&mut self, n: usize) -> anyhow::Result<&mut Member> {
        self.members.get_mut(n).context("no such process")
    }

    /// A client that begins at this process; the receiver of where it connects.
    pub(super) fn add(&mut self, member: usize, is_session: bool) -> watch::Receiver<Ready> {
        let place = watch::Sender::new(self.members.get(member).and_then(|member| member.ready.clone()));
        let receiver = place.subscribe();
        self.clients.push(Client { place, member, is_session });
        receiver
    }

    pub(super) fn ready(&self, n: usize) -> anyhow::Result<Arc<Value>> {
        self.members.get(n).and_then(|member| member.ready.clone()).context("the process is not ready")
    }

    /// Sends a process's clients to others: those over REST, and those over FIX if `with_sessions`.
    pub(super) fn avoid(&mut self, n: usize, with_sessions: bool, dice: &mut Dice) -> anyhow::Result<()> {
        self.member(n)?.is_avoided = true;
        let leaves = |client: &&mut Client| client.member == n && (with_sessions || !client.is_session);
        let mut leaving = self.clients.iter_mut().filter(leaves);
        leaving.try_for_each(|client| client.send_to_any(&self.members, dice))
    }

    /// Every client chooses anew; one that is connected stays until it connects again.
    pub(super) fn shuffle(&mut self, dice: &mut Dice) -> anyhow::Result<()> {
        self.clients.iter_mut().try_for_each(|client| client.send_to_any(&self.members, dice))
    }

    pub(super) fn signal(&mut self, n: usize, signal: &str) -> anyhow::Result<()> {
        self.member(n)?.served.signal(signal);
        Ok(())
    }

    /// A process that has been killed, or that was requested to stop and must do so in order.
    pub(super) async fn ended(&mut self, n: usize, in_order: bool, limit: Duration) -> anyhow::Result<()> {
        let member = self.member(n)?;
        let status = until(limit, "a process stops", async || Ok(member.served.has_ended())).await?;
        ensure!(!in_order || status.success(), "a process that was to stop ended with {status}");
        Ok(())
    }

    pub(super) async fn start_again(&mut self, n: usize, limit: Duration) -> anyhow::Result<()> {
        let member = self.spawn();
        *self.member(n)? = member;
        self.wait_until_ready(n, limit).await
    }

    /// Starts the other release from now on. The next release migrates the database first, while the processes of the
    /// one before it run.
    pub(super) fn change_release(&mut self) {
        if let Some(program) = self.releases.get(self.updates % self.releases.len().max(1)) {
            self.ground.service.run(program.clone());
            if self.updates.is_multiple_of(2) {
                self.ground.service.said(&["migrate"]);
            }
            self.updates += 1;
        }
    }

    pub(super) fn use_again(&mut self, n: usize) -> anyhow::Result<()> {
        self.member(n)?.is_avoided = false;
        Ok(())
    }

    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            if let Some(status) = member.served.has_ended() {
                bail!("a process ended by itself: {status}");
            }
        }
        Ok(())
    }

    async fn wait_until_ready(&mut self, n: usize, limit: Duration) -> anyhow::Result<()> {
        let mut ready = self.ground.known.clone();
        let member = self.member(n)?;
        let served = &mut member.served;
        let started = until(limit, "a process is ready", async || {
            if let Some(status) = served.has_ended() {
                bail!("a process does not start: {status}\n{}", served.log());
            }
            Ok(served.address(" http=Some(").zip(served.address(" fix=Some(")))
        });
        let (http, fix) = started.await?;
        ready["http"] = json!(format!("http://{http}"));
        ready["fix"]["port"] = json!(fix.port());
        member.ready = Some(Arc::new(ready));
        Ok(())
    }

    pub(super) fn log_ends(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.served.log().len()).collect()
    }

    /// The first process that logs a line with `text` after these lengths, and the line.
    pub(super) async fn first_to_log(
        &self,
        text: &str,
        ends: &[usize],
        limit: Duration,
    ) -> anyhow::Result<(usize, String)> {
        until(limit, "a process logs the line", async || {
            for (n, (member, end)) in self.members.iter().zip(ends).enumerate() {
                let log = member.served.log();
                let new = log.get(*end..).unwrap_or_default();
                // The last line may be half written.
                let whole = new.rsplit_once('\n').map_or("", |(whole, _)| whole);
                if let Some(line) = whole.lines().find(|line| line.contains(text)) {
                    return Ok(Some((n, line.to_owned())));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Lines of all logs so far that contain `text`.
    pub(super) fn logged(&self, text: &str) -> usize {
        let logs = self.logs.iter().map(|log| read(log));
        logs.map(|log| log.lines().filter(|line| line.contains(text)).count()).sum()
    }

    /// Requests that processes refused with 503 after they were requested to stop.
    pub(super) fn refused_while_stopping(&self) -> usize {
        let count = |log: &PathBuf| {
            let log = read(log);
            let stopping = log.lines().skip_while(|line| !line.contains("dvp::serve: stopping"));
            stopping.filter(|line| line.contains("status=503")).count()
        };
        self.logs.iter().map(count).sum()
    }

    pub(super) fn log_tails(&self) -> String {
        let tails = self.logs.iter().map(|log| tail(&read(log), LOG_TAIL));
        tails.collect::<Vec<_>>().join("\n---\n")
    }
}

impl Client {
    fn send_to_any(&mut self, members: &[Member], dice: &mut Dice) -> anyhow::Result<()> {
        let usable: Vec<usize> =
            (0..members.len()).filter(|n| members.get(*n).is_some_and(|member| !member.is_avoided)).collect();
        self.member = *usable.get(dice.index(usable.len())).context("no process is left")?;
        self.place.send_replace(members.get(self.member).and_then(|member| member.ready.clone()));
        Ok(())
    }
}
