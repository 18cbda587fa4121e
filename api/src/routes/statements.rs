//! `GET /v1/statements`: the entries of a partner's own balance over days, with the balances before and after them.
//!
//! Every page has the balances of the whole range as the ledger has them now: entries of a day that is not over are added.

use axum::extract::State;
use axum::http::StatusCode;
use chrono::DateTime;
use dvp_core::ledger::statements::{
    EntryPlace, StatementAccount, StatementEntry, StatementError, TimeRange, read_page,
};
use dvp_core::secrets::Vault;
use dvp_domain::ledger::{Account, Owner, Part};
use dvp_domain::time::Timestamp;
use serde::Serialize;

use super::reconciliation::{days, midnight, midnight_after};
use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::fault;
use crate::http::query::Params;
use crate::state::Api;

const LIMIT: i64 = 100;
const MAC: usize = 16;
/// A place is four fields, the longest of which is a reference.
const CURSOR_MAX: usize = 512;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    asset: &'a str,
    exponent: u8,
    part: &'static str,
    opening_minor: String,
    closing_minor: String,
    data: Vec<EntryView>,
    has_more: bool,
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryView {
    recorded_at: String,
    reference: String,
    reason: String,
    amount_minor: String,
    balance_minor: String,
}

/// `from` and `to` are days of UTC, both included; `part` is `available`, unless it is given.
pub(crate) async fn show(State(api): State<Api>, caller: Caller, params: Params) -> Reply {
    const PARTS: [(&str, Part); 2] = [("available", Part::Available), ("reserved", Part::Reserved)];
    let asset = params.get("asset")?.ok_or_else(|| fault("asset", "is required"))?;
    let found = api.engine.context().registry.find(asset);
    let found = found.ok_or_else(|| fault("asset", "must be one of GET /v1/assets"))?;
    let (from, to) = days(&params)?;
    let named = params.get("part")?.unwrap_or("available");
    let part = PARTS.into_iter().find(|(name, _)| *name == named);
    let (named, part) = part.ok_or_else(|| fault("part", "must be one of available, reserved"))?;
    let limit = params.limit(LIMIT)?;
    let owner = Owner::Partner { id: caller.tenant.partner_id.clone(), livemode: caller.tenant.livemode };
    let account = StatementAccount::from(&Account::Balance(owner, part));
    let scope = format!("{}:{}:{}|{asset}|{from}|{to}", account.kind, account.owner, account.part);
    let vault = &api.engine.context().vault;
    let after = match params.get("cursor")? {
        None => None,
        Some(cursor) => Some(place(vault, &scope, cursor).ok_or(Code::InvalidCursor)?),
    };
    let range = TimeRange { from: midnight(from), to: midnight_after(to)? };
    let limit = usize::try_from(limit).unwrap_or_default();
    let mut conn = api.engine.reads().acquire().await?;
    let page = read_page(&mut conn, &account, asset, range, after.as_ref(), limit).await?;
    let next = page.entries.last().filter(|_| page.has_more).map(|last| {
        let (recorded_at, reference) = (last.recorded_at, last.reference.clone());
        cursor(vault, &scope, &EntryPlace { recorded_at, reference, step: last.step, line: last.line })
    });
    let entry = |entry: StatementEntry| EntryView {
        recorded_at: Timestamp::from(entry.recorded_at).iso8601(),
        reference: entry.reference,
        reason: entry.reason,
        amount_minor: entry.amount,
        balance_minor: entry.balance,
    };
    let view = View {
        asset,
        exponent: found.exponent,
        part: named,
        opening_minor: page.opening,
        closing_minor: page.closing,
        data: page.entries.into_iter().map(entry).collect(),
        has_more: page.has_more,
        next_cursor: next,
    };
    Ok(json(StatusCode::OK, text(&view)))
}

/// `place | MAC`, lowercase hex. The MAC covers the account and the range.
fn cursor(vault: &Vault, scope: &str, place: &EntryPlace) -> String {
    let EntryPlace { recorded_at, reference, step, line } = place;
    let place = format!("{}|{step}|{line}|{reference}", recorded_at.timestamp_micros());
    let mac = vault.cursor_mac(format!("{place}\0{scope}").as_bytes());
    hex::encode([place.as_bytes(), &mac].concat())
}

fn place(vault: &Vault, scope: &str, cursor: &str) -> Option<EntryPlace> {
    let bytes = hex::decode(Some(cursor).filter(|cursor| cursor.len() <= CURSOR_MAX)?).ok()?;
    let (place, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
    let place = std::str::from_utf8(place).ok()?;
    vault.is_cursor_mac(format!("{place}\0{scope}").as_bytes(), mac).then_some(())?;
    let mut fields = place.splitn(4, '|');
    let recorded_at = DateTime::from_timestamp_micros(fields.next()?.parse().ok()?)?;
    let (step, line) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(EntryPlace { recorded_at, step, line, reference: fields.next()?.to_owned() })
}

impl From<StatementError> for ApiError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::EmptyRange => fault("to", "must not be before from"),
            StatementError::Store(error) => error.into(),
            StatementError::Write(error) => Self::Internal(error.to_string()),
        }
    }
}
