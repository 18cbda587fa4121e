//! The list of orders: filters in the address, a page at a time, and the same rows as CSV.

use axum::extract::State;
use axum::http::Uri;
use chrono::NaiveDate;
use dvp_core::ledger::statements::csv::field;
use dvp_domain::settlement::State as Settlement;
use dvp_store::database::changes::Subject;
use dvp_store::orders::listing::{self, OrderFilter, OrderRow, OrderView};
use dvp_store::partners::registry;

use crate::blocks::{self, Block, Cell, Field};
use crate::error::PageError;
use crate::filter::{Filter, choice, links};
use crate::lines::OrderLine;
use crate::offers::Offer;
use crate::request::{self, Fields, Reply, Visit, file};
use crate::state::Console;
use crate::view;

/// Rows of a page.
const ROWS: usize = 50;
/// The most partners of the filter's list.
const PARTNERS: i64 = 500;

/// The filter of the address. Dates are UTC, both included; fields that are not given are no filter.
fn wanted(given: &Fields) -> Result<OrderFilter<'_>, PageError> {
    let some = |name: &str| Some(given.one(name)).filter(|value| !value.is_empty());
    let view = some("view").map_or(Some(OrderView::All), OrderView::parse);
    let view = view.ok_or_else(|| PageError::Invalid(format!("There is no view {}.", given.one("view"))))?;
    let state = some("state");
    if let Some(state) = state.filter(|state| !Settlement::NAMES.contains(state)) {
        return Err(PageError::Invalid(format!("There is no state {state}.")));
    }
    let day = |text: &str| {
        let read: Result<NaiveDate, _> = text.parse();
        read.map_err(|_| PageError::Invalid(format!("{text} is no date: YYYY-MM-DD.")))
    };
    let midnight = |day: NaiveDate| day.and_hms_opt(0, 0, 0).map(|time| time.and_utc());
    let until = some("until").map(day).transpose()?;
    Ok(OrderFilter {
        view,
        partner: some("partner"),
        state,
        from: some("from").map(day).transpose()?.and_then(midnight),
        until: until.and_then(|day| day.succ_opt()).and_then(midnight),
        before: some("before").map(request::placed).transpose()?,
        limit: i64::try_from(ROWS + 1).unwrap_or(i64::MAX),
    })
}

/// The rows of a page, and the place that older ones follow.
async fn read(console: &Console, given: &Fields) -> Result<(Vec<OrderRow>, Option<String>), PageError> {
    let filter = wanted(given)?;
    let mut conn = console.reading().await?;
    let mut rows = listing::list(&mut conn, &filter).await?;
    let has_more = rows.len() > ROWS;
    rows.truncate(ROWS);
    let last = rows.last().filter(|_| has_more);
    let next = last.map(|row| view::place(row.accepted_at, &row.reference));
    Ok((rows, next))
}

pub(crate) async fn list(Visit { console, operator }: Visit, uri: Uri) -> Reply {
    let given = Fields::asked(&uri);
    let (rows, next) = read(&console, &given).await?;
    let mut conn = console.reading().await?;
    let partners = registry::list_partners(&mut conn, "", PARTNERS).await?;
    let views = OrderView::ALL.iter().filter(|view| **view != OrderView::All).map(|view| view.as_str());
    let fields = vec![
        links("view", views),
        choice("partner", "Partner", partners.iter().map(|row| row.name.as_str())),
        choice("state", "State", Settlement::NAMES.iter().copied()),
        Field::date("from", "Accepted from"),
        Field::date("until", "until"),
    ];
    let filter = Filter::new("/orders", fields, &given).with_saved(&mut conn, &operator).await?;
    drop(conn);
    let headings =
        ["Accepted (UTC)", "State", "Order", "Partner", "Client reference", "#Input", "#Output", "Waits for"];
    let query = |row: &OrderRow| {
        Offer::new("execution resolve", "Query the rail")
            .about("action", "ask")
            .about("reference", &row.reference)
            .about("confirm", &row.reference)
    };
    let waiting = rows.iter().filter(|row| row.terminal_at.is_none() && row.waits_for.is_some());
    let offers = operator.offers(Offer::all(&waiting.map(query).collect::<Vec<_>>()));
    let csv = filter.file("/orders.csv", &given);
    let table = Block::table("Newest first", &headings, "No order meets this filter.", rows.iter().map(row))
        .with_offers(offers)
        .paged(&filter, next, Some(csv));
    blocks::list(operator.page("Orders", "Orders").live(&[Subject::Feed]), None, filter, vec![table])
}

fn row(row: &OrderRow) -> Vec<Cell> {
    let line = OrderLine::from(row);
    vec![
        Cell::time(line.accepted),
        Cell::toned(line.state, line.tone),
        Cell { class: "id".to_owned(), ..Cell::link(&line.reference, view::order(&line.reference)) },
        Cell::text(line.partner),
        Cell::id(line.client_reference),
        Cell::number(format!("{} {}", line.input, line.input_asset)),
        Cell::number(format!("{} {}", line.output, line.output_asset)),
        match line.alarm.is_empty() {
            true => Cell::text(line.waits_for),
            false => Cell::toned(format!("{} {}", line.alarm, line.waits_for).trim(), "bad"),
        },
    ]
}

/// The rows of the page with the same address, as CSV (RFC 4180).
pub(crate) async fn export(State(console): State<Console>, uri: Uri) -> Reply {
    let (rows, _) = read(&console, &Fields::asked(&uri)).await?;
    let mut text = "reference,accepted_at,partner,client_reference,intent_id,state,input,input_asset,output,output_asset,\
                    waits_for,alarm\r\n"
        .to_owned();
    for row in &rows {
        let line = OrderLine::from(row);
        // A number needs no quotes and no groups of digits.
        let number = |shown: &str| shown.replace(',', "");
        let fields = [
            field(&line.reference),
            line.accepted.iso.clone(),
            field(&line.partner),
            field(&line.client_reference),
            field(&line.intent_id),
            field(&row.state),
            number(&line.input),
            field(&line.input_asset),
            number(&line.output),
            field(&line.output_asset),
            field(&line.waits_for),
            field(&line.alarm),
        ];
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    }
    file("orders.csv", "text/csv", text.into())
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    #[test]
    fn dates_of_a_filter_are_both_included() {
        let given = Fields::of(b"from=2026-01-31&until=2026-01-31");
        let filter = wanted(&given).unwrap();
        let day = |at: Option<DateTime<Utc>>| at.unwrap().to_rfc3339();
        assert_eq!(
            (day(filter.from), day(filter.until)),
            ("2026-01-31T00:00:00+00:00".into(), "2026-02-01T00:00:00+00:00".into())
        );
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        for query in ["view=x", "state=x", "from=31.1.2026", "before=x", "before=1e3.x"] {
            let given = Fields::of(query.as_bytes());
            assert!(matches!(wanted(&given), Err(PageError::Invalid(_))), "{query}");
        }
    }
}
