//! Makers: partners that place, list and cancel resting orders of a provider, as two operators have allowed.
//!
//! A resting order offers the provider's balance at one rate; it reserves nothing, and fills are checked against the
//! balance when they commit. A taker that ends unpaid returns what it had taken, unless the order was cancelled.

use dvp_domain::address::{AddressFault, OwnContracts};
use dvp_domain::money::Minor;
use dvp_domain::text::is_id;
use dvp_store::operators::approvals::Approval;
use dvp_store::operators::makers::{self, Maker};
use dvp_store::orders::resting_orders::{self, LEVELS_MAX, NewRestingOrder, PlacedBy, RestingOrderRow};
use dvp_store::{PgConnection, StoreError};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, RequestedChange, SettingChange};

/// The kind of requests about makers.
pub const MAKER: &str = "maker";

/// The requested maker of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakerChange {
    pub partner_id: String,
    pub provider_id: String,
    pub wallet: String,
    /// The partner stops being the provider's maker.
    pub is_ended: bool,
}

/// A new resting order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placing {
    pub client_order_id: String,
    pub input: String,
    pub output: String,
    /// Output per one input, in whole units.
    pub rate: Decimal,
    /// Output in minor units.
    pub amount: Minor,
}

/// Why nothing was placed, cancelled or changed.
#[derive(Debug, thiserror::Error)]
pub enum MakerError {
    #[error("the partner is no maker")]
    NotMaker,
    #[error("a pair is two different assets that the service deals in")]
    Pair,
    #[error("a rate is a positive price of at most 18 places")]
    Rate,
    #[error("an amount is at least one minor unit")]
    Amount,
    #[error("an id is one line of 1 to 128 characters")]
    Id,
    #[error("the wallet {wallet} {fault}")]
    Wallet { wallet: String, fault: AddressFault },
    #[error("another resting order has this id")]
    AlreadyExists,
    #[error("a maker has {LEVELS_MAX} open orders of a pair at most")]
    TooMany,
    #[error("there is no such resting order")]
    Unknown,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A rate as text: digits and at most one point, positive, at most 18 places.
pub fn parse_rate(text: &str) -> Option<Decimal> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let rate = if plain { Decimal::from_str_exact(text).ok()? } else { return None };
    (rate > Decimal::ZERO && rate.scale() <= 18).then_some(rate)
}

/// Requests that a partner becomes, or stops being, a provider's maker. Its wallet must be none of `contracts`.
pub async fn request(
    conn: &mut PgConnection,
    change: &MakerChange,
    maker: requests::Maker<'_>,
    contracts: &OwnContracts,
) -> Result<RequestedChange, MakerError> {
    // A wallet that became wrong must not keep its maker from ending.
    if !change.is_ended
        && let Err(fault) = contracts.check_wallet(&change.wallet)
    {
        return Err(MakerError::Wallet { wallet: change.wallet.clone(), fault });
    }
    let action = if change.is_ended { "end_maker" } else { "set_maker" };
    let wanted = SettingChange { kind: MAKER, subject: &change.partner_id, action };
    Ok(requests::request_change(conn, wanted, change, maker).await?)
}

/// Changes a maker when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), MakerError> {
    let MakerChange { partner_id, provider_id, wallet, is_ended } = requests::unmoved(conn, request).await?;
    Ok(makers::set(conn, &partner_id, (&provider_id, &wallet), is_ended, &request.id).await?)
}

/// The provider that a partner is the maker of.
pub async fn find(conn: &mut PgConnection, partner_id: &str) -> Result<Maker, MakerError> {
    makers::find(conn, partner_id).await?.ok_or(MakerError::NotMaker)
}

/// Places a resting order, of a pair that the caller has found to exist. A repetition returns the existing order;
/// `true`: the order is new.
pub async fn place(
    conn: &mut PgConnection,
    maker: &Maker,
    placing: &Placing,
) -> Result<(RestingOrderRow, bool), MakerError> {
    let Placing { client_order_id, input, output, rate, amount } = placing;
    if !is_id(client_order_id) {
        return Err(MakerError::Id);
    }
    if input == output || input.is_empty() || output.is_empty() {
        return Err(MakerError::Pair);
    }
    if rate.scale() > 18 || *rate <= Decimal::ZERO {
        return Err(MakerError::Rate);
    }
    if amount.is_zero() {
        return Err(MakerError::Amount);
    }
    if let Some(known) = standing(conn, maker, placing).await? {
        return Ok((known, false));
    }
    if resting_orders::count_open(conn, &maker.provider_id, (input, output)).await? >= LEVELS_MAX {
        return Err(MakerError::TooMany);
    }
    let new = NewRestingOrder {
        provider_id: maker.provider_id.clone(),
        wallet: maker.wallet.clone(),
        input_asset: input.clone(),
        output_asset: output.clone(),
        rate: *rate,
        amount: *amount,
        placed_by: Some(PlacedBy {
            partner_id: maker.partner_id.clone(),
            client_order_id: client_order_id.clone(),
        }),
    };
    match resting_orders::insert(conn, &new).await? {
        Some(id) => {
            let placed = resting_orders::find(conn, maker.placer(), id).await?;
            Ok((placed.ok_or(MakerError::Unknown)?, true))
        }
        // A concurrent repetition, or the maker has changed since the caller found it.
        None => Ok((standing(conn, maker, placing).await?.ok_or(MakerError::NotMaker)?, false)),
    }
}

/// The existing order with the maker's id, which must be equal.
async fn standing(
    conn: &mut PgConnection,
    maker: &Maker,
    placing: &Placing,
) -> Result<Option<RestingOrderRow>, MakerError> {
    let id = &placing.client_order_id;
    let Some(known) = resting_orders::find_by_client_id(conn, maker.placer(), id).await? else {
        return Ok(None);
    };
    let same = known.input_asset == placing.input
        && known.output_asset == placing.output
        && known.rate.parse() == Ok(placing.rate)
        && known.placed == placing.amount.to_string();
    if same { Ok(Some(known)) } else { Err(MakerError::AlreadyExists) }
}

/// Cancels the remaining amount of a resting order; cancelling twice changes nothing.
pub async fn cancel(conn: &mut PgConnection, maker: &Maker, id: i64) -> Result<RestingOrderRow, MakerError> {
    resting_orders::cancel(conn, maker.placer(), id).await?;
    resting_orders::find(conn, maker.placer(), id).await?.ok_or(MakerError::Unknown)
}
