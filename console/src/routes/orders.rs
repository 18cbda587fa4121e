//! The list of orders: filters in the address, a page at a time, and the same rows as CSV.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::{Html, IntoResponse as _};
use chrono::NaiveDate;
use dvp_core::ledger::statements::csv::field;
use dvp_domain::settlement::State as Settlement;
use dvp_store::database::changes::Subject;
use dvp_store::orders::listing::{self, OrderFilter, OrderRow, OrderView};
use dvp_store::{operators::order_views, partners::registry};
use serde::Deserialize;

use crate::error::PageError;
use crate::lines::OrderLine;
use crate::request::{self, Asked, Reply, Visit, file};
use crate::state::Console;
use crate::view::{self, Page};

/// Rows of a page.
const ROWS: usize = 50;
/// The most partners of the filter's list.
const PARTNERS: i64 = 500;

/// The filter as it is in the address. Empty fields are no filter.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct OrdersQuery {
    #[serde(default)]
    view: String,
    #[serde(default)]
    partner: String,
    #[serde(default)]
    state: String,
    /// Dates (UTC), both included.
    #[serde(default)]
    from: String,
    #[serde(default)]
    until: String,
    /// Orders before this one: microseconds of its time, a point, its reference.
    #[serde(default)]
    before: String,
}

impl OrdersQuery {
    fn filter(&self) -> Result<OrderFilter<'_>, PageError> {
        let view = if self.view.is_empty() { Some(OrderView::All) } else { OrderView::parse(&self.view) };
        let view = view.ok_or_else(|| PageError::Invalid(format!("There is no view {}.", self.view)))?;
        if !self.state.is_empty() && !Settlement::NAMES.contains(&self.state.as_str()) {
            return Err(PageError::Invalid(format!("There is no state {}.", self.state)));
        }
        let day = |text: &str| {
            let read: Result<NaiveDate, _> = text.parse();
            read.map_err(|_| PageError::Invalid(format!("{text} is no date: YYYY-MM-DD.")))
        };
        let midnight = |day: NaiveDate| day.and_hms_opt(0, 0, 0).map(|time| time.and_utc());
        let from = some(&self.from).map(day).transpose()?.and_then(midnight);
        let until = some(&self.until).map(day).transpose()?;
        let until = until.and_then(|day| day.succ_opt()).and_then(midnight);
        let before = some(&self.before).map(request::placed).transpose()?;
        Ok(OrderFilter {
            view,
            partner: some(&self.partner),
            state: some(&self.state),
            from,
            until,
            before,
            limit: i64::try_from(ROWS + 1).unwrap_or(i64::MAX),
        })
    }

    /// A filter from an address's query. The place of a page is no part of it.
    pub(crate) fn parse(query: &str) -> Result<Self, PageError> {
        let unread = || PageError::Invalid("The filter cannot be read.".to_owned());
        let address: Uri = format!("/orders?{query}").parse().map_err(|_| unread())?;
        let Query(read) = Query::<Self>::try_from_uri(&address).map_err(|_| unread())?;
        let filter = Self { before: String::new(), ..read };
        filter.filter()?;
        Ok(filter)
    }

    /// The filter as an address's query.
    pub(crate) fn text(&self) -> String {
        self.address("", "").trim_start_matches('?').to_owned()
    }

    /// The address of the list with this filter.
    pub(crate) fn page(&self) -> String {
        self.address("/orders", "")
    }

    /// The address of a path with this filter.
    fn address(&self, path: &str, before: &str) -> String {
        let fields = [
            ("view", self.view.as_str()),
            ("partner", &self.partner),
            ("state", &self.state),
            ("from", &self.from),
            ("until", &self.until),
            ("before", before),
        ];
        view::address(path, &fields)
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The rows of a page, and whether older ones follow.
async fn read(console: &Console, query: &OrdersQuery) -> Result<(Vec<OrderRow>, Option<String>), PageError> {
    let filter = query.filter()?;
    let mut conn = console.reading().await?;
    let mut rows = listing::list(&mut conn, &filter).await?;
    let has_more = rows.len() > ROWS;
    rows.truncate(ROWS);
    let last = rows.last().filter(|_| has_more);
    let next = last.map(|row| view::place(row.accepted_at, &row.reference));
    Ok((rows, next))
}

/// A choice of a filter.
struct Choice {
    value: &'static str,
    name: String,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "orders.html")]
struct OrdersPage {
    page: Page,
    query: OrdersQuery,
    views: Vec<(Choice, String)>,
    states: Vec<Choice>,
    partners: Vec<(String, bool)>,
    /// The operator's own views: names, addresses, and whether they are shown.
    saved: Vec<(String, String, bool)>,
    /// The present filter, to be saved; empty: there is none.
    filter: String,
    rows: Vec<OrderLine>,
    /// The address of the older rows, of the newest ones, and of this page's CSV.
    older: Option<String>,
    newest: Option<String>,
    csv: String,
}

pub(crate) async fn list(Visit { console, operator }: Visit, Asked(query): Asked<OrdersQuery>) -> Reply {
    let (rows, next) = read(&console, &query).await?;
    let mut conn = console.reading().await?;
    let partners = registry::list_partners(&mut conn, "", PARTNERS).await?;
    let saved = order_views::list(&mut conn, &operator.name).await?;
    drop(conn);
    let view_of = |view: OrderView| {
        let chosen = view.as_str() == query.view || query.view.is_empty() && view == OrderView::All;
        let value = if view == OrderView::All { "" } else { view.as_str() };
        let address = OrdersQuery { view: value.to_owned(), before: String::new(), ..query.clone() };
        (Choice { value, name: view.as_str().to_owned(), chosen }, address.address("/orders", ""))
    };
    let states = Settlement::NAMES.iter().map(|state| Choice {
        value: state,
        name: view::words(state),
        chosen: *state == query.state,
    });
    let page = OrdersPage {
        page: operator.page("Orders", "Orders").live(&[Subject::Feed]),
        views: OrderView::ALL.map(view_of).into(),
        states: states.collect(),
        partners: partners.into_iter().map(|row| (row.name.clone(), row.name == query.partner)).collect(),
        rows: rows.iter().map(OrderLine::from).collect(),
        saved: saved
            .into_iter()
            .map(|view| {
                let is_shown = view.query == query.text();
                (view.name, format!("/orders?{}", view.query), is_shown)
            })
            .collect(),
        filter: query.text(),
        older: next.map(|next| query.address("/orders", &next)),
        newest: some(&query.before).map(|_| query.address("/orders", "")),
        csv: query.address("/orders.csv", &query.before),
        query,
    };
    Ok(Html(page.render()?).into_response())
}

/// The rows of the page with the same address, as CSV (RFC 4180).
pub(crate) async fn export(State(console): State<Console>, Asked(query): Asked<OrdersQuery>) -> Reply {
    let (rows, _) = read(&console, &query).await?;
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
    fn a_filter_is_in_the_address_and_read_from_it() {
        let query = OrdersQuery { view: "open".into(), partner: "a&b".into(), ..OrdersQuery::default() };
        assert_eq!(query.address("/orders", "1.x"), "/orders?view=open&partner=a%26b&before=1.x");
        assert_eq!(OrdersQuery::default().address("/orders", ""), "/orders");
        let dated =
            OrdersQuery { from: "2026-01-31".into(), until: "2026-01-31".into(), ..OrdersQuery::default() };
        let filter = dated.filter().unwrap();
        let day = |at: Option<DateTime<Utc>>| at.unwrap().to_rfc3339();
        assert_eq!(
            (day(filter.from), day(filter.until)),
            ("2026-01-31T00:00:00+00:00".into(), "2026-02-01T00:00:00+00:00".into())
        );
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        for (view, state, from, before) in [
            ("x", "", "", ""),
            ("", "x", "", ""),
            ("", "", "31.1.2026", ""),
            ("", "", "", "x"),
            ("", "", "", "1e3.x"),
        ] {
            let query = OrdersQuery {
                view: view.into(),
                state: state.into(),
                from: from.into(),
                before: before.into(),
                ..OrdersQuery::default()
            };
            assert!(matches!(query.filter(), Err(PageError::Invalid(_))), "{query:?}");
        }
    }
}
