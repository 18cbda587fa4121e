//! Makes the projections of the ledger again from its entries: kept balances, closings, fees of closed days.
//!
//! Entries are the truth and are never changed: a rebuild is refused when they do not balance, or when a limited balance
//! would be below zero by them. The closed periods take no postings, so they are read while the service goes on;
//! postings are held up only while the balances are summed up from there on.
//!
//! Kept by `core/tests/it/ledger_rebuild.rs::orders_go_on_before_between_and_after_rebuilds` and
//! `core/tests/it/ledger_rebuild.rs::entries_that_do_not_balance_are_refused`.

use std::time::Duration;

use dvp_store::database::session::limit_transaction;
use dvp_store::ledger::rebuild::{self as store, Change, Entries, Negative, Unbalanced};
use dvp_store::orders::operations::{self as actions, NewAction};
use dvp_store::{Acquire as _, Fault, PgConnection, StoreError};
use serde_json::{Value, json};

use crate::ledger::statements::account_name;
use crate::operators::requests::Maker;

/// How long the transactions that post are waited for. Less than an order waits for a lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How many changes the audit log lists. It always has their number.
const LISTED: usize = 1000;

/// Why nothing was rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error("operator and reason are needed")]
    NoReason,
    #[error(
        "transactions that post or close have not ended within {} s: nothing was changed, try again",
        LOCK_WAIT.as_secs()
    )]
    Busy,
    #[error(
        "the entries of {} step {} do not balance: {} {} too much; entries are never changed, restore the database",
        .0.reference, .0.step, .0.sum, .0.asset
    )]
    Unbalanced(Unbalanced),
    #[error(
        "{} would hold {} {} by its entries; entries are never changed, restore the database",
        account_name(&.0.owner_kind, &.0.owner, &.0.part), .0.amount, .0.asset
    )]
    Negative(Negative),
    #[error(transparent)]
    Store(StoreError),
}

impl RebuildError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoReason => "ledger_rebuild_no_reason",
            Self::Busy => "ledger_busy",
            Self::Unbalanced(_) => "ledger_unbalanced",
            Self::Negative(_) => "ledger_balance_negative",
            Self::Store(_) => "ledger_rebuild_failed",
        }
    }
}

impl From<StoreError> for RebuildError {
    fn from(error: StoreError) -> Self {
        // Statements have no time limit here, so that only a lock can be waited for too long.
        if error.fault() == Fault::Slow { Self::Busy } else { Self::Store(error) }
    }
}

impl From<sqlx::Error> for RebuildError {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

/// Compares the projections with the entries and returns what differs, without changing anything or holding up
/// postings.
pub async fn compare(conn: &mut PgConnection) -> Result<Vec<Change>, RebuildError> {
    let mut tx = conn.begin().await?;
    let compared = compare_in(&mut tx, false).await;
    tx.rollback().await?;
    compared
}

/// Compares the projections with the entries, and replaces what differs in one transaction with its entry of the audit
/// log. Returns what was changed.
pub async fn rebuild(conn: &mut PgConnection, maker: Maker<'_>) -> Result<Vec<Change>, RebuildError> {
    if maker.operator.trim().is_empty() || maker.reason.trim().is_empty() {
        return Err(RebuildError::NoReason);
    }
    let mut tx = conn.begin().await?;
    let rebuilt = rebuild_in(&mut tx, maker).await;
    // Immediately: a transaction that is only dropped keeps its locks until the connection is used again.
    if rebuilt.as_ref().is_ok_and(|changes| !changes.is_empty()) {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    rebuilt
}

async fn rebuild_in(conn: &mut PgConnection, maker: Maker<'_>) -> Result<Vec<Change>, RebuildError> {
    let changes = compare_in(conn, true).await?;
    if changes.is_empty() {
        return Ok(changes);
    }
    store::replace_balances(conn).await?;
    let Maker { operator, reason, evidence } = maker;
    let listed: Vec<Value> = changes.iter().take(LISTED).map(view).collect();
    let kept = json!({"evidence": evidence, "count": changes.len(), "changes": listed});
    let new = NewAction {
        reference: "ledger",
        action: "rebuild_ledger",
        operator,
        reason,
        evidence: &kept,
        version: 0,
    };
    actions::insert_action(conn, &new).await?;
    Ok(changes)
}

/// The closings are replaced in the transaction, which the caller ends.
async fn compare_in(conn: &mut PgConnection, holds_postings: bool) -> Result<Vec<Change>, RebuildError> {
    limit_transaction(conn, LOCK_WAIT, Duration::ZERO).await?;
    check_balanced(conn, Entries::All).await?;
    let mut closings = store::rebuild_closings(conn).await?;
    if holds_postings {
        store::lock_balances(conn).await?;
        // What was posted meanwhile.
        check_balanced(conn, Entries::Open).await?;
    }
    store::sum_up_balances(conn).await?;
    if let Some(found) = store::find_negative(conn).await? {
        return Err(RebuildError::Negative(found));
    }
    let mut changes = store::list_changed_balances(conn).await?;
    changes.append(&mut closings);
    Ok(changes)
}

async fn check_balanced(conn: &mut PgConnection, entries: Entries) -> Result<(), RebuildError> {
    match store::find_unbalanced(conn, entries).await? {
        Some(found) => Err(RebuildError::Unbalanced(found)),
        None => Ok(()),
    }
}

/// A change as the audit log and the command line have it.
pub fn view(change: &Change) -> Value {
    let Change { projection, owner_kind, owner, part, asset, at, field, before, after } = change;
    let account = account_name(owner_kind, owner, part);
    let at = Some(at).filter(|at| !at.is_empty());
    json!({"projection": projection, "account": account, "asset": asset, "at": at, "field": field,
           "before": before, "after": after})
}
