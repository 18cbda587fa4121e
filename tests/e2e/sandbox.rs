//! A sandbox process in a directory of its own.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{Connection, PgConnection};

pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    args: Vec<String>,
    child: Child,
    ready: Value,
}

impl AsRef<Value> for Sandbox {
    fn as_ref(&self) -> &Value {
        &self.ready
    }
}

const READY_WITHIN: Duration = Duration::from_secs(240);

impl Sandbox {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With more arguments, which later starts have too.
    pub(crate) async fn start_with(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = spawn(&dir, &args);
        let mut sandbox = Self { dir, args, child, ready: Value::Null };
        sandbox.wait_until_ready().await;
        sandbox
    }

    async fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Ok(text) = std::fs::read(self.ready_file()) {
                self.ready = serde_json::from_slice(&text).unwrap();
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the sandbox ended before it was ready: {status}\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "the sandbox is not ready\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn ready_file(&self) -> PathBuf {
        self.dir.path().join("data/sandbox.json")
    }

    /// A field of the ready file, by JSON pointer.
    pub(crate) fn value(&self, pointer: &str) -> &Value {
        self.ready.pointer(pointer).unwrap()
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        self.value(pointer).as_str().unwrap().to_owned()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Waits until a line of the figures reads so.
    pub(crate) async fn wait_for_metric(&self, line: &str) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let figures = reqwest::get(self.text("/metrics")).await.unwrap().text().await.unwrap();
            if figures.lines().any(|one| one == line) {
                return;
            }
            assert!(Instant::now() < deadline, "no {line} in\n{figures}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn database(&self) -> PgConnection {
        PgConnection::connect(&self.text("/databaseUrl")).await.unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGKILL, then a start in the same directory.
    pub(crate) async fn kill_and_start_again(&mut self) {
        self.kill();
        // Files of the killed run do not describe the next one.
        std::fs::remove_file(self.ready_file()).unwrap();
        self.start_again().await;
    }

    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(&self.dir, &self.args);
        self.wait_until_ready().await;
    }

    /// Ctrl-C, and waits until the process has ended well.
    pub(crate) async fn interrupt(&mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}\n{}", self.log());
                return;
            }
            assert!(Instant::now() < deadline, "the sandbox does not stop\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn stop(mut self) {
        self.interrupt().await;
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}", self.log());
        }
    }
}

/// The binary under test; for a drill, the one beside it.
pub(crate) fn program() -> PathBuf {
    option_env!("CARGO_BIN_EXE_dvp")
        .map_or_else(|| std::env::current_exe().unwrap().with_file_name("dvp"), PathBuf::from)
}

fn spawn(dir: &tempfile::TempDir, args: &[String]) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.path().join("log")).unwrap();
    let listeners = ["--http", "--fix", "--fix-tls", "--console", "--metrics"];
    let unnamed = listeners.into_iter().filter(|listener| !args.iter().any(|arg| arg == listener));
    Command::new(program())
        .arg("sandbox")
        .args(unnamed.flat_map(|listener| [listener, "127.0.0.1:0"]))
        .arg("--dir")
        .arg(dir.path().join("data"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
