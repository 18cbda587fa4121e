//! `GET /v1/reconciliation` and its daily form: a tenant's executions over days, with totals, as JSON or CSV.
//!
//! The first page fixes the feed's position, and every later one reads at it: later events change neither rows nor
//! totals, so that the rows of all pages add up to the totals of each. Only later confirmations of the chain
//! (settlement and anchor transactions) are added.

mod csv;
mod cursor;
mod row;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use dvp_domain::time::Timestamp;
use dvp_store::orders::reports::{CurrencyTotal, Range};
use serde::Serialize;

use self::cursor::{Mark, Report};
use self::row::Row;
use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::fault;
use crate::http::query::Params;
use crate::state::Api;

const DAYS_MAX: i64 = 92;
const LIMIT: i64 = 100;
/// A day's report is final once no event recorded before its cutoff can still be uncommitted.
const SETTLED_AFTER: TimeDelta = TimeDelta::seconds(60);
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    #[serde(flatten)]
    day: Option<Day>,
    rows: Vec<Row>,
    totals: Vec<TotalView>,
    has_more: bool,
    next_cursor: Option<String>,
    /// When the breaks were determined.
    reconciled_at: Option<String>,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Day {
    date: String,
    cutoff: String,
    /// The report no longer changes, except for confirmations of the chain.
    r#final: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TotalView {
    currency: String,
    exponent: i32,
    status: String,
    inputs: Sum,
    outputs: Sum,
    fees_deducted_minor: String,
    fees_absorbed_minor: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sum {
    count: i64,
    amount_minor: String,
}

impl From<CurrencyTotal> for TotalView {
    fn from(total: CurrencyTotal) -> Self {
        let CurrencyTotal { currency, exponent, status, inputs, input, outputs, output, deducted, absorbed } =
            total;
        Self {
            currency,
            exponent,
            status,
            inputs: Sum { count: inputs, amount_minor: input },
            outputs: Sum { count: outputs, amount_minor: output },
            fees_deducted_minor: deducted,
            fees_absorbed_minor: absorbed,
        }
    }
}

struct PageRequest {
    from: NaiveDate,
    to: NaiveDate,
    cutoff: Option<DateTime<Utc>>,
    day: Option<Day>,
}

pub(crate) async fn range(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    params: Params,
) -> Reply {
    let (from, to) = days(&params)?;
    let requested = PageRequest { from, to, cutoff: None, day: None };
    page(&api, &caller, &params, &headers, requested).await
}

pub(crate) async fn daily(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    params: Params,
) -> Reply {
    let date = date(&params, "date")?;
    let cutoff = midnight_after(date)?;
    let now = api.now().to_utc();
    let day = Day {
        date: date.to_string(),
        cutoff: Timestamp::from(cutoff).iso8601(),
        r#final: now.signed_duration_since(cutoff) >= SETTLED_AFTER,
    };
    let requested = PageRequest { from: date, to: date, cutoff: Some(cutoff), day: Some(day) };
    page(&api, &caller, &params, &headers, requested).await
}

async fn page(
    api: &Api,
    caller: &Caller,
    params: &Params,
    headers: &HeaderMap,
    requested: PageRequest,
) -> Reply {
    let limit = params.limit(LIMIT)?;
    let epoch = api.engine.feed_epoch().await?;
    let vault = &api.engine.context().vault;
    let is_daily = requested.day.is_some();
    let report =
        Report { vault, tenant: &caller.tenant, epoch, from: requested.from, to: requested.to, is_daily };
    let mark = match params.get("cursor")? {
        Some(cursor) => Some(report.mark(cursor).ok_or(Code::InvalidCursor)?),
        None => None,
    };
    let position = match &mark {
        Some(mark) => mark.position,
        None => api.engine.report_position(&caller.tenant, requested.cutoff).await?,
    };
    let range = Range {
        tenant: caller.tenant.clone(),
        from: midnight(requested.from),
        until: midnight_after(requested.to)?,
        position,
    };
    let after = mark.map(|mark| mark.after);
    let mut found = api.engine.report_page(&range, after.as_ref(), limit.saturating_add(1)).await?;
    let limit = usize::try_from(limit).unwrap_or_default();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let next_cursor = last.map(|last| {
        let after = (last.terms.accepted_at.to_utc(), last.terms.reference.to_string());
        report.cursor(&Mark { position, after })
    });
    let rows: Vec<Row> = found.into_iter().map(Row::from).collect();
    if wants_csv(headers) {
        return Ok(as_csv(&rows, next_cursor));
    }
    let counted = api.totals.of(&api.engine, &range).await?;
    let totals = counted.iter().cloned().map(TotalView::from).collect();
    let reconciled_at = api.engine.reconciled_at().await?.map(Timestamp::iso8601);
    let view = View { day: requested.day, rows, totals, has_more, next_cursor, reconciled_at };
    let mut response = json(StatusCode::OK, text(&view));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

fn as_csv(rows: &[Row], next_cursor: Option<String>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::VARY, HeaderValue::from_static("accept")),
    ];
    let mut response = (StatusCode::OK, headers, csv::table(rows)).into_response();
    if let Some(cursor) = next_cursor.and_then(|cursor| HeaderValue::try_from(cursor).ok()) {
        response.headers_mut().insert(NEXT_CURSOR, cursor);
    }
    response
}

fn wants_csv(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next())
        .any(|media| media.trim().eq_ignore_ascii_case("text/csv"))
}

/// `from` and `to`, both included.
pub(super) fn days(params: &Params) -> Result<(NaiveDate, NaiveDate), ApiError> {
    let (from, to) = (date(params, "from")?, date(params, "to")?);
    if to < from {
        return Err(fault("to", "must not be before from"));
    }
    if to.signed_duration_since(from).num_days() >= DAYS_MAX {
        return Err(fault("to", format_args!("the range must have at most {DAYS_MAX} days")));
    }
    Ok((from, to))
}

/// A calendar day of UTC, as `2026-01-31`.
fn date(params: &Params, name: &str) -> Result<NaiveDate, ApiError> {
    let given = params.get(name)?.ok_or_else(|| fault(name, "is required"))?;
    let whole = given.len() == 10 && given.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    NaiveDate::parse_from_str(given, "%Y-%m-%d")
        .ok()
        .filter(|_| whole)
        .ok_or_else(|| fault(name, "must be a date as YYYY-MM-DD"))
}

pub(super) fn midnight(date: NaiveDate) -> DateTime<Utc> {
    date.and_time(chrono::NaiveTime::MIN).and_utc()
}

pub(super) fn midnight_after(date: NaiveDate) -> Result<DateTime<Utc>, ApiError> {
    let next = date.checked_add_days(Days::new(1));
    next.map(midnight).ok_or_else(|| fault("to", "is beyond the calendar"))
}
