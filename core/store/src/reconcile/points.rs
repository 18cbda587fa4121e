//! Where a comparison with a chain goes on: the last block up to which everything was read and agreed, and what was open
//! there.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use super::subjects::ContractCount;
use crate::StoreError;

/// What events up to a point have left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenKind {
    /// Ids with funds in the escrow.
    Funds,
    /// Ids that no execution has on the chain.
    Entity,
    /// Anchored hashes that no receipt has.
    Anchor,
}

impl OpenKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Funds => "funds",
            Self::Entity => "entity",
            Self::Anchor => "anchor",
        }
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
    let row = sqlx::query_as(
        "select p.block_number, p.block_hash, p.full_at from reconciliation_point p \
         where p.chain_id = $1 and not exists (select from chain_block b \
             where b.chain_id = p.chain_id and b.number = p.block_number and b.canonical and b.hash <> p.block_hash)",
    );
    Ok(row.bind(chain_id).fetch_optional(conn).await?)
}

/// Forgets a chain's point when events above a block are taken back or added to.
pub async fn forget_above(
    conn: &mut PgConnection,
    chain_id: i64,
    block_number: i64,
) -> Result<(), StoreError> {
    sqlx::query("delete from reconciliation_point where chain_id = $1 and block_number > $2")
        .bind(chain_id)
        .bind(block_number)
        .execute(conn)
        .await?;
    Ok(())
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
    sqlx::query(
        "insert into reconciliation_point (chain_id, block_number, block_hash, full_at) values ($1, $2, $3, $4) \
         on conflict on constraint reconciliation_point_pkey do update \
         set block_number = excluded.block_number, block_hash = excluded.block_hash, full_at = excluded.full_at",
    )
    .bind(chain_id)
    .bind(point.block_number)
    .bind(&point.block_hash)
    .bind(point.full_at)
    .execute(&mut **tx)
    .await?;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    sqlx::query(
        "insert into reconciliation_count (chain_id, contract, last_seq, kept) \
         select $1, * from unnest($2::bytea[], $3::int8[], $4::int8[]) \
         on conflict on constraint reconciliation_count_pkey do update \
         set last_seq = excluded.last_seq, kept = excluded.kept",
    )
    .bind(chain_id)
    .bind(counts.iter().map(|count| count.contract.as_slice()).collect::<Vec<_>>())
    .bind(counts.iter().map(|count| number(count.last)).collect::<Vec<_>>())
    .bind(counts.iter().map(|count| number(count.kept)).collect::<Vec<_>>())
    .execute(&mut **tx)
    .await?;
    let all =
        || open.iter().flat_map(|(kind, entities)| entities.iter().map(|entity| (*kind, entity.as_slice())));
    let (kinds, entities): (Vec<&str>, Vec<&[u8]>) = all().unzip();
    sqlx::query(
        "delete from reconciliation_open o where o.chain_id = $1 \
           and not exists (select from unnest($2::text[], $3::bytea[]) as n (kind, entity) \
                           where (n.kind, n.entity) = (o.kind, o.entity))",
    )
    .bind(chain_id)
    .bind(&kinds)
    .bind(&entities)
    .execute(&mut **tx)
    .await?;
    sqlx::query(
        "insert into reconciliation_open (chain_id, kind, entity) \
         select $1, * from unnest($2::text[], $3::bytea[]) \
         on conflict on constraint reconciliation_open_pkey do nothing",
    )
    .bind(chain_id)
    .bind(kinds)
    .bind(entities)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
