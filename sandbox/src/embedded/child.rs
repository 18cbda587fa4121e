//! A program that cannot outlive us.
//!
//! ```text
//! us ──stdin──> /bin/sh ──exec──> the program        (same process id, its own process group)
//!                  └──────fork──> the watcher         reads the pipe, holds our other pipe open
//! ```
//!
//! The write end of the pipe exists only in our process, so the kernel closes it when we end, however we end. The
//! watcher then signals the program, kills it after a grace, and removes its temporary files. To stop the
//! program ourselves we close the pipe: there is one way to stop it, and every run uses it.
//!
//! - The program replaces the shell, so its process id and exit status are those of [`std::process::Child`]. (A
//!   program put into the background of a shell would also start with SIGINT ignored.)
//! - The watcher is forked twice: it must not be a child of the program, which may wait for any child (postgres).
//! - The program has neither end of our pipes: a grandchild of its cannot hold us up.
//! - When we are dead another process has to collect the program, and not every first process of a container does: a
//!   zombie counts as ended.
//! - Once the program has ended by itself the watcher is notified, and sends no signal: the process id may belong to
//!   another process by then.
//! - The own process group keeps a terminal's Ctrl-C away from the program: we decide when it stops.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::EmbeddedError;
use super::account::Account;

/// `$1` signal, `$2` grace in tenths of a second, `$3` seconds to let the program settle before the signal, `$4` what
/// to remove or nothing, then the program.
const WATCHED: &str = r#"
signal=$1 ticks=$2 settle=$3 remove=$4
shift 4
program=$$
alive() {
    kill -0 "$program" || return 1
    [ -r "/proc/$program/stat" ] || return 0
    read -r stat <"/proc/$program/stat" || return 1
    case $stat in *') Z '*) return 1 ;; esac
}
exec 3<&0 </dev/null
( (
    word=
    read -r word <&3
    if [ "$word" != ended ]; then
        [ "$settle" = 0 ] || sleep "$settle"
        kill -"$signal" "$program"
        while alive && [ "$ticks" -gt 0 ]; do
            sleep 0.1
            ticks=$((ticks - 1))
        done
        if alive; then kill -KILL "$program"; fi
    fi 2>/dev/null
    [ -z "$remove" ] || rm -rf -- "$remove" || { sleep 1; rm -rf -- "$remove"; }
) & )
exec "$@" 3<&- >&2
"#;

/// How often a waiting thread looks again. `waitpid` with a deadline does not exist without `unsafe`.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// On top of the grace: until the watcher has seen the death and has tidied up.
const TIDY_UP: Duration = Duration::from_secs(5);

/// Which signal asks the program to end in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT: postgres disconnects its clients and writes a checkpoint, anvil writes its state.
    Interrupt,
    /// SIGQUIT: postgres drops everything at once and would recover at the next start.
    Quit,
}

impl StopSignal {
    const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "INT",
            Self::Quit => "QUIT",
        }
    }
}

/// A program to start, and its stop settings.
#[derive(Debug)]
pub struct Launch {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Its whole environment beside `PATH`; ours is not passed on (a stray `PGDATA` would be obeyed).
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs. Must be open to `run_as`.
    pub current_dir: PathBuf,
    /// The file that its output is appended to.
    pub log: PathBuf,
    /// The account that runs it; `None` is our own.
    pub run_as: Option<Account>,
    pub stop_signal: StopSignal,
    /// The time that our last request to it may take; only then is it signalled to end. In milliseconds.
    pub settle: Duration,
    /// How long it may take to end in good order; after that it is killed.
    pub grace: Duration,
    /// A directory that exists only for this program and goes when it has ended. Its owner must be `run_as`.
    pub remove_after: Option<PathBuf>,
}

impl Launch {
    /// A program that stops on SIGINT within 10 seconds and runs as ourselves, in `/`.
    pub fn new(program: &Path, log: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            current_dir: PathBuf::from("/"),
            log: log.to_owned(),
            run_as: None,
            stop_signal: StopSignal::Interrupt,
            settle: Duration::ZERO,
            grace: Duration::from_secs(10),
            remove_after: None,
        }
    }

    /// Starts the program and its watcher.
    ///
    /// # Errors
    /// When the log cannot be opened or no process can be made. A program that cannot be executed shows as an early
    /// exit with the shell's message in the log.
    pub fn spawn(self) -> Result<Supervised, EmbeddedError> {
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(EmbeddedError::file("open", &self.log))?;
        let log_start = log.seek(SeekFrom::End(0)).map_err(EmbeddedError::file("read", &self.log))?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", WATCHED, "dvp-watch", self.stop_signal.name()])
            .arg((self.grace.as_millis() / 100).to_string())
            .arg(seconds(self.settle))
            .arg(self.remove_after.unwrap_or_default())
            .arg(&self.program)
            .args(&self.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .envs(self.env)
            .current_dir(&self.current_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0);
        if let Some(account) = &self.run_as {
            account.drop_to(&mut command);
        }
        let mut child =
            command.spawn().map_err(|source| EmbeddedError::Run { program: self.program.clone(), source })?;
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        Ok(Supervised {
            name: name.to_string_lossy().into_owned(),
            pipe: child.stdin.take(),
            watcher: child.stdout.take(),
            child,
            grace: self.settle + self.grace,
            log: self.log,
            log_start,
        })
    }
}

/// For `sleep`.
fn seconds(time: Duration) -> String {
    if time.is_zero() { "0".to_owned() } else { format!("{}.{:03}", time.as_secs(), time.subsec_millis()) }
}

/// A running program and our hold on its life. Dropping it stops the program and waits for it.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    child: Child,
    /// Closing it is the order to stop.
    pipe: Option<ChildStdin>,
    /// Ends when the watcher has ended.
    watcher: Option<ChildStdout>,
    grace: Duration,
    log: PathBuf,
    log_start: u64,
}

impl Supervised {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the program ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        if let Some(mut pipe) = self.pipe.take() {
            // A watcher that is gone already needs no telling.
            let _ = pipe.write_all(b"ended\n");
        }
        Some(status)
    }

    /// Waits until the program ends by itself; `None` when it still runs at the deadline.
    pub fn wait(&mut self, deadline: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + deadline;
        loop {
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the program has ended well.
    pub(super) fn complete(&mut self, deadline: Duration) -> Result<(), EmbeddedError> {
        match self.wait(deadline) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.exited_error(status)),
            None => Err(self.not_ready_error(deadline)),
        }
    }

    /// Stops the program and waits until it and its watcher are gone. Harmless when it has ended already.
    ///
    /// # Errors
    /// [`EmbeddedError::WontStop`] when not even SIGKILL helped (a process stuck in the kernel).
    pub fn stop_blocking(&mut self) -> Result<(), EmbeddedError> {
        // The order to stop, unless the program has ended and the watcher knows.
        if self.exit_status().is_none() {
            self.pipe = None;
        }
        if self.wait(self.grace + TIDY_UP).is_none() {
            // Only when the watcher was killed.
            let _ = self.child.kill();
            if self.wait(TIDY_UP).is_none() {
                return Err(EmbeddedError::WontStop {
                    program: self.name.clone(),
                    pid: self.pid(),
                    deadline_secs: (self.grace + TIDY_UP + TIDY_UP).as_secs(),
                });
            }
        }
        if let Some(mut watcher) = self.watcher.take() {
            let (gone, when_gone) = mpsc::channel();
            thread::spawn(move || {
                let _ = watcher.read_to_end(&mut Vec::new());
                let _ = gone.send(());
            });
            // A watcher that is still removing files goes on without us.
            let _ = when_gone.recv_timeout(TIDY_UP);
        }
        Ok(())
    }

    /// [`Self::stop_blocking`] off the async threads.
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        tokio::task::spawn_blocking(move || self.stop_blocking()).await?
    }

    /// The last 4 KiB of what the program wrote since this start.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log, self.log_start).unwrap_or_default()
    }

    /// The error for a program that ended before it was ready.
    pub fn exited_error(&self, status: ExitStatus) -> EmbeddedError {
        EmbeddedError::Exited {
            program: self.name.clone(),
            status: status.to_string(),
            log_tail: self.log_tail().trim_end().to_owned(),
        }
    }

    /// The error for a program that runs but did not answer in time.
    pub fn not_ready_error(&self, deadline: Duration) -> EmbeddedError {
        EmbeddedError::NotReady {
            program: self.name.clone(),
            deadline_secs: deadline.as_secs(),
            log_tail: self.log_tail().trim_end().to_owned(),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Err(error) = self.stop_blocking() {
            tracing::error!(%error, "embedded program could not be stopped");
        }
    }
}

fn log_tail(log: &Path, from: u64) -> std::io::Result<String> {
    const BYTES_MAX: u64 = 4096;
    let mut file = File::open(log)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(from.max(end.saturating_sub(BYTES_MAX))))?;
    let mut tail = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}
