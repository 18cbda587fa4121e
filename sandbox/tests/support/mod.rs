//! What the tests of started programs share.

use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Living processes, other than zombies and ourselves, whose command line has the text.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let listed = Command::new("ps").args(["-eo", "stat=,pid=,args="]).output().unwrap();
    let own = std::process::id().to_string();
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|line| line.contains(text) && !line.starts_with('Z') && !line.contains(&own))
        .map(str::to_owned)
        .collect()
}
