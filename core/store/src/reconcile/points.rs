//! Where a comparison with a chain goes on: the last block up to which everything was read and agreed, and what was open
//! there.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use sqlx::{PgConnection, PgTransaction};

use super::subjects::ContractCount;
use crate::{StoreError, statement};

names! {
    /// What events up to a point have left open.
    pub enum OpenKind {
        /// Ids with funds in the escrow.
        Funds = "funds",
        /// Ids that no execution has on the chain.
        Entity = "entity",
        /// Anchored hashes that no receipt has.
        Anchor = "anchor",
    }
}

/// A point of a chain.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Point {
    pub block_number: i64,
    pub block_hash: Vec<u8>,
    /// When the whole history was read last.
    pub full_at: DateTime<Utc>,
}

/// A chain's point, unless the stored block there is another one by now.
pub async fn find_point(conn: &mut PgConnection, chain_id: i64) -> Result<Option<Point>, StoreError> {
    let sql = "select p.block_number, p.block_hash, p.full_at from reconciliation_point p \
         where p.chain_id = $1 and not exists (select from chain_block b \
             where b.chain_id = p.chain_id and b.number = p.block_number and b.canonical and b.hash <> p.block_hash)";
    statement::find(conn, sql, (chain_id,)).await
}

/// Forgets a chain's point when events above a block are taken back or added to.
pub async fn forget_above(
    conn: &mut PgConnection,
    chain_id: i64,
    block_number: i64,
) -> Result<(), StoreError> {
    let sql = "delete from reconciliation_point where chain_id = $1 and block_number > $2";
    statement::execute(conn, sql, (chain_id, block_number)).await
}

/// A point that a comparison has reached.
#[derive(Debug, Clone)]
pub struct NewPoint {
    pub chain_id: i64,
    pub point: Point,
    pub counts: Vec<ContractCount>,
    pub open: BTreeMap<&'static str, Vec<Vec<u8>>>,
}

impl NewPoint {
    pub fn new(chain_id: i64, point: Point) -> Self {
        Self { chain_id, point, counts: Vec::new(), open: BTreeMap::new() }
    }

    pub fn keep(&mut self, kind: OpenKind, entities: &[Vec<u8>]) {
        self.open.entry(kind.as_str()).or_default().extend_from_slice(entities);
    }
}

/// Moves a chain's point, with what is open there.
pub async fn set_point(tx: &mut PgTransaction<'_>, new: &NewPoint) -> Result<(), StoreError> {
    let NewPoint { chain_id, point, counts, open } = new;
    let sql = "insert into reconciliation_point (chain_id, block_number, block_hash, full_at) values ($1, $2, $3, \
         $4) on conflict on constraint reconciliation_point_pkey do update \
         set block_number = excluded.block_number, block_hash = excluded.block_hash, full_at = excluded.full_at";
    statement::execute(tx, sql, (chain_id, point.block_number, &point.block_hash, point.full_at)).await?;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let sql = "insert into reconciliation_count (chain_id, contract, last_seq, kept) \
         select $1, * from unnest($2::bytea[], $3::int8[], $4::int8[]) \
         on conflict on constraint reconciliation_count_pkey do update \
         set last_seq = excluded.last_seq, kept = excluded.kept";
    let parameters = (
        chain_id,
        counts.iter().map(|count| count.contract.as_slice()).collect::<Vec<_>>(),
        counts.iter().map(|count| number(count.last)).collect::<Vec<_>>(),
        counts.iter().map(|count| number(count.kept)).collect::<Vec<_>>(),
    );
    statement::execute(tx, sql, parameters).await?;
    let all =
        || open.iter().flat_map(|(kind, entities)| entities.iter().map(|entity| (*kind, entity.as_slice())));
    let (kinds, entities): (Vec<&str>, Vec<&[u8]>) = all().unzip();
    let sql = "delete from reconciliation_open o where o.chain_id = $1 \
           and not exists (select from unnest($2::text[], $3::bytea[]) as n (kind, entity) \
                           where (n.kind, n.entity) = (o.kind, o.entity))";
    statement::execute(tx, sql, (chain_id, &kinds, &entities)).await?;
    let sql = "insert into reconciliation_open (chain_id, kind, entity) \
         select $1, * from unnest($2::text[], $3::bytea[]) \
         on conflict on constraint reconciliation_open_pkey do nothing";
    statement::execute(tx, sql, (chain_id, kinds, entities)).await
}
