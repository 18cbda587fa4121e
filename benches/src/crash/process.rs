//! The program under fire.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_sandbox::embedded::signals::signal;
use serde_json::Value;

use crate::drill::{tail, until, with_log};

const LOG_TAIL: usize = 40;
const STOP_WITHIN: Duration = Duration::from_secs(120);

pub(crate) fn text<'a>(ready: &'a Value, pointer: &str) -> anyhow::Result<&'a str> {
    ready.pointer(pointer).and_then(Value::as_str).with_context(|| format!("{pointer} of the ready file"))
}

pub(crate) struct Process {
    binary: PathBuf,
    dir: PathBuf,
    args: Vec<String>,
    child: Child,
}

impl Process {
    /// With arguments beside the usual ones, which later starts have too.
    pub(crate) fn start_with(binary: &Path, dir: &Path, args: Vec<String>) -> anyhow::Result<Self> {
        let child = spawn(binary, dir, &args)?;
        Ok(Self { binary: binary.to_owned(), dir: dir.to_owned(), args, child })
    }

    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.binary, &self.dir, &self.args)?;
        Ok(())
    }

    pub(crate) fn ready_file(&self) -> PathBuf {
        self.data_dir().join("sandbox.json")
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// A command of the program against the running service, and the JSON that it prints.
    pub(crate) fn command(&self, words: &[&str]) -> anyhow::Result<Value> {
        self.outcome(words, &[0])
    }

    /// The same with a list whose exit code says whether it has findings.
    pub(crate) fn findings(&self, words: &[&str]) -> anyhow::Result<Value> {
        self.outcome(words, &[0, 1])
    }

    fn outcome(&self, words: &[&str], codes: &[i32]) -> anyhow::Result<Value> {
        let output = self.run(&[words, &["--json"]].concat())?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        let is_expected = output.status.code().is_some_and(|code| codes.contains(&code));
        ensure!(is_expected, "dvp {}: {complaint}", words.join(" "));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    pub(crate) fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--dir").arg(self.data_dir()).stdin(Stdio::null());
        Ok(command.output()?)
    }

    /// The ready file of this start. A killed run's file was removed at the kill.
    pub(crate) async fn ready_within(&mut self, limit: Duration) -> anyhow::Result<Value> {
        let ready = until(limit, "the service is ready", async || {
            if let Ok(text) = std::fs::read(self.ready_file()) {
                return Ok(Some(serde_json::from_slice(&text).context("the ready file")?));
            }
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "the service does not start: {ended:?}");
            Ok(None)
        });
        with_log(ready.await, || self.log_tail())
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

    /// An interrupt, and an end in order within two minutes.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        signal("-INT", &[self.pid().to_string()])?;
        let status = until(STOP_WITHIN, "the service stops", async || Ok(self.child.try_wait()?)).await;
        let status = with_log(status, || self.log_tail())?;
        ensure!(status.success(), "the service ended with {status}\n{}", self.log_tail());
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log(), LOG_TAIL)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failed drill leaves no program behind: on an interrupt the program ends its own programs.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = signal("-INT", &[self.pid().to_string()]);
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
    let listeners = ["--http", "--fix", "--fix-tls", "--console", "--metrics"];
    let unnamed = listeners.into_iter().filter(|listener| !args.iter().any(|arg| arg == listener));
    Command::new(binary)
        .arg("sandbox")
        .args(unnamed.flat_map(|listener| [listener, "127.0.0.1:0"]))
        .arg("--dir")
        .arg(dir.join("data"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| binary.display().to_string())
}
