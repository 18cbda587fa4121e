//! What processes use, as Linux counts it.

use std::time::Duration;

use anyhow::Context as _;

/// Linux counts in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: u32,
    /// Ticks of the process in user mode, and in user and system mode.
    user: u32,
    own: u32,
    /// Those of its children that have exited and were waited for, and of their children.
    exited: u32,
}

/// The CPU time so far of this process, and then of all processes of each name with their exited children.
///
/// PostgreSQL runs each connection in a process. One that ends is counted by the postmaster from then on, so the sum
/// never loses a connection that was closed between two calls.
pub(crate) fn worked(names: &[&str]) -> Vec<Duration> {
    let mut ticks = vec![0_u32; names.len() + 1];
    if let Some(this) = stat("self") {
        ticks[0] = this.own;
    }
    for (_, process) in processes() {
        if let Some(at) = names.iter().position(|wanted| *wanted == process.name) {
            ticks[at + 1] = ticks[at + 1].saturating_add(process.own).saturating_add(process.exited);
        }
    }
    ticks.into_iter().map(|ticks| TICK.saturating_mul(ticks)).collect()
}

/// The CPU time so far of a PostgreSQL: of its postmaster and of the processes of its connections, open and closed.
pub(crate) fn worked_by_server(postmaster: u32) -> Duration {
    let mut ticks = 0_u32;
    for (id, process) in processes() {
        if id == postmaster || process.parent == postmaster {
            ticks = ticks.saturating_add(process.own).saturating_add(process.exited);
        }
    }
    TICK.saturating_mul(ticks)
}

/// The CPU time of a process so far, in user mode.
pub(crate) fn worked_as_user(pid: u32) -> Duration {
    TICK.saturating_mul(stat(&pid.to_string()).map_or(0, |process| process.user))
}

pub(crate) fn worked_by_this_process() -> Duration {
    TICK.saturating_mul(stat("self").map_or(0, |this| this.own))
}

pub(crate) fn worked_by_this_thread() -> Duration {
    TICK.saturating_mul(stat("thread-self").map_or(0, |thread| thread.own))
}

fn processes() -> impl Iterator<Item = (u32, Stat)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name.parse().ok()?, stat(&name)?))
    })
}

fn stat(process: &str) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Reads `/proc/PID/stat`. The name stands in brackets and may itself hold spaces and brackets.
fn parse(stat: &str) -> Option<Stat> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    // The first field after the name is the third of proc_pid_stat(5), ppid is the fourth, utime the fourteenth.
    let parent = after.split_whitespace().nth(1)?.parse().ok()?;
    let mut ticks = after.split_whitespace().skip(11).map(|field| field.parse::<u32>().ok());
    let mut next = || ticks.next().flatten();
    let (user, system, exited_user, exited_system) = (next()?, next()?, next()?, next()?);
    Some(Stat {
        name: name.to_owned(),
        parent,
        user,
        own: user.saturating_add(system),
        exited: exited_user.saturating_add(exited_system),
    })
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Vitals {
    pub resident_bytes: u64,
    /// The most that it had resident so far.
    pub peak_bytes: u64,
    pub descriptors: usize,
    pub threads: u64,
}

impl Vitals {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |name: &str| -> anyhow::Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a line of status")?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        Ok(Self {
            resident_bytes: number("VmRSS:")?.saturating_mul(1024),
            peak_bytes: number("VmHWM:")?.saturating_mul(1024),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: number("Threads:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exited_children_are_counted_apart_from_the_process() {
        let line = "4711 (a (b) c) S 1 4711 4711 0 -1 4194560 6001 2 0 0 30 12 500 70 20 0 1 0 9 0 0\n";
        assert_eq!(
            parse(line),
            Some(Stat { name: "a (b) c".into(), parent: 1, user: 30, own: 42, exited: 570 })
        );
    }

    #[test]
    fn this_process_and_thread_are_readable() {
        assert!(stat("self").is_some());
        assert!(stat("thread-self").is_some());
        assert_eq!(stat("no such process"), None);
    }
}
