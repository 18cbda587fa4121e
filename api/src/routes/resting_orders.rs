//! `/v1/resting-orders`: a maker places, lists and cancels resting orders of its provider.
//!
//! The maker's own id makes a placement repeatable: the same order again is answered with the order that stands.

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use dvp_core::operators::makers::{self, MakerError, Placing, parse_rate};
use dvp_core::secrets::{RESTING_ORDER as ORDER, Vault};
use dvp_domain::time::Timestamp;
use dvp_store::orders::resting_orders::{self, RestingOrderRow};
use serde::Serialize;

use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::{Object, fault, take_body};
use crate::http::path::PathId;
use crate::http::query::Params;
use crate::state::Api;
use crate::wire::RESTING_ORDER;

const NO_ORDER: ApiError = ApiError::Missing("no resting order of this maker has this id");
const PAGE: i64 = 50;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RestingOrderView {
    order_id: String,
    client_order_id: Option<String>,
    input_asset: String,
    output_asset: String,
    rate: String,
    amount_minor: String,
    remaining_minor: String,
    status: &'static str,
    placed_at: String,
    cancelled_at: Option<String>,
}

impl RestingOrderView {
    fn of(vault: &Vault, row: RestingOrderRow) -> Self {
        let status = match (&row.cancelled_at, row.remaining.as_str()) {
            (Some(_), _) => "cancelled",
            (None, "0") => "filled",
            (None, _) => "open",
        };
        Self {
            order_id: vault.opaque_id(ORDER, row.id),
            client_order_id: row.client_order_id,
            input_asset: row.input_asset,
            output_asset: row.output_asset,
            rate: row.rate,
            amount_minor: row.placed,
            remaining_minor: row.remaining,
            status,
            placed_at: Timestamp::from(row.placed_at).iso8601(),
            cancelled_at: row.cancelled_at.map(|at| Timestamp::from(at).iso8601()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RestingOrderPage {
    data: Vec<RestingOrderView>,
    has_more: bool,
}

pub(crate) struct Place(Placing);

impl FromRequest<Api> for Place {
    type Rejection = ApiError;

    async fn from_request(request: Request, _api: &Api) -> Result<Self, ApiError> {
        let body = take_body(request).await?;
        let fields = Object::root(&body, RESTING_ORDER)?;
        let rate = parse_rate(fields.text("rate")?);
        Ok(Self(Placing {
            client_order_id: fields.id("clientOrderId")?.to_owned(),
            input: fields.id("inputAsset")?.to_owned(),
            output: fields.id("outputAsset")?.to_owned(),
            rate: rate
                .ok_or_else(|| fields.fault("rate", "must be a positive price of at most 18 places"))?,
            amount: fields.amount("amountMinor")?,
        }))
    }
}

pub(crate) async fn create(State(api): State<Api>, caller: Caller, Place(placing): Place) -> Reply {
    if api.engine.context().registry.pair(&placing.input, &placing.output).is_none() {
        return Err(ApiError::Plain(Code::InvalidPair));
    }
    let mut conn = api.engine.pool().acquire().await?;
    let maker = makers::find(&mut conn, &caller.tenant.partner_id).await?;
    let (order, is_new) = makers::place(&mut conn, &maker, &placing).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, text(&RestingOrderView::of(&api.engine.context().vault, order))))
}

/// The newest first; `before` is the last order of the page before.
pub(crate) async fn list(State(api): State<Api>, caller: Caller, params: Params) -> Reply {
    let is_open = match params.get("status")? {
        None => false,
        Some("open") => true,
        Some(_) => return Err(fault("status", "must be open")),
    };
    let vault = &api.engine.context().vault;
    let before = match params.get("before")? {
        None => None,
        Some(order) => Some(
            vault
                .id_behind(ORDER, order)
                .ok_or_else(|| fault("before", "must be an orderId of this list"))?,
        ),
    };
    let limit = params.limit(PAGE)?;
    let mut conn = api.engine.reads().acquire().await?;
    let maker = makers::find(&mut conn, &caller.tenant.partner_id).await?;
    let wanted = limit.saturating_add(1);
    let mut rows = resting_orders::list_of(&mut conn, maker.placer(), is_open, before, wanted).await?;
    let page = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > page;
    rows.truncate(page);
    let data = rows.into_iter().map(|row| RestingOrderView::of(vault, row)).collect();
    Ok(json(StatusCode::OK, text(&RestingOrderPage { data, has_more })))
}

/// The remainder is no longer offered; a cancelled order stays cancelled.
pub(crate) async fn cancel(State(api): State<Api>, caller: Caller, order: PathId) -> Reply {
    let id = api.engine.context().vault.id_behind(ORDER, &order.or(NO_ORDER)?).ok_or(NO_ORDER)?;
    let mut conn = api.engine.pool().acquire().await?;
    let maker = makers::find(&mut conn, &caller.tenant.partner_id).await?;
    let order = makers::cancel(&mut conn, &maker, id).await?;
    Ok(json(StatusCode::OK, text(&RestingOrderView::of(&api.engine.context().vault, order))))
}

impl From<MakerError> for ApiError {
    fn from(error: MakerError) -> Self {
        match error {
            MakerError::NotMaker => Self::Missing("this partner is no maker"),
            MakerError::Pair => Code::InvalidPair.into(),
            MakerError::Rate => fault("rate", error),
            MakerError::Amount => fault("amountMinor", error),
            MakerError::Id => fault("clientOrderId", error),
            MakerError::TooMany => fault("body", error),
            MakerError::AlreadyExists => Self::AlreadyExists("clientOrderId"),
            MakerError::Unknown => NO_ORDER,
            error @ (MakerError::Change(_) | MakerError::Wallet { .. }) => Self::Internal(error.to_string()),
            MakerError::Store(error) => error.into(),
        }
    }
}
