//! What is open in each set of contracts.

use super::{address, bigint, unsigned};
use crate::{StoreError, statement};
use alloy::primitives::Address;
use sqlx::PgConnection;

/// A set of contracts, by its escrow, with the orders that have not ended or whose funds it still holds, and the commands
/// that are not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenInSet {
    pub escrow: Address,
    pub orders: u64,
    pub commands: u64,
}

impl OpenInSet {
    /// Nothing of it.
    pub const fn nothing(escrow: Address) -> Self {
        Self { escrow, orders: 0, commands: 0 }
    }
}

/// The sets of a chain in which something is open.
pub async fn list_open_sets(conn: &mut PgConnection, chain_id: u64) -> Result<Vec<OpenInSet>, StoreError> {
    let sql = "with open as (
             select terms from execution where terminal_at is null
             union all
             select terms from execution where held_until is not null and terminal_at is not null),
         orders as (
             select decode(substr(lower(terms -> 'escrows' ->> $1::text), 3), 'hex') as escrow, count(*) as count
             from open group by 1),
         commands as (
             select escrow, count(*) as count from chain_command
             where chain_id = $1 and state in ('pending', 'sent') group by escrow)
         select escrow, coalesce(orders.count, 0), coalesce(commands.count, 0)
         from orders full join commands using (escrow) where escrow is not null order by escrow";
    let rows: Vec<(Vec<u8>, i64, i64)> = statement::list(conn, sql, (bigint(chain_id),)).await?;
    let of = |(escrow, orders, commands): (Vec<u8>, i64, i64)| {
        Ok(OpenInSet {
            escrow: address("chain_command", &escrow)?,
            orders: unsigned("execution", orders)?,
            commands: unsigned("chain_command", commands)?,
        })
    };
    rows.into_iter().map(of).collect()
}
