//! The statements that orders take, by `pg_stat_statements`.

use serde_json::{Value, json};
use sqlx::PgPool;

use crate::figure::decimal;

/// The statements listed by name; the others are summed up.
const LISTED: usize = 24;
/// As much of a statement as tells which one it is.
const CHARACTERS: usize = 96;

/// A statement's cost of an order, beside that of all statements.
#[derive(Debug, Clone)]
pub(super) struct StatementFigure {
    part: &'static str,
    rail: &'static str,
    statement: String,
    /// Of a thousand orders.
    calls: u64,
    nanos: u64,
    wal_bytes: u64,
    all_nanos: u64,
}

impl StatementFigure {
    /// One line of JSON.
    pub(super) fn json(&self) -> Value {
        let Self { part, rail, statement, calls, nanos, wal_bytes, all_nanos } = self;
        let share = nanos.saturating_mul(1000).checked_div(*all_nanos).unwrap_or(0);
        json!({
            "name": format!("{part}, {rail} rail: {statement}"), "value": nanos, "unit": "ns/order",
            "floor": all_nanos, "ratio": decimal(share), "calls": decimal(*calls), "walBytes": wal_bytes,
        })
    }
}

/// The log of a database's statements.
pub(super) struct Statements {
    pool: PgPool,
    rail: &'static str,
}

impl Statements {
    pub(super) async fn begin(pool: &PgPool, rail: &'static str) -> anyhow::Result<Self> {
        sqlx::query("create extension if not exists pg_stat_statements").execute(pool).await?;
        Ok(Self { pool: pool.clone(), rail })
    }

    /// Gathers the planner's statistics, and begins anew.
    pub(super) async fn begin_part(&self) -> anyhow::Result<()> {
        sqlx::query("analyze").execute(&self.pool).await?;
        sqlx::query("select pg_stat_statements_reset()").execute(&self.pool).await?;
        Ok(())
    }

    /// The statements since the last reset, the most expensive first.
    pub(super) async fn read(
        &self,
        part: &'static str,
        orders: usize,
    ) -> anyhow::Result<Vec<StatementFigure>> {
        let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(
            "select query, calls, ((total_plan_time + total_exec_time) * 1000000)::int8, wal_bytes::int8 \
             from pg_stat_statements where calls > 0 order by total_plan_time + total_exec_time desc",
        )
        .fetch_all(&self.pool)
        .await?;
        let orders = u64::try_from(orders)?.max(1);
        let all: u64 = rows.iter().map(|row| row.2.unsigned_abs()).sum();
        let figure = |statement: String, calls: i64, nanos: i64, wal: i64| StatementFigure {
            part,
            rail: self.rail,
            statement,
            calls: calls.unsigned_abs().saturating_mul(1000) / orders,
            nanos: nanos.unsigned_abs() / orders,
            wal_bytes: wal.unsigned_abs() / orders,
            all_nanos: all / orders,
        };
        let listed = rows.iter().take(LISTED).map(|(query, calls, nanos, wal)| {
            let words: Vec<&str> = query.split_whitespace().collect();
            figure(words.join(" ").chars().take(CHARACTERS).collect(), *calls, *nanos, *wal)
        });
        let rest = rows.iter().skip(LISTED).fold((0_i64, 0_i64, 0_i64), |sum, row| {
            (sum.0.saturating_add(row.1), sum.1.saturating_add(row.2), sum.2.saturating_add(row.3))
        });
        let sum = rows.iter().fold((0_i64, 0_i64, 0_i64), |sum, row| {
            (sum.0.saturating_add(row.1), sum.1.saturating_add(row.2), sum.2.saturating_add(row.3))
        });
        let rest = figure("all others".to_owned(), rest.0, rest.1, rest.2);
        let sum = figure("all statements".to_owned(), sum.0, sum.1, sum.2);
        Ok(listed.chain([rest, sum]).collect())
    }
}
