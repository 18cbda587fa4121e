//! A sandbox process in a directory of its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use dvp_testing::harness::Selected;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection, SqlSafeStr};

use super::wait::answer;
use crate::crash::process::Process;
use crate::drill::{Program, tail};

pub struct Sandbox {
    process: Process,
    ready: Value,
    _dir: tempfile::TempDir,
}

impl AsRef<Value> for Sandbox {
    fn as_ref(&self) -> &Value {
        &self.ready
    }
}

const READY_WITHIN: Duration = Duration::from_secs(240);
/// Of the log, when a test fails.
pub(super) const LOG_LINES: usize = 200;

impl Sandbox {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With more arguments, which later starts have too.
    pub async fn start_with(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut process = Process::start_with(&program(), dir.path(), args).unwrap();
        let ready = process.ready_within(READY_WITHIN).await.unwrap();
        Self { process, ready, _dir: dir }
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// A command of the program against it, and the JSON that it prints.
    pub fn command(&self, words: &[&str]) -> anyhow::Result<Value> {
        self.process.command(words)
    }

    pub fn ready_file(&self) -> PathBuf {
        self.process.ready_file()
    }

    pub fn value(&self, pointer: &str) -> &Value {
        self.ready.pointer(pointer).unwrap()
    }

    pub fn text(&self, pointer: &str) -> String {
        self.value(pointer).as_str().unwrap().to_owned()
    }

    pub fn dir(&self) -> PathBuf {
        self.process.data_dir()
    }

    /// Waits until a line of the figures reads so.
    pub async fn wait_for_metric(&self, line: &str) {
        let figures = async || {
            let figures = reqwest::get(self.text("/metrics")).await.unwrap().text().await.unwrap();
            (line, figures)
        };
        answer(figures, |(line, figures)| figures.lines().any(|one| one == *line)).await;
    }

    /// The first column of the first row.
    pub async fn one<T>(&self, statement: &'static str) -> T
    where
        (T,): Selected,
    {
        sqlx::query_as::<_, (T,)>(statement).fetch_one(&mut self.database().await).await.unwrap().0
    }

    /// The first column of the first row about `$1`.
    pub async fn one_of<T>(&self, statement: impl SqlSafeStr, of: &str) -> T
    where
        (T,): Selected,
    {
        sqlx::query_as::<_, (T,)>(statement).bind(of).fetch_one(&mut self.database().await).await.unwrap().0
    }

    pub async fn rows<R: Selected>(&self, statement: &'static str) -> Vec<R> {
        sqlx::query_as(statement).fetch_all(&mut self.database().await).await.unwrap()
    }

    /// Changes the one row about `$1`.
    pub async fn change(&self, statement: impl SqlSafeStr, of: &str) {
        let done = sqlx::query(statement).bind(of).execute(&mut self.database().await).await.unwrap();
        assert_eq!(done.rows_affected(), 1, "of {of}");
    }

    pub async fn database(&self) -> PgConnection {
        PgConnection::connect(&self.text("/databaseUrl")).await.unwrap()
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// SIGKILL, then a start in the same directory.
    pub async fn kill_and_start_again(&mut self) {
        self.kill().await;
        self.start_again().await;
    }

    pub async fn start_again(&mut self) {
        self.process.start_again().unwrap();
        self.ready = self.process.ready_within(READY_WITHIN).await.unwrap();
    }

    /// Ctrl-C, and waits until the process has ended well.
    pub async fn interrupt(&mut self) {
        self.process.stop().await.unwrap();
    }

    pub async fn stop(mut self) {
        self.interrupt().await;
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // All of it would hide what failed.
            let _ = writeln!(std::io::stderr(), "{}", tail(&self.log(), LOG_LINES));
        }
    }
}

pub fn program() -> PathBuf {
    Program::default().path().unwrap()
}

/// A command beside a running sandbox, as an operator types it.
pub fn ran(sandbox: &Sandbox, words: &[&str]) -> Output {
    sandbox.process.run(words).unwrap()
}

/// The same with `--json`.
pub fn dvp(sandbox: &Sandbox, words: &[&str]) -> Output {
    ran(sandbox, &[words, &["--json"]].concat())
}

/// The output of a command that must succeed.
pub fn said(sandbox: &Sandbox, words: &[&str]) -> Value {
    sandbox.process.command(words).unwrap()
}

/// The complaint of a command that must fail.
pub fn refused(sandbox: &Sandbox, words: &[&str]) -> String {
    let output = dvp(sandbox, words);
    assert!(!output.status.success(), "{words:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// Another operator approves a request.
pub fn approve(sandbox: &Sandbox, id: &Value) {
    let words = ["approval", "approve", "--id", id.as_str().unwrap(), "--as", "kim"];
    assert_eq!(said(sandbox, &words)["state"], "approved", "{id}");
}
