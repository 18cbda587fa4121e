//! The program under fire.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// How much of the log a broken promise shows.
const LOG_TAIL: usize = 40;

pub(crate) struct Process {
    binary: PathBuf,
    dir: PathBuf,
    args: Vec<String>,
    child: Child,
}

impl Process {
    pub(crate) fn start(binary: &Path, dir: &Path) -> anyhow::Result<Self> {
        Self::start_with(binary, dir, Vec::new())
    }

    /// With more arguments, which later starts have too.
    pub(crate) fn start_with(binary: &Path, dir: &Path, args: Vec<String>) -> anyhow::Result<Self> {
        let child = spawn(binary, dir, &args)?;
        Ok(Self { binary: binary.to_owned(), dir: dir.to_owned(), args, child })
    }

    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.binary, &self.dir, &self.args)?;
        Ok(())
    }

    fn ready_file(&self) -> PathBuf {
        self.data_dir().join("sandbox.json")
    }

    /// The sandbox's own directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// A command of the program against the running service, and the JSON that it prints.
    pub(crate) fn command(&self, words: &[&str]) -> anyhow::Result<Value> {
        let output =
            Command::new(&self.binary).args(words).args(["--json", "--dir"]).arg(self.data_dir()).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dvp {}: {complaint}", words.join(" "));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The ready file of this start. A killed run's file was removed at the kill.
    pub(crate) async fn ready_within(&mut self, limit: Duration) -> anyhow::Result<Value> {
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(text) = std::fs::read(self.ready_file()) {
                return serde_json::from_slice(&text).context("the ready file");
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the service does not start: {status}\n{}", self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("the service is not ready after {limit:?}\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    pub(crate) fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log of all its runs.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Sends SIGKILL. The programs that it started keep running, as after a crash.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        while self.child.try_wait()?.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match std::fs::remove_file(self.ready_file()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// An interrupt, and an end within a minute.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("the service does not stop\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failed drill leaves no program behind: on an interrupt the program ends its own programs.
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = self.child.id().to_string();
            let _ = Command::new("kill").args(["-INT", &pid]).status();
            let deadline = Instant::now() + Duration::from_secs(20);
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn spawn(binary: &Path, dir: &Path, args: &[String]) -> anyhow::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
    Command::new(binary)
        .args([
            "sandbox",
            "--http",
            "127.0.0.1:0",
            "--fix",
            "127.0.0.1:0",
            "--console",
            "127.0.0.1:0",
            "--dir",
        ])
        .arg(dir.join("data"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| binary.display().to_string())
}
