//! Who holds what is for one process at a time, as the database says it many times a second: a fence has one owner and
//! never goes back, and what becomes free, by a stop or by the end of a dead owner's lease, is taken by another process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;
use uuid::Uuid;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A lease at a moment, by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
struct Held {
    name: String,
    owner: Uuid,
    fence: i64,
    /// `None`: it was given back.
    until: Option<DateTime<Utc>>,
    at: DateTime<Utc>,
    /// It is taken when something is due for it, and not before.
    takes_work: bool,
    /// When the first of what waits for it is due.
    due: Option<DateTime<Utc>>,
}

impl Held {
    /// Since when it is free, or until when it is held.
    fn end(&self) -> DateTime<Utc> {
        self.until.unwrap_or(self.at)
    }

    /// Since when it is free and has something to do.
    fn wanted_since(&self) -> Option<DateTime<Utc>> {
        if self.takes_work { self.due.map(|due| due.max(self.end())) } else { Some(self.end()) }
    }

    /// How long it has been free with something to do.
    fn free_for(&self) -> Option<(String, Duration)> {
        let since = self.wanted_since().filter(|since| *since < self.at)?;
        Some((self.name.clone(), (self.at - since).to_std().ok()?))
    }
}

/// How long leases were free, with something to do, before another process had them, by the kind of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Handovers {
    pub count: usize,
    pub longest: Duration,
}

impl Handovers {
    fn took(&mut self, time: Duration) {
        self.count += 1;
        self.longest = self.longest.max(time);
    }
}

#[derive(Debug, Default)]
struct Seen {
    last: BTreeMap<String, Held>,
    handovers: BTreeMap<&'static str, Handovers>,
}

fn kind(name: &str) -> &'static str {
    match name.split_once(':') {
        Some(("fix", _)) => "fix",
        Some(("webhook", _)) => "webhook",
        _ => "chain",
    }
}

impl Seen {
    /// Compares a lease with what it was. An error is a fence that was crossed.
    fn look(&mut self, mut held: Held) -> anyhow::Result<()> {
        if let Some(before) = self.last.get(&held.name) {
            ensure!(held.fence >= before.fence, "the fence of {} went back: {before:?}, {held:?}", held.name);
            let same = held.owner == before.owner;
            ensure!(same || held.fence > before.fence, "two owners of one fence: {before:?}, {held:?}");
            if !same {
                let wanted = before.wanted_since().unwrap_or(held.at);
                let free = (held.at - wanted).to_std().unwrap_or_default();
                self.handovers.entry(kind(&held.name)).or_default().took(free);
            } else if held.until.is_none() && before.end() <= before.at {
                // It was free before.
                held.until = Some(before.end());
            }
        }
        self.last.insert(held.name.clone(), held);
        Ok(())
    }
}

pub(super) struct LeaseWatch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl LeaseWatch {
    pub(super) async fn start(url: &str) -> anyhow::Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let kept = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let found = list(&mut conn).await.context("reading the leases")?;
                let look = |held| kept.lock().unwrap_or_else(PoisonError::into_inner).look(held);
                found.into_iter().try_for_each(look)?;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self { seen, task })
    }

    /// What was handed over. An error: a fence was crossed.
    pub(super) async fn end(self) -> anyhow::Result<BTreeMap<&'static str, Handovers>> {
        self.task.abort();
        match self.task.await {
            Ok(outcome) => outcome?,
            Err(error) if error.is_cancelled() => {}
            Err(error) => return Err(error.into()),
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody has taken is free until now: every process runs at the end.
        let free: Vec<_> = seen.last.values().filter_map(Held::free_for).collect();
        for (name, time) in free {
            seen.handovers.entry(kind(&name)).or_default().took(time);
        }
        Ok(seen.handovers.clone())
    }
}

/// The leases of sessions, chains and webhook endpoints. Those of jobs are free between two runs.
async fn list(conn: &mut PgConnection) -> Result<Vec<Held>, sqlx::Error> {
    sqlx::query_as(
        "select name, owner, fence, expires_at as until, clock_timestamp() as at, \
                false as takes_work, null::timestamptz as due \
         from lease where name like 'fix:%' or name like 'indexer:%' or name like 'relayer:%' \
         union all \
         select 'webhook:' || endpoint_id, owner, fence, nullif(expires_at, '-infinity'), clock_timestamp(), \
                true, (select min(q.due_at) from webhook_queue q where q.endpoint_id = l.endpoint_id) \
         from endpoint_lease l \
         where owner is not null",
    )
    .fetch_all(conn)
    .await
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn held(owner: u128, fence: i64, until: i64, at: i64) -> Held {
        let time = |millis| DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis);
        let (owner, name) = (Uuid::from_u128(owner), "fix:one".to_owned());
        let (until, at) = (Some(time(until)), time(at));
        Held { name, owner, fence, until, at, takes_work: false, due: None }
    }

    #[test]
    fn a_lease_was_free_from_its_end_until_another_owner_has_it() {
        let mut seen = Seen::default();
        for one in [
            held(1, 1, 10_000, 0),
            // Renewed, then released.
            held(1, 1, 13_000, 3_000),
            held(1, 1, 3_500, 3_550),
            held(2, 2, 14_000, 4_000),
            // The same process again, which is no hand-over.
            held(2, 3, 20_000, 10_000),
            // Dead: the next one has it after the lease's end.
            held(3, 4, 30_300, 20_300),
            // Released and taken between two looks.
            held(4, 5, 31_000, 21_000),
        ] {
            seen.look(one).unwrap();
        }
        let expected = Handovers { count: 3, longest: Duration::from_millis(500) };
        assert_eq!(seen.handovers, BTreeMap::from([("fix", expected)]));
    }

    #[test]
    fn what_was_given_back_is_free_since_it_was_first_seen_so() {
        let mut seen = Seen::default();
        let given_back = |at| Held { until: None, ..held(1, 1, 0, at) };
        for one in [held(1, 1, 60_000, 0), given_back(1_000), given_back(1_050), held(2, 2, 61_300, 1_300)] {
            seen.look(one).unwrap();
        }
        let expected = Handovers { count: 1, longest: Duration::from_millis(300) };
        assert_eq!(seen.handovers, BTreeMap::from([("fix", expected)]));
    }

    #[test]
    fn an_endpoint_is_wanted_from_when_it_is_free_and_something_is_due() {
        let due = |millis| Some(DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis));
        // Nothing was due when it was last seen; due before it was free; due afterwards; due later than it was taken.
        for (seen_due, waited) in [(None, 0), (due(500), 600), (due(1_400), 200), (due(9_000), 0)] {
            let mut seen = Seen::default();
            let endpoint = |owner, fence, until, at| Held {
                name: "webhook:ep".into(),
                takes_work: true,
                due: seen_due,
                ..held(owner, fence, until, at)
            };
            for one in
                [endpoint(1, 1, 1_000, 900), endpoint(1, 1, 1_000, 1_550), endpoint(2, 2, 61_600, 1_600)]
            {
                seen.look(one).unwrap();
            }
            let expected = Handovers { count: 1, longest: Duration::from_millis(waited) };
            assert_eq!(seen.handovers, BTreeMap::from([("webhook", expected)]), "{seen_due:?}");
        }
    }

    #[test]
    fn a_fence_that_is_crossed_is_an_error() {
        for crossing in [held(1, 1, 30_000, 20_000), held(3, 2, 30_000, 20_000)] {
            let mut seen = Seen::default();
            seen.look(held(1, 1, 10_000, 0)).unwrap();
            seen.look(held(2, 2, 20_500, 10_500)).unwrap();
            assert!(seen.look(crossing.clone()).is_err(), "{crossing:?}");
        }
    }
}
