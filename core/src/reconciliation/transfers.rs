//! Compares what is in transit to and from other cells with the ledger.

use std::collections::BTreeMap;

use dvp_domain::reconcile::Break;
use dvp_domain::reconcile::transfers::{KnownTransfer, TransitBalance};
use dvp_domain::time::Timestamp;
use dvp_domain::transfer::TransferDirection;
use dvp_store::transfers::{list_moving, list_transit};
use dvp_store::{PgConnection, StoreError};
use metrics::gauge;

/// What the comparison came to.
pub(super) struct TransferReport {
    /// Transit accounts: one for each cell and asset that ever had a transfer.
    pub(super) accounts: usize,
    /// Transfers without an end.
    pub(super) open: usize,
    pub(super) breaks: Vec<Break>,
}

pub(super) async fn compare(
    conn: &mut PgConnection,
    now: Timestamp,
    patience_ms: i64,
) -> Result<TransferReport, StoreError> {
    let balances = list_transit(conn).await?;
    let mut open = list_moving(conn, now.to_utc()).await?;
    open.retain(|one| one.state.is_open());
    let mut breaks: Vec<Break> = balances.iter().filter_map(TransitBalance::judge).collect();
    breaks.extend(open.iter().filter_map(|one| one.overdue(now, patience_ms)));
    if !balances.is_empty() {
        show(&balances, &open, now);
    }
    Ok(TransferReport { accounts: balances.len(), open: open.len(), breaks })
}

/// Sets the figures of every cell and asset that ever had a transfer, so that they return to zero.
fn show(balances: &[TransitBalance], open: &[KnownTransfer], now: Timestamp) {
    let directions = [TransferDirection::Out, TransferDirection::In];
    let mut amounts: BTreeMap<(String, &str, &'static str), u128> = BTreeMap::new();
    for TransitBalance { cell, asset, .. } in balances {
        for direction in directions {
            amounts.insert((cell.to_string(), asset, direction.as_str()), 0);
        }
    }
    for one in open {
        let key = (one.cell.to_string(), one.asset.as_str(), one.state.direction().as_str());
        let sum = amounts.entry(key).or_default();
        *sum = sum.saturating_add(one.amount.get());
    }
    for ((cell, asset, direction), amount) in amounts {
        // A figure for people: more than 2^53 minor units are rounded.
        let amount: f64 = amount.to_string().parse().unwrap_or(f64::MAX);
        gauge!("dvp_transfers_open_minor", "cell" => cell, "asset" => asset.to_owned(), "direction" => direction)
            .set(amount);
    }
    for direction in directions {
        let of = open.iter().filter(|one| one.state.direction() == direction);
        let oldest = of.clone().map(|one| now.millis().saturating_sub(one.since.millis())).max();
        let count = u32::try_from(of.count()).unwrap_or(u32::MAX);
        let age_secs = u32::try_from(oldest.unwrap_or_default().max(0) / 1000).unwrap_or(u32::MAX);
        gauge!("dvp_transfers_open", "direction" => direction.as_str()).set(f64::from(count));
        gauge!("dvp_transfer_oldest_open_seconds", "direction" => direction.as_str())
            .set(f64::from(age_secs));
    }
}
