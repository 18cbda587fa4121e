//! The resources of the service's process, as Linux counts them.

use anyhow::Context as _;

/// At one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Vitals {
    pub resident_bytes: u64,
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
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: number("Threads:")?,
        })
    }
}
