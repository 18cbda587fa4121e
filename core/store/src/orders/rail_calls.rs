//! Calls of rails, as operators read them: one row for each leg, kind of call and result, with how often and when.
//!
//! They are written with the end of the claim that they were made under. A process that is killed between a call and its
//! record leaves no row; the effect's own `called` still has the call.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

/// A call of a rail and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailCall {
    pub reference: String,
    pub leg: &'static str,
    pub call: &'static str,
    pub result: &'static str,
    pub at: DateTime<Utc>,
    pub took_ms: i64,
    /// The provider's reference, or the failure's code.
    pub detail: Option<String>,
}

/// Records calls: `$1` to `$9` are the columns of [`Columns`].
macro_rules! record {
    () => {
        "insert into rail_call as r (reference, leg, call, result, times, first_at, last_at, took_ms, detail) \
         select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::timestamptz[], \
                              $7::timestamptz[], $8::int8[], $9::text[]) \
         on conflict on constraint rail_call_pkey do update \
         set times = r.times + excluded.times, last_at = excluded.last_at, took_ms = excluded.took_ms, \
             detail = excluded.detail"
    };
}
pub(super) use record;

struct Sum<'a> {
    times: i64,
    first_at: DateTime<Utc>,
    last: &'a RailCall,
}

/// Calls as columns, in the order of their key, each key once.
pub(super) struct Columns<'a>(BTreeMap<[&'a str; 4], Sum<'a>>);

impl<'a> Columns<'a> {
    pub(super) fn of(calls: impl IntoIterator<Item = &'a RailCall>) -> Self {
        let mut sums: BTreeMap<[&str; 4], Sum<'_>> = BTreeMap::new();
        for call in calls {
            sums.entry([&call.reference, call.leg, call.call, call.result])
                .and_modify(|sum| {
                    sum.times = sum.times.saturating_add(1);
                    sum.last = call;
                })
                .or_insert(Sum { times: 1, first_at: call.at, last: call });
        }
        Self(sums)
    }

    pub(super) fn bind<'q>(
        &self,
        query: Query<'q, sqlx::Postgres, PgArguments>,
    ) -> Query<'q, sqlx::Postgres, PgArguments> {
        let part = |n: usize| -> Vec<String> { self.0.keys().map(|key| key[n].to_owned()).collect() };
        let sums = || self.0.values();
        query
            .bind(part(0))
            .bind(part(1))
            .bind(part(2))
            .bind(part(3))
            .bind(sums().map(|sum| sum.times).collect::<Vec<_>>())
            .bind(sums().map(|sum| sum.first_at).collect::<Vec<_>>())
            .bind(sums().map(|sum| sum.last.at).collect::<Vec<_>>())
            .bind(sums().map(|sum| sum.last.took_ms).collect::<Vec<_>>())
            .bind(sums().map(|sum| sum.last.detail.clone()).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_key_are_one_row_with_the_last_answer() {
        let call = |result, seconds, detail: &str| RailCall {
            reference: "exe_1".into(),
            leg: "payout",
            call: "query",
            result,
            at: DateTime::from_timestamp(seconds, 0).unwrap(),
            took_ms: seconds,
            detail: Some(detail.to_owned()),
        };
        let calls = [call("in_progress", 1, "a"), call("done", 3, "b"), call("in_progress", 2, "c")];
        let Columns(sums) = Columns::of(&calls);
        let found: Vec<_> =
            sums.iter().map(|(key, sum)| (key[3], sum.times, sum.first_at, sum.last.took_ms)).collect();
        assert_eq!(found, [("done", 1, calls[1].at, 3), ("in_progress", 2, calls[0].at, 2)]);
    }
}
