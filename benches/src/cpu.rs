//! Which processes worked, as Linux counts it: for the tables that say where the time goes.

use std::time::Duration;

/// Linux counts in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// The time that processes have worked so far: this one's, and those of a name.
#[must_use]
pub fn worked(names: &[&str]) -> Vec<Duration> {
    let mut ticks = vec![0_u32; names.len() + 1];
    if let Some((_, own)) = stat("self") {
        ticks[0] = own;
    }
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some((name, worked)) = entry.file_name().to_str().and_then(stat) else { continue };
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            ticks[at + 1] = ticks[at + 1].saturating_add(worked);
        }
    }
    ticks.into_iter().map(|ticks| TICK.saturating_mul(ticks)).collect()
}

/// A process's name, and its ticks in user and system mode.
fn stat(process: &str) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((name.to_owned(), user.saturating_add(system)))
}
