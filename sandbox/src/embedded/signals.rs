//! Signals to all processes of a server.

use std::process::{Command, Stdio};

use super::EmbeddedError;

/// A server's processes, the first of which is stopped: none can be added.
pub fn processes(postmaster: u32) -> Result<Vec<String>, EmbeddedError> {
    let postmaster = postmaster.to_string();
    signal("-STOP", std::slice::from_ref(&postmaster))?;
    let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &postmaster]).output();
    let listed = listed.map_err(|source| EmbeddedError::Run { program: "ps".into(), source })?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(std::iter::once(postmaster).chain(listed.split_whitespace().map(str::to_owned)).collect())
}

/// Whether one of the processes has not ended yet, whether or not its parent knows.
pub fn is_any_alive(pids: &[String]) -> Result<bool, EmbeddedError> {
    let listed = Command::new("ps").args(["-o", "stat=", "-p", &pids.join(",")]).output();
    let listed = listed.map_err(|source| EmbeddedError::Run { program: "ps".into(), source })?;
    Ok(String::from_utf8_lossy(&listed.stdout).lines().any(|stat| !stat.trim_start().starts_with('Z')))
}

/// Sends a signal, `-KILL` for example, to processes; a negative number is a process group.
pub fn signal(name: &str, pids: &[String]) -> Result<(), EmbeddedError> {
    let sent = Command::new("kill").args([name, "--"]).args(pids).stderr(Stdio::null()).status();
    sent.map(drop).map_err(|source| EmbeddedError::Run { program: "kill".into(), source })
}
