//! The fees of each chain: for operators, and for the network fees of quotes.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::super::{bigint, unsigned};
use crate::{StoreError, statement};

/// A chain's fees as its relayer last saw them, in wei per gas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainFees {
    /// Of the next block.
    pub base_fee: u128,
    pub tip: u128,
    /// The most that a transaction offers.
    pub cap: u128,
    /// Of a byte of data on the chain's L1; zero where it pays for none.
    pub data: u128,
}

/// Records a chain's fees at a new block.
pub async fn note_fees(conn: &mut PgConnection, chain_id: u64, fees: ChainFees) -> Result<(), StoreError> {
    let sql = "insert into chain_fees (chain_id, base_fee, tip, cap, data)
         values ($1, $2::text::numeric, $3::text::numeric, $4::text::numeric, $5::text::numeric)
         on conflict on constraint chain_fees_pkey do update
         set base_fee = excluded.base_fee, tip = excluded.tip, cap = excluded.cap, data = excluded.data,
             seen_at = clock_timestamp()";
    let ChainFees { base_fee, tip, cap, data } = fees;
    let parameters =
        (bigint(chain_id), base_fee.to_string(), tip.to_string(), cap.to_string(), data.to_string());
    statement::execute(conn, sql, parameters).await
}

/// The fees of every chain with a relayer, and when they were seen.
pub async fn list_fees(conn: &mut PgConnection) -> Result<Vec<(u64, ChainFees, DateTime<Utc>)>, StoreError> {
    let sql = "select chain_id, base_fee::text, tip::text, cap::text, data::text, seen_at from chain_fees \
               order by chain_id";
    let rows: Vec<(i64, String, String, String, String, DateTime<Utc>)> =
        statement::list(conn, sql, ()).await?;
    let table = "chain_fees";
    let wei = |text: String| text.parse::<u128>().map_err(|error| StoreError::corrupt(table, error));
    rows.into_iter()
        .map(|(chain, base_fee, tip, cap, data, at)| {
            let (base_fee, tip) = (wei(base_fee)?, wei(tip)?);
            let fees = ChainFees { base_fee, tip, cap: wei(cap)?, data: wei(data)? };
            Ok((unsigned(table, chain)?, fees, at))
        })
        .collect()
}
