//! Ledger entries. The database refuses a posting that does not balance per asset, keeps the limited balances equal to
//! their entries and not negative, and refuses changes of entries.
//!
//! Kept by `core/tests/it/ledger.rs::entries_that_do_not_balance_per_asset_are_refused`,
//! `core/tests/it/ledger.rs::a_negative_balance_is_refused_by_the_database` and
//! `core/tests/it/ledger.rs::entries_are_never_changed`.

pub mod balances;
pub mod check;
pub mod closings;
pub mod rebuild;
pub mod statements;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::ledger::{Account, Move, Owner, Posting};
use dvp_domain::money::Minor;
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// The account whose entries a statement shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementAccount {
    pub kind: String,
    pub owner: String,
    pub part: String,
}

impl From<&Account> for StatementAccount {
    fn from(account: &Account) -> Self {
        let (kind, owner, part) = account.columns();
        Self { kind: kind.to_owned(), owner, part: part.to_owned() }
    }
}

impl StatementAccount {
    /// The reference of the order, for accounts of recipients and debts of single orders.
    fn reference(&self) -> Option<&str> {
        self.owner.starts_with("exe_").then_some(self.owner.as_str())
    }
}

#[derive(Debug, Clone)]
pub struct NewPosting {
    /// An execution, or a deposit's id.
    pub reference: String,
    /// The execution's version after the step.
    pub step: i64,
    pub posting: Posting,
}

/// The result of a posting that is made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deposited {
    Posted,
    /// The same posting was made before.
    Repeated,
    /// The id belongs to a different posting.
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

/// Posts once per reference: a deposit, or an operation by operators.
pub async fn insert_once(conn: &mut PgConnection, new: &NewPosting) -> Result<Deposited, StoreError> {
    let all = PostingColumns::of(std::slice::from_ref(new));
    let sql = "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
         select $1, $2, l, w, k, o, p, a, m::numeric \
         from unnest($3::int4[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]) \
              as u (l, w, k, o, p, a, m) \
         on conflict on constraint ledger_entry_pkey do nothing";
    let parameters = (
        &new.reference,
        new.step,
        &all.line,
        &all.reason,
        &all.kind,
        &all.owner,
        &all.part,
        &all.asset,
        &all.amount,
    );
    let posted = statement::affected(conn, sql, parameters).await?;
    if posted > 0 || all.line.is_empty() {
        return Ok(Deposited::Posted);
    }
    let sql = "select count(*) from ledger_entry e \
         join unnest($3::int4[], $4::text[], $5::text[], $6::text[]) as u (line, owner, asset, amount) \
           on e.line = u.line and e.owner = u.owner and e.asset = u.asset and e.amount = u.amount::numeric \
         where e.reference = $1 and e.step = $2";
    let parameters = (&new.reference, new.step, &all.line, &all.owner, &all.asset, &all.amount);
    let same: i64 = statement::load_value(conn, sql, parameters).await?;
    let repeated = usize::try_from(same) == Ok(all.line.len());
    Ok(if repeated { Deposited::Repeated } else { Deposited::Conflict })
}

/// Whether an account holds an amount.
pub async fn holds(
    conn: &mut PgConnection,
    account: &Account,
    asset: &str,
    amount: Minor,
) -> Result<bool, StoreError> {
    let held = load_balance(conn, account, asset).await?;
    Ok(u128::try_from(held).is_ok_and(|held| held >= amount.get()))
}

/// Whether an account owes an amount, that is, whether its balance is that far below zero.
pub async fn owes(
    conn: &mut PgConnection,
    account: &Account,
    asset: &str,
    amount: Minor,
) -> Result<bool, StoreError> {
    let held = load_balance(conn, account, asset).await?;
    Ok(held <= 0 && held.unsigned_abs() >= amount.get())
}

/// An account's balance without its fraction of a minor unit, from its last closing on.
async fn load_balance(conn: &mut PgConnection, account: &Account, asset: &str) -> Result<i128, StoreError> {
    let text = closings::load_balance_before(conn, &account.into(), asset, DateTime::<Utc>::MAX_UTC).await?;
    let whole = text.split_once('.').map_or(text.as_str(), |(whole, _)| whole);
    whole.parse().map_err(|error| StoreError::corrupt("ledger_entry", error))
}

/// Whether a deposit to an owner covers an amount in addition to what was sent back of it before. `None`: there is no
/// such deposit.
pub async fn deposit_covers(
    conn: &mut PgConnection,
    deposit_id: &str,
    owner: &Owner,
    asset: &str,
    amount: Minor,
) -> Result<Option<bool>, StoreError> {
    let sql = "select e.amount - coalesce((select sum((a.details ->> 'amount')::numeric) from approval a \
                                     where a.kind = 'ledger' and a.state = 'approved' and a.action = 'return' \
                                       and a.details ->> 'deposit' = $1), 0) >= $5::numeric \
         from ledger_entry e \
         where e.reference = 'deposit:' || $1 and e.reason = 'deposit' and e.owner_kind = $2 and e.owner = $3 \
           and e.part = 'available' and e.asset = $4";
    statement::find_value(conn, sql, (deposit_id, owner.kind(), owner.name(), asset, amount.to_string()))
        .await
}
