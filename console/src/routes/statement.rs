//! Statements of ledger accounts: the entries of a range of days between two balances, a page at a time and as CSV.

use axum::extract::State;
use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use dvp_core::ledger::statements::csv::StatementCsv;
use dvp_core::ledger::statements::{
    self, EntryPlace, Heading, Line, Sink, StatementAccount, StatementEntry, StatementError, TimeRange,
    parse_account, write_statements,
};
use dvp_store::database::clock;
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::{PageError, sentence};
use crate::request::{Asked, Reply, Visit, file};
use crate::state::Console;
use crate::view;

/// Entries of a page.
const ROWS: usize = 100;
/// Days of a statement when no day is given.
const DAYS: u64 = 7;
/// Entries of a CSV file.
const ENTRIES_MAX: u64 = 100_000;

/// The statement as it is in the address.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct StatementQuery {
    /// `kind:owner:part`, as the list of balances names it.
    #[serde(default)]
    account: String,
    #[serde(default)]
    asset: String,
    /// Days (UTC), both included.
    #[serde(default)]
    from: String,
    #[serde(default)]
    until: String,
    /// The entry that the page begins after: microseconds, reference, step and line, with commas.
    #[serde(default)]
    after: String,
}

impl StatementQuery {
    fn account(&self) -> Result<StatementAccount, PageError> {
        let name = self.account.trim();
        parse_account(name).ok_or_else(|| PageError::NotFound(format!("account {name}")))
    }

    /// Days without an account.
    pub(crate) fn of_days(from: &str, until: &str) -> Self {
        Self { from: from.to_owned(), until: until.to_owned(), ..Self::default() }
    }

    pub(crate) fn days(&self) -> Result<(NaiveDate, NaiveDate), PageError> {
        let day = |text: &str, usual: NaiveDate| match text.trim() {
            "" => Ok(usual),
            text => text.parse().map_err(|_| PageError::Invalid(format!("{text} is no date: YYYY-MM-DD."))),
        };
        let until = day(&self.until, clock::now().to_utc().date_naive())?;
        Ok((day(&self.from, until.checked_sub_days(Days::new(DAYS - 1)).unwrap_or(until))?, until))
    }

    pub(crate) fn range(&self) -> Result<TimeRange, PageError> {
        let (from, until) = self.days()?;
        if from > until {
            return Err(PageError::Invalid(format!("{from} is after {until}.")));
        }
        let begin = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
        let end = until.checked_add_days(Days::new(1)).map_or(DateTime::<Utc>::MAX_UTC, begin);
        Ok(TimeRange { from: begin(from), to: end })
    }

    fn after(&self) -> Result<Option<EntryPlace>, PageError> {
        if self.after.is_empty() {
            return Ok(None);
        }
        let parts: Vec<&str> = self.after.split(',').collect();
        let read = || {
            let [micros, reference, step, line] = parts[..] else { return None };
            Some(EntryPlace {
                recorded_at: DateTime::from_timestamp_micros(micros.parse().ok()?)?,
                reference: reference.to_owned(),
                step: step.parse().ok()?,
                line: line.parse().ok()?,
            })
        };
        let entry = read();
        let lost =
            || PageError::Invalid("This page of the statement cannot be found: begin anew.".to_owned());
        entry.map(Some).ok_or_else(lost)
    }

    fn address(&self, path: &str, asset: &str, after: &str) -> String {
        let fields = [
            ("account", self.account.as_str()),
            ("asset", asset),
            ("from", &self.from),
            ("until", &self.until),
            ("after", after),
        ];
        view::address(path, &fields)
    }
}

/// The address of an account's statement.
pub(crate) fn address(account: &str) -> String {
    let query = StatementQuery { account: account.to_owned(), ..StatementQuery::default() };
    query.address("/treasury/statement", "", "")
}

impl From<StatementError> for PageError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Store(error) => error.into(),
            refused => Self::Invalid(sentence(&refused.to_string())),
        }
    }
}

pub(crate) async fn show(Visit { console, operator }: Visit, Asked(query): Asked<StatementQuery>) -> Reply {
    let (from, until) = query.days()?;
    let given = |field: Field, value: &str| Field { value: value.to_owned(), ..field };
    let form = Form::search(
        "/treasury/statement",
        "Show",
        vec![
            given(Field::text("account", "Account (kind:owner:part)"), &query.account),
            given(Field::text("asset", "Asset (empty: all)").optional(), &query.asset),
            given(Field::date("from", "From"), &from.to_string()),
            given(Field::date("until", "Until (included)"), &until.to_string()),
        ],
    );
    let mut all = vec![Block::forms("Account", vec![form])];
    let title = if query.account.is_empty() {
        "Statement".to_owned()
    } else {
        format!("Statement of {}", query.account)
    };
    if !query.account.is_empty() {
        let (account, range, after) = (query.account()?, query.range()?, query.after()?);
        let mut conn = console.reading().await?;
        let assets = match query.asset.trim() {
            "" => statements::list_assets(&mut conn, &account).await?,
            asset => vec![asset.to_owned()],
        };
        if assets.is_empty() {
            all.push(Block::table("Entries", &["Entry"], "Nothing was ever posted to this account.", []));
        }
        for asset in &assets {
            let page = statements::read_page(&mut conn, &account, asset, range, after.as_ref(), ROWS).await?;
            let decimals = console.decimals(asset);
            let amount = |minor: &str| Cell::number(view::amount(minor, decimals));
            let mut rows = Vec::new();
            let label = |name: &str, balance: &str| {
                let none = Cell::default;
                vec![none(), Cell::text(name), none(), Cell::number(""), amount(balance)]
            };
            if after.is_none() {
                rows.push(label("Opening balance", &page.opening));
            }
            rows.extend(page.entries.iter().map(|entry| {
                vec![
                    Cell::exact_time(entry.recorded_at),
                    Cell::text(view::words(&entry.reason)),
                    Cell::found(&entry.reference),
                    amount(&entry.amount),
                    amount(&entry.balance),
                ]
            }));
            if !page.has_more {
                rows.push(label("Closing balance", &page.closing));
            }
            let headings = ["Time (UTC)", "Entry", "Reference", "#Amount", "#Balance"];
            let mut block = Block::table(asset.as_str(), &headings, "", rows);
            block.csv = Some(query.address("/treasury/statement.csv", asset, ""));
            block.older = page.entries.last().filter(|_| page.has_more).map(|last| {
                let micros = last.recorded_at.timestamp_micros();
                let StatementEntry { reference, step, line, .. } = last;
                let after = format!("{micros},{reference},{step},{line}");
                query.address("/treasury/statement", asset, &after)
            });
            block.older_name = "Later";
            all.push(block);
        }
    }
    blocks::render(operator.page("Treasury", title), None, all)
}

/// Writes CSV until there are too many entries.
struct Bounded<S> {
    sink: S,
    entries: u64,
}

impl<S: Sink> Sink for Bounded<S> {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> std::io::Result<()> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(std::io::Error::other(format!(
                "a file has {ENTRIES_MAX} entries at most: choose fewer days"
            )));
        }
        self.sink.line(heading, line)
    }
}

/// The whole statement as CSV (RFC 4180).
pub(crate) async fn export(State(console): State<Console>, Asked(query): Asked<StatementQuery>) -> Reply {
    let (account, range) = (query.account()?, query.range()?);
    let asset = Some(query.asset.trim()).filter(|asset| !asset.is_empty());
    let mut conn = console.reading().await?;
    let sink = StatementCsv::begin(Vec::new(), &console.settings.decimals).map_err(StatementError::from)?;
    let mut sink = Bounded { sink, entries: 0 };
    write_statements(&mut conn, &[account], asset, range, &mut sink).await?;
    drop(conn);
    let bytes = sink.sink.finish().map_err(StatementError::from)?;
    file("statement.csv", "text/csv", bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read_from_the_address() {
        let query = StatementQuery {
            account: "provider:north:available".into(),
            from: "2026-01-30".into(),
            until: "2026-01-31".into(),
            after: "1000000,exe_1,2,1".into(),
            ..StatementQuery::default()
        };
        assert_eq!(query.account().unwrap().owner, "north");
        let TimeRange { from, to } = query.range().unwrap();
        assert_eq!((to - from).num_hours(), 48);
        let after = query.after().unwrap().unwrap();
        assert_eq!((after.reference.as_str(), after.step, after.line), ("exe_1", 2, 1));
        let unnamed = StatementQuery { until: "2026-01-31".into(), ..StatementQuery::default() };
        assert_eq!(unnamed.days().unwrap().0.to_string(), "2026-01-25");
    }

    #[test]
    fn a_statement_that_cannot_be_read_is_refused() {
        let unknown = StatementQuery { account: "purse".into(), ..StatementQuery::default() };
        assert!(matches!(unknown.account(), Err(PageError::NotFound(_))));
        for after in ["x", "1,exe_1,2", "1,exe_1,2,1,1", "x,exe_1,2,1"] {
            let query = StatementQuery { after: after.into(), ..StatementQuery::default() };
            assert!(matches!(query.after(), Err(PageError::Invalid(_))), "{after}");
        }
        let dated = StatementQuery { from: "31.1.2026".into(), ..StatementQuery::default() };
        assert!(matches!(dated.range(), Err(PageError::Invalid(_))));
    }
}
