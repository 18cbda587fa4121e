//! The limits on unauthenticated connections, by source address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use dvp_core::listeners::source::Source;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::limits::{Bucket, Pace};

/// The maximum number of remembered addresses. Beyond it, only addresses with recent connections are kept.
const SOURCES_MAX: usize = 65_536;

/// The limits on a connection before its Logon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// From the first byte of a TCP connection to the end of its TLS handshake, PROXY header included.
    pub handshake: Duration,
    /// From the first byte of a TCP connection to a complete Logon.
    pub logon: Duration,
    /// The size limit of the first message, which must be a Logon.
    pub logon_bytes_max: usize,
    /// Concurrent unauthenticated connections.
    pub unauthenticated_max: usize,
    /// The same, from one address.
    pub unauthenticated_per_source_max: u32,
    pub connections_per_minute: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            logon: Duration::from_secs(10),
            logon_bytes_max: 4 * 1024,
            unauthenticated_max: 1024,
            unauthenticated_per_source_max: 512,
            connections_per_minute: 6000,
        }
    }
}

/// Why a source is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("too many connections a minute from this address")]
    Connections,
    #[error("too many connections from this address that have not logged on")]
    Unauthenticated,
    #[error("too many addresses at once")]
    Sources,
}

/// Counts by source.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    counts: Arc<Mutex<HashMap<Source, Counts>>>,
    pace: Pace,
    unauthenticated_max: u32,
}

#[derive(Debug)]
struct Counts {
    connections: Bucket,
    unauthenticated: u32,
}

/// The slot of one unauthenticated connection of a source; released when dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    sources: Sources,
    source: Source,
}

impl Sources {
    pub(crate) fn new(budget: &Budget) -> Self {
        let count = budget.connections_per_minute;
        Self {
            counts: Arc::default(),
            pace: Pace::new(count, Duration::from_secs(60), count),
            unauthenticated_max: budget.unauthenticated_per_source_max,
        }
    }

    /// Counts a connection from this address.
    pub(crate) fn enter(&self, addr: IpAddr, now: Instant) -> Result<Visit, TooMany> {
        let source = Source::from(addr);
        let mut counts = self.counts.lock();
        if !counts.contains_key(&source) && counts.len() >= SOURCES_MAX {
            counts.retain(|_, counts| counts.unauthenticated > 0 || !counts.connections.is_full(now));
            if counts.len() >= SOURCES_MAX {
                return Err(TooMany::Sources);
            }
        }
        let fresh = || Counts { connections: Bucket::new(now), unauthenticated: 0 };
        let entry = counts.entry(source).or_insert_with(fresh);
        if !entry.connections.take(self.pace, now) {
            return Err(TooMany::Connections);
        }
        if entry.unauthenticated >= self.unauthenticated_max {
            return Err(TooMany::Unauthenticated);
        }
        entry.unauthenticated += 1;
        drop(counts);
        Ok(Visit { sources: self.clone(), source })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(counts) = self.sources.counts.lock().get_mut(&self.source) {
            counts.unauthenticated = counts.unauthenticated.saturating_sub(1);
        }
    }
}

/// The slot of an unauthenticated connection; released when dropped.
pub(crate) type ConnectionSlot = (OwnedSemaphorePermit, Visit);

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(unauthenticated: u32, per_minute: u32) -> Sources {
        let budget = Budget {
            unauthenticated_per_source_max: unauthenticated,
            connections_per_minute: per_minute,
            ..Budget::default()
        };
        Sources::new(&budget)
    }

    #[test]
    fn a_source_is_limited_without_affecting_others() {
        let (sources, now) = (sources(2, 100), Instant::now());
        let [here, there]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let first = sources.enter(here, now).unwrap();
        let _second = sources.enter(here, now).unwrap();
        assert_eq!(sources.enter(here, now).unwrap_err(), TooMany::Unauthenticated);
        sources.enter(there, now).unwrap();
        drop(first);
        sources.enter(here, now).unwrap();
    }

    #[test]
    fn the_number_of_sources_is_bounded() {
        let (sources, now) = (sources(1, 1), Instant::now());
        for n in 0..u32::try_from(SOURCES_MAX).unwrap() {
            sources.enter(IpAddr::V4(n.into()), now).unwrap();
        }
        let late: IpAddr = "203.0.113.1".parse().unwrap();
        assert_eq!(sources.enter(late, now).unwrap_err(), TooMany::Sources);
        sources.enter(late, now + Duration::from_secs(61)).unwrap();
        assert_eq!(sources.counts.lock().len(), 1);
    }
}
