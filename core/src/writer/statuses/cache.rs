//! The entries of the status cache and the rules for using them: pure, with times and changes as arguments.
//!
//! Invariants:
//! - a status is cached only when its execution did not change since its reading began ([`Ticket`]);
//! - while a commit of an execution is in progress, its status is neither returned nor cached;
//! - a returned status contains every commit of other processes up to [`STALENESS_MAX`] ago, and was read at most
//!   [`KEPT`] ago: the second limit ends the effect of any defect;
//! - the cache takes at most [`BYTES_MAX`] and a fixed number of change records, whatever is requested.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use dvp_store::orders::executions::RefType;
use dvp_store::orders::intents::Tenant;

/// The maximum age of the latest heartbeat.
pub(super) const STALENESS_MAX: Duration = Duration::from_millis(500);
/// The maximum age of a cached status.
const KEPT: Duration = Duration::from_secs(30);
/// The memory limit, entries and their names together.
const BYTES_MAX: usize = 64 << 20;
/// The approximate overhead of an entry.
const ENTRY_BYTES: usize = 512;
/// The number of individually recorded changes in each of two generations.
const CHANGES_MAX: usize = 8192;

/// The number of changes when a reading began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ticket(u64);

#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) tenant: Tenant,
    pub(crate) reference: Arc<str>,
    pub(crate) client_reference: Option<Arc<str>>,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

impl Status {
    fn bytes(&self) -> usize {
        let named = self.client_reference.as_ref().map_or(0, |name| name.len());
        ENTRY_BYTES
            .saturating_add(self.body.len())
            .saturating_add(self.reference.len().saturating_add(named).saturating_mul(2))
    }
}

/// Statuses that were added or used at about the same time.
#[derive(Debug, Default)]
struct Generation {
    statuses: HashMap<Arc<str>, Status>,
    /// References by client references.
    named: HashMap<Tenant, HashMap<Arc<str>, Arc<str>>>,
    bytes: usize,
}

impl Generation {
    fn find(&self, tenant: &Tenant, named: RefType, name: &str) -> Option<&Status> {
        let reference = match named {
            RefType::ExecutionId => name,
            RefType::ClientReference => self.named.get(tenant)?.get(name)?,
        };
        self.statuses.get(reference).filter(|status| status.tenant == *tenant)
    }

    fn put(&mut self, status: Status) {
        self.take(&status.reference);
        self.bytes = self.bytes.saturating_add(status.bytes());
        if let Some(name) = &status.client_reference {
            let of_tenant = self.named.entry(status.tenant.clone()).or_default();
            of_tenant.insert(Arc::clone(name), Arc::clone(&status.reference));
        }
        self.statuses.insert(Arc::clone(&status.reference), status);
    }

    fn take(&mut self, reference: &str) -> Option<Status> {
        let status = self.statuses.remove(reference)?;
        self.bytes = self.bytes.saturating_sub(status.bytes());
        if let Some(name) = &status.client_reference
            && let Some(of_tenant) = self.named.get_mut(&status.tenant)
        {
            of_tenant.remove(name);
            if of_tenant.is_empty() {
                self.named.remove(&status.tenant);
            }
        }
        Some(status)
    }
}

/// The latest changes: the execution, and the number of changes at that time.
#[derive(Debug, Default)]
struct Changes {
    count: u64,
    recent: HashMap<Arc<str>, u64>,
    older: HashMap<Arc<str>, u64>,
    /// Changes up to this number are no longer recorded individually.
    forgotten: u64,
}

impl Changes {
    fn note(&mut self, reference: &str) {
        self.count = self.count.saturating_add(1);
        if self.recent.len() >= CHANGES_MAX {
            let dropped = mem::replace(&mut self.older, mem::take(&mut self.recent));
            self.forgotten = dropped.into_values().max().unwrap_or_default().max(self.forgotten);
        }
        self.recent.insert(reference.into(), self.count);
    }

    fn note_all(&mut self) {
        self.count = self.count.saturating_add(1);
        self.forgotten = self.count;
        self.recent.clear();
        self.older.clear();
    }

    fn any_since(&self, ticket: Ticket, reference: &str) -> bool {
        let last = self.recent.get(reference).or_else(|| self.older.get(reference));
        ticket.0 < self.forgotten || last.is_some_and(|at| *at > ticket.0)
    }
}

#[derive(Debug, Default)]
pub(super) struct StatusCache {
    /// Whether notifications of other processes arrive.
    listening: bool,
    /// Everything committed by then has been processed.
    heartbeat_at: Option<Instant>,
    changes: Changes,
    /// Executions with commits of this process in progress, and their number.
    changing: HashMap<Arc<str>, usize>,
    fresh: Generation,
    /// Dropped when the fresh generation has reached half of the memory limit; entries used until then move to the
    /// fresh one.
    ageing: Generation,
}

impl StatusCache {
    pub(super) fn find(
        &mut self,
        tenant: &Tenant,
        named: RefType,
        name: &str,
        now: Instant,
    ) -> Result<Bytes, Ticket> {
        let ticket = Ticket(self.changes.count);
        let within = |limit: Duration, at: Instant| now.saturating_duration_since(at) <= limit;
        if !self.heartbeat_at.is_some_and(|at| within(STALENESS_MAX, at)) {
            return Err(ticket);
        }
        if let Some(status) = self.fresh.find(tenant, named, name) {
            return if within(KEPT, status.at) { Ok(status.body.clone()) } else { Err(ticket) };
        }
        let Some(status) = self.ageing.find(tenant, named, name) else { return Err(ticket) };
        if !within(KEPT, status.at) {
            return Err(ticket);
        }
        let (reference, body) = (Arc::clone(&status.reference), status.body.clone());
        if let Some(status) = self.ageing.take(&reference) {
            self.put(status);
        }
        Ok(body)
    }

    /// Caches a status read since `began`, unless it may be out of date.
    pub(super) fn keep(&mut self, began: Ticket, status: Status) {
        let changed = self.changes.any_since(began, &status.reference);
        if self.listening && !changed && !self.changing.contains_key(&status.reference) {
            self.ageing.take(&status.reference);
            self.put(status);
        }
    }

    fn put(&mut self, status: Status) {
        if self.fresh.bytes.saturating_add(status.bytes()) > BYTES_MAX / 2 {
            self.ageing = mem::take(&mut self.fresh);
        }
        // An entry larger than half of the limit is not cached.
        if status.bytes() <= BYTES_MAX / 2 {
            self.fresh.put(status);
        }
    }

    pub(super) fn forget(&mut self, reference: &str) {
        self.changes.note(reference);
        self.fresh.take(reference);
        self.ageing.take(reference);
    }

    pub(super) fn forget_all(&mut self) {
        self.changes.note_all();
        (self.fresh, self.ageing) = Default::default();
    }

    /// A commit of these executions begins.
    pub(super) fn begin(&mut self, references: &HashSet<String>) {
        for reference in references {
            self.forget(reference);
            let count = self.changing.entry(reference.as_str().into()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// The outcome of the commit is known.
    pub(super) fn end(&mut self, references: &HashSet<String>) {
        for reference in references {
            self.forget(reference);
            if let Some(count) = self.changing.get_mut(reference.as_str()) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.changing.remove(reference.as_str());
                }
            }
        }
    }

    /// The listener is ready. Statuses read before may have missed a change.
    pub(super) fn listen(&mut self) {
        self.forget_all();
        self.listening = true;
        self.heartbeat_at = None;
    }

    pub(super) fn heartbeat(&mut self, until: Instant) {
        if self.listening {
            self.heartbeat_at = Some(until);
        }
    }

    pub(super) fn stop_listening(&mut self) {
        self.listening = false;
        self.heartbeat_at = None;
        self.forget_all();
    }
}

#[cfg(test)]
mod tests;
