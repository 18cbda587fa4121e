//! Processes that an earlier run left: its watcher is still stopping them, or was killed as well. A new owner waits
//! for them, then makes them stop; never are there two on the same files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::EmbeddedError;

/// Each signal, and how long it then gets. When there is a watcher it is at work already, and a second SIGINT does
/// no harm.
const STEPS: [(Option<&str>, Duration); 4] = [
    (None, Duration::from_secs(1)),
    (Some("-INT"), Duration::from_secs(20)),
    (Some("-QUIT"), Duration::from_secs(5)),
    (Some("-KILL"), Duration::from_secs(5)),
];

/// The process id in the first line of a file, if that process lives and its command line has all these marks. The
/// number alone proves nothing: the file survives a power cut, and the number may belong to another process by now.
pub fn living(pid_file: &Path, marks: &[&str]) -> Option<u32> {
    let text = fs::read_to_string(pid_file).ok()?;
    let pid = text.lines().next()?.trim().parse().ok()?;
    let command = command_line(pid)?;
    marks.iter().all(|mark| command.contains(mark)).then_some(pid)
}

/// Returns when `find` finds no process any more; blocks.
///
/// # Errors
/// [`EmbeddedError::WontStop`] when not even SIGKILL helped.
pub fn end(program: &str, find: impl Fn() -> Option<u32>) -> Result<(), EmbeddedError> {
    for (signal, grace) in STEPS {
        let Some(pid) = find() else { return Ok(()) };
        if let Some(signal) = signal {
            tracing::warn!(program, pid, signal, "stopping a program of an earlier run");
            let _ = Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
        }
        let until = Instant::now() + grace;
        while find().is_some() && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
    }
    find().map_or(Ok(()), |pid| {
        let deadline_secs = STEPS.iter().map(|(_, grace)| grace.as_secs()).sum();
        Err(EmbeddedError::WontStop { program: program.to_owned(), pid, deadline_secs })
    })
}

/// The arguments of a process, or `None` when it is gone or a zombie.
fn command_line(pid: u32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        return (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let output = Command::new("ps").args(["-o", "args=", "-p", &pid.to_string()]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
