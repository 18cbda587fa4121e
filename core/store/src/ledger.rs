//! Ledger entries. The database refuses a posting that does not balance per asset, keeps the limited balances equal
//! to their entries and above zero, and lets no entry be changed.

pub mod balances;
pub mod liquidity;

use std::collections::HashMap;

use dvp_domain::ledger::{Account, Move, Posting};
use sqlx::PgConnection;

use super::StoreError;

/// A posting to write.
#[derive(Debug, Clone)]
pub struct NewPosting {
    /// An execution, or a deposit's id.
    pub reference: String,
    /// The execution's version the step led to.
    pub step: i64,
    pub posting: Posting,
}

/// What became of a deposit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deposited {
    Posted,
    /// The same deposit was posted before.
    Repeated,
    /// The id stands for another deposit.
    Conflict,
}

#[derive(Default)]
pub(super) struct PostingColumns<'a> {
    pub(super) reference: Vec<&'a str>,
    pub(super) step: Vec<i64>,
    pub(super) line: Vec<i32>,
    pub(super) reason: Vec<&'static str>,
    pub(super) kind: Vec<&'static str>,
    pub(super) owner: Vec<String>,
    pub(super) part: Vec<&'static str>,
    pub(super) asset: Vec<&'a str>,
    pub(super) amount: Vec<String>,
}

impl<'a> PostingColumns<'a> {
    pub(super) fn of(postings: &'a [NewPosting]) -> Self {
        let mut all = Self::default();
        let mut lines: HashMap<(&str, i64), i32> = HashMap::new();
        for NewPosting { reference, step, posting } in postings {
            let line = lines.entry((reference, *step)).or_default();
            for Move { asset, from, to, amount } in &posting.moves {
                let amount = amount.to_numeric();
                for (account, amount) in [(from, format!("-{amount}")), (to, amount)] {
                    *line = line.saturating_add(1);
                    all.push((reference, *step, *line), posting.reason.as_str(), account, asset, amount);
                }
            }
        }
        all
    }

    fn push(
        &mut self,
        (reference, step, line): (&'a str, i64, i32),
        reason: &'static str,
        account: &Account,
        asset: &'a str,
        amount: String,
    ) {
        let (kind, owner, part) = account.columns();
        self.reference.push(reference);
        self.step.push(step);
        self.line.push(line);
        self.reason.push(reason);
        self.kind.push(kind);
        self.owner.push(owner);
        self.part.push(part);
        self.asset.push(asset);
        self.amount.push(amount);
    }
}

/// Posts a deposit once per reference.
pub(super) async fn insert_deposit(
    conn: &mut PgConnection,
    new: &NewPosting,
) -> Result<Deposited, StoreError> {
    let all = PostingColumns::of(std::slice::from_ref(new));
    let posted = sqlx::query(
        "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
         select $1, $2, l, 'deposit', k, o, p, a, m::numeric \
         from unnest($3::int4[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) as u (l, k, o, p, a, m) \
         on conflict on constraint ledger_entry_pkey do nothing",
    )
    .bind(&new.reference)
    .bind(new.step)
    .bind(&all.line)
    .bind(&all.kind)
    .bind(&all.owner)
    .bind(&all.part)
    .bind(&all.asset)
    .bind(&all.amount)
    .execute(&mut *conn)
    .await?
    .rows_affected();
    if posted > 0 || all.line.is_empty() {
        return Ok(Deposited::Posted);
    }
    let (same,): (i64,) = sqlx::query_as(
        "select count(*) from ledger_entry e \
         join unnest($3::int4[], $4::text[], $5::text[], $6::text[]) as u (line, owner, asset, amount) \
           on e.line = u.line and e.owner = u.owner and e.asset = u.asset and e.amount = u.amount::numeric \
         where e.reference = $1 and e.step = $2",
    )
    .bind(&new.reference)
    .bind(new.step)
    .bind(&all.line)
    .bind(&all.owner)
    .bind(&all.asset)
    .bind(&all.amount)
    .fetch_one(conn)
    .await?;
    let repeated = usize::try_from(same) == Ok(all.line.len());
    Ok(if repeated { Deposited::Repeated } else { Deposited::Conflict })
}

/// An account whose kept balance is not the sum of its entries. There are none, unless somebody wrote past the
/// database's own rules.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Disagreement {
    pub owner_kind: String,
    pub owner: String,
    pub asset: String,
    /// Available and reserved as kept, then as the entries sum up.
    pub kept: String,
    pub posted: String,
}

/// Compares every kept balance with its entries: reads the whole ledger.
pub async fn list_disagreements(conn: &mut PgConnection) -> Result<Vec<Disagreement>, StoreError> {
    Ok(sqlx::query_as(
        "select owner_kind, owner, asset, \
                coalesce(b.available, 0) || '/' || coalesce(b.reserved, 0) as kept, \
                coalesce(l.available, 0)::numeric(39, 0) || '/' || coalesce(l.reserved, 0)::numeric(39, 0) as posted \
         from account_balance b full join \
              (select owner_kind, owner, asset, \
                      sum(amount) filter (where part = 'available') as available, \
                      sum(amount) filter (where part = 'reserved') as reserved \
               from ledger_entry where part in ('available', 'reserved') group by owner_kind, owner, asset) l \
              using (owner_kind, owner, asset) \
         where coalesce(b.available, 0) <> coalesce(l.available, 0) \
            or coalesce(b.reserved, 0) <> coalesce(l.reserved, 0) \
         order by owner_kind, owner, asset limit 100",
    )
    .fetch_all(conn)
    .await?)
}
