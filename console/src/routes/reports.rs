//! Reports of the ledger: fees of a range of days, and what is reserved, in progress or owed at a time; as `dvp report`
//! prints them.

use axum::extract::State;
use chrono::{DateTime, Utc};
use dvp_core::ledger::statements::{self, BalanceAt, FeeSum, StatementError, account_name, csv};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::PageError;
use crate::request::{self, Asked, Reply, Visit, file};
use crate::routes::statement::{self, StatementQuery};
use crate::state::Console;
use crate::view;

/// Rows of a page; the CSV has all.
const ROWS: usize = 500;

/// Days (UTC), both included.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct FeesQuery {
    #[serde(default)]
    from: String,
    #[serde(default)]
    until: String,
}

impl FeesQuery {
    fn days(&self) -> StatementQuery {
        StatementQuery::of_days(&self.from, &self.until)
    }
}

/// A time (UTC), `2026-01-31T09:30`; empty: now.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ExposureQuery {
    #[serde(default)]
    at: String,
}

impl ExposureQuery {
    fn at(&self) -> Result<DateTime<Utc>, PageError> {
        Ok(request::time(&self.at)?.unwrap_or(DateTime::<Utc>::MAX_UTC))
    }
}

/// How many rows the page leaves out.
fn left_out(rows: usize) -> Option<String> {
    (rows > ROWS).then(|| format!("The first {ROWS} of {rows} rows; the CSV has all of them."))
}

fn given(field: Field, value: &str) -> Field {
    Field { value: value.to_owned(), ..field }
}

/// Fees by day, asset and reason.
pub(crate) async fn fees(Visit { console, operator }: Visit, Asked(query): Asked<FeesQuery>) -> Reply {
    let days = query.days();
    let ((from, until), range) = (days.days()?, days.range()?);
    let mut conn = console.reading().await?;
    let sums = statements::fees(&mut conn, range).await?;
    drop(conn);
    let row = |sum: &FeeSum| {
        let amount = |minor: &str| Cell::number(view::amount(minor, console.decimals(&sum.asset)));
        vec![
            Cell::text(sum.day.to_string()),
            Cell::text(&sum.asset),
            Cell::text(view::words(&sum.reason)),
            amount(&sum.earned),
            amount(&sum.absorbed),
            Cell::count(sum.entries),
        ]
    };
    let headings = ["Day (UTC)", "Asset", "Reason", "#Earned", "#Absorbed", "#Entries"];
    let rows = sums.iter().take(ROWS).map(row);
    let mut table = Block::table("Fees", &headings, "No fee was earned or absorbed on these days.", rows);
    let (first, last) = (from.to_string(), until.to_string());
    table.csv = Some(view::address("/treasury/fees.csv", &[("from", &first), ("until", &last)]));
    let fields = vec![
        given(Field::date("from", "From"), &first),
        given(Field::date("until", "Until (included)"), &last),
    ];
    let form = Block::forms("Days", vec![Form::search("/treasury/fees", "Show", fields)]);
    let page = operator.page("Treasury", format!("Fees from {from} to {until}"));
    blocks::noted(page, None, left_out(sums.len()), vec![form, table])
}

/// The same as CSV.
pub(crate) async fn fees_csv(State(console): State<Console>, Asked(query): Asked<FeesQuery>) -> Reply {
    let range = query.days().range()?;
    let mut conn = console.reading().await?;
    let sums = statements::fees(&mut conn, range).await?;
    drop(conn);
    let mut bytes = Vec::new();
    csv::write_fees(&mut bytes, &sums, &console.settings.decimals).map_err(StatementError::from)?;
    file("fees.csv", "text/csv", bytes)
}

/// Reserved balances, claims, debts, and funds in the escrow and in clearing.
pub(crate) async fn exposure(
    Visit { console, operator }: Visit,
    Asked(query): Asked<ExposureQuery>,
) -> Reply {
    let at = query.at()?;
    let mut conn = console.reading().await?;
    let found = statements::exposure(&mut conn, at).await?;
    drop(conn);
    let row = |one: &BalanceAt| {
        let account = account_name(&one.owner_kind, &one.owner, &one.part);
        // A sum of several accounts has no statement.
        let account = if one.accounts == 1 {
            Cell::link(&account, statement::address(&account))
        } else {
            Cell::text(&account)
        };
        vec![
            account,
            Cell::text(&one.asset),
            Cell::number(view::amount(&one.amount, console.decimals(&one.asset))),
            Cell::count(one.accounts),
        ]
    };
    let headings = ["Account", "Asset", "#Balance", "#Accounts"];
    let rows = found.iter().take(ROWS).map(row);
    let mut table = Block::table("Exposure", &headings, "Nothing is reserved, in progress or owed.", rows);
    table.csv = Some(view::address("/treasury/exposure.csv", &[("at", query.at.trim())]));
    let fields = vec![given(Field::time("at", "At (UTC; empty: now)").optional(), query.at.trim())];
    let form = Block::forms("Time", vec![Form::search("/treasury/exposure", "Show", fields)]);
    let page = operator.page("Treasury", "Exposure");
    blocks::noted(page, None, left_out(found.len()), vec![form, table])
}

/// The same as CSV.
pub(crate) async fn exposure_csv(
    State(console): State<Console>,
    Asked(query): Asked<ExposureQuery>,
) -> Reply {
    let at = query.at()?;
    let mut conn = console.reading().await?;
    let found = statements::exposure(&mut conn, at).await?;
    drop(conn);
    let mut bytes = Vec::new();
    csv::write_balances(&mut bytes, &found, &console.settings.decimals).map_err(StatementError::from)?;
    file("exposure.csv", "text/csv", bytes)
}
