//! One machine: a member of etcd, Patroni, the PostgreSQL server that Patroni runs, and a watchdog.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_sandbox::embedded::black_hole::BlackHole;
use dvp_sandbox::embedded::child::{Launch, StopSignal, Supervised};
use dvp_sandbox::embedded::signals::{is_any_alive, processes, signal};

use super::settings::{Ports, Settings, Ways};
use super::tools::Ground;
use crate::drill::tail;

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time limit for killed processes to end.
const END: Duration = Duration::from_secs(30);

pub(super) struct Machine {
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) ports: Ports,
    pub(super) clients: BlackHole,
    peers: BlackHole,
    rest: BlackHole,
    /// Its own ways to all members of etcd.
    etcd_ways: Vec<BlackHole>,
    watchdog: Watchdog,
    etcd: Option<Supervised>,
    patroni: Option<Supervised>,
    is_frozen: bool,
}

async fn way(port: u16) -> anyhow::Result<BlackHole> {
    Ok(BlackHole::on_the_way_to(format!("127.0.0.1:{port}")).await?)
}

impl Machine {
    /// Writes its files. Nothing runs yet.
    pub(super) async fn prepare(
        ground: &Ground,
        root: PathBuf,
        number: usize,
        all: &[Ports],
    ) -> anyhow::Result<Self> {
        let (name, ports) = (format!("db{}", number + 1), all.get(number).context("ports")?.clone());
        ground.make_dir(&root)?;
        for dir in ["etcd", "s", "spool", "lock", "log"] {
            ground.make_dir(&root.join(dir))?;
        }
        let device = root.join("watchdog");
        ensure!(Command::new("mkfifo").arg(&device).status()?.success(), "mkfifo {}", device.display());
        ground.give(&device)?;
        let mut etcd_ways = Vec::new();
        for one in all {
            etcd_ways.push(way(one.etcd_clients).await?);
        }
        let (clients, peers) = (way(ports.postgres).await?, way(ports.postgres).await?);
        let rest = way(ports.rest).await?;
        let ways = Ways {
            rest: rest.addr().port(),
            postgres: peers.addr().port(),
            etcd: etcd_ways.iter().map(|way| way.addr().port()).collect(),
        };
        let settings = Settings { name: &name, root: &root, ground, ports: &ports, ways: &ways, all };
        for (file, text) in [
            ("etcd.yml", settings.etcd()?),
            ("patroni.yml", settings.patroni()?),
            ("pgbackrest.conf", settings.pgbackrest()?),
        ] {
            let path = root.join(file);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            ground.give(&path)?;
        }
        let watchdog = Watchdog::on(&device)?;
        let (etcd, patroni, is_frozen) = (None, None, false);
        Ok(Self { name, root, ports, clients, peers, rest, etcd_ways, watchdog, etcd, patroni, is_frozen })
    }

    pub(super) fn environment(&self, ground: &Ground) -> Vec<(OsString, OsString)> {
        vec![
            ("HOME".into(), self.root.clone().into()),
            ("LC_ALL".into(), "C".into()),
            ("PGBACKREST_CONFIG".into(), self.root.join("pgbackrest.conf").into()),
            ("PGBACKREST_REPO1_CIPHER_PASS".into(), ground.cipher.clone().into()),
            // Patroni would ask etcd for its members' addresses, and go past the ways to them.
            ("PATRONI_ETCD3_USE_PROXIES".into(), "true".into()),
        ]
    }

    /// Its power is switched on.
    pub(super) fn start(&mut self, ground: &Ground) -> anyhow::Result<()> {
        self.start_etcd(ground)?;
        self.start_patroni(ground)
    }

    fn start_etcd(&mut self, ground: &Ground) -> anyhow::Result<()> {
        let mut etcd = self.launch(&ground.tools.etcd, "etcd.out", ground);
        etcd.args = vec!["--config-file".into(), self.root.join("etcd.yml").into()];
        self.etcd = Some(etcd.spawn()?);
        Ok(())
    }

    fn start_patroni(&mut self, ground: &Ground) -> anyhow::Result<()> {
        let mut patroni = self.launch(&ground.tools.patroni, "patroni.out", ground);
        patroni.args = vec![self.root.join("patroni.yml").into()];
        self.patroni = Some(patroni.spawn()?);
        Ok(())
    }

    fn launch(&self, program: &Path, log: &str, ground: &Ground) -> Launch {
        let mut launch = Launch::new(program, &self.root.join(log));
        launch.run_as = ground.tools.run_as.clone();
        launch.env = self.environment(ground);
        launch.stop_signal = StopSignal::Interrupt;
        launch
    }

    pub(super) const fn is_on(&self) -> bool {
        self.patroni.is_some()
    }

    pub(super) const fn works(&self) -> bool {
        self.patroni.is_some() && !self.is_frozen
    }

    /// Its power is lost.
    pub(super) fn power_off(&mut self) -> anyhow::Result<()> {
        // Patroni first, so that it starts nothing again.
        let groups = self.groups();
        signal("-STOP", &groups)?;
        self.kill_postgres()?;
        signal("-KILL", &groups)?;
        for mut program in [self.patroni.take(), self.etcd.take()].into_iter().flatten() {
            program.wait(END);
        }
        self.watchdog.switch_off();
        self.is_frozen = false;
        Ok(())
    }

    pub(super) fn kill_postgres(&self) -> anyhow::Result<()> {
        let pids = self.postgres()?;
        signal("-KILL", &pids)?;
        let until = Instant::now() + END;
        while !pids.is_empty() && is_any_alive(&pids)? && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn freeze(&mut self) -> anyhow::Result<()> {
        signal("-STOP", &self.groups())?;
        signal("-STOP", &self.postgres()?)?;
        self.is_frozen = true;
        Ok(())
    }

    pub(super) fn thaw(&mut self) -> anyhow::Result<()> {
        self.watchdog.go_on();
        self.is_frozen = false;
        signal("-CONT", &self.postgres()?)?;
        signal("-CONT", &self.groups())?;
        Ok(())
    }

    pub(super) fn hang_patroni(&self) -> anyhow::Result<()> {
        let patroni = self.patroni.as_ref().map(|patroni| format!("-{}", patroni.pid()));
        Ok(signal("-STOP", patroni.as_slice())?)
    }

    /// The machine is reset when its watchdog had no keepalive for too long. A program that ends is started again, as a
    /// service manager does: Patroni ends when it finds no etcd, or one whose members have not agreed on their version.
    pub(super) fn look_after(&mut self, ground: &Ground) -> anyhow::Result<()> {
        if self.works() && self.watchdog.has_fired() {
            self.power_off()?;
        }
        if !self.works() {
            return Ok(());
        }
        let has_ended = |program: &mut Option<Supervised>| {
            program.as_mut().is_some_and(|program| program.exit_status().is_some())
        };
        if has_ended(&mut self.etcd) {
            self.start_etcd(ground)?;
        }
        if has_ended(&mut self.patroni) {
            self.start_patroni(ground)?;
        }
        Ok(())
    }

    pub(super) fn cut_etcd(&self) {
        self.etcd_ways.iter().for_each(BlackHole::swallow);
    }

    pub(super) fn cut_rest(&self) {
        self.rest.swallow();
    }

    pub(super) fn cut_database(&self) {
        self.peers.swallow();
        self.clients.swallow();
    }

    pub(super) fn heal(&self) {
        let ways = [&self.clients, &self.peers, &self.rest];
        ways.into_iter().chain(&self.etcd_ways).for_each(BlackHole::forward);
    }

    fn groups(&self) -> Vec<String> {
        [&self.patroni, &self.etcd].into_iter().flatten().map(|one| format!("-{}", one.pid())).collect()
    }

    fn postgres(&self) -> anyhow::Result<Vec<String>> {
        let file = fs::read_to_string(self.root.join("data/postmaster.pid")).unwrap_or_default();
        let Some(pid) = file.lines().next().and_then(|line| line.parse().ok()) else { return Ok(Vec::new()) };
        // The number in the file of a killed server may be another process by now.
        let args = Command::new("ps").args(["-o", "args=", "-p", &format!("{pid}")]).output()?;
        let is_ours = String::from_utf8_lossy(&args.stdout).contains(&*self.root.to_string_lossy());
        if is_ours { Ok(processes(pid)?) } else { Ok(Vec::new()) }
    }

    pub(super) fn log_tail(&self, lines: usize) -> String {
        tail(&fs::read_to_string(self.root.join("patroni.out")).unwrap_or_default(), lines)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.power_off();
    }
}

/// What ends the reader; Patroni never writes it.
const END_OF_PIPE: u8 = b'X';

/// A machine's watchdog: a pipe in place of the device, written as Patroni's driver for tests writes it.
///
/// `Ctimeout=15\n` sets the time limit, `1` is a keepalive, `V` switches it off.
struct Watchdog {
    state: Arc<Mutex<State>>,
    pipe: fs::File,
}

#[derive(Default)]
struct State {
    /// Switched on, with the time of the last keepalive.
    last: Option<Instant>,
    timeout: Option<Duration>,
}

impl Watchdog {
    fn on(path: &Path) -> anyhow::Result<Self> {
        // Open for writing too, so that the pipe never ends.
        let pipe = fs::OpenOptions::new().read(true).write(true).open(path);
        let pipe = pipe.with_context(|| path.display().to_string())?;
        let state = Arc::new(Mutex::new(State::default()));
        let (mut reader, shared) = (pipe.try_clone()?, Arc::clone(&state));
        std::thread::spawn(move || {
            let (mut buffer, mut setting) = ([0; 64], None::<String>);
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                for byte in buffer.get(..read).unwrap_or_default() {
                    if *byte == END_OF_PIPE {
                        return;
                    }
                    State::take(
                        &mut shared.lock().unwrap_or_else(PoisonError::into_inner),
                        *byte,
                        &mut setting,
                    );
                }
            }
        });
        Ok(Self { state, pipe })
    }

    /// No keepalive has come for longer than its time limit.
    fn has_fired(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.zip(state.timeout).is_some_and(|(last, timeout)| last.elapsed() > timeout)
    }

    fn switch_off(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).last = None;
    }

    /// The machine stood still, and its watchdog with it.
    fn go_on(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = state.last.map(|_| Instant::now());
    }
}

impl State {
    /// `setting`: what has been read of a line that sets something.
    fn take(&mut self, byte: u8, setting: &mut Option<String>) {
        match (byte, setting.as_mut()) {
            (b'\n', Some(line)) => {
                let seconds = line.strip_prefix("timeout=").and_then(|seconds| seconds.parse().ok());
                self.timeout = seconds.map(Duration::from_secs);
                *setting = None;
            }
            (byte, Some(line)) => line.push(char::from(byte)),
            (b'C', None) => *setting = Some(String::new()),
            (b'V', None) => self.last = None,
            _ => self.last = Some(Instant::now()),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.pipe.write_all(&[END_OF_PIPE]);
    }
}
