//! Deposits of partners and providers: money that has arrived. What a statement of the bank has booked one operator credits
//! to its owner. Without an entry one operator requests the credit in a live deployment, and another one approves it
//! ([`crate::operators::approvals`]).
//!
//! Invariant: a deposit is credited once by its id, with its operators, in one transaction, and an entry of the bank once,
//! whichever of its references is the id.
//!
//! Kept by `console/tests/it/faces.rs::one_operator_credits_what_the_bank_has_booked_and_only_once`.

use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_store::ledger::{Deposited, balances};
use dvp_store::operators::approvals::Approval;
use dvp_store::orders::operations::{self, NewAction};
use dvp_store::reconcile::bank;
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange, begin, end};

/// The kind of requests about deposits.
pub const DEPOSIT: &str = "deposit";

/// Money that has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deposit {
    /// The bank's reference, or the transaction.
    pub id: String,
    pub owner: Owner,
    pub asset: String,
    pub amount: Minor,
}

/// Why a deposit was not requested or credited.
#[derive(Debug, thiserror::Error)]
pub enum DepositError {
    #[error("{0} stands for another deposit")]
    Conflict(String),
    #[error("{0} was credited before")]
    Credited(String),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether a statement of the bank has booked this money, and nobody was credited with it yet. The entry is locked, so that
/// the credit is in the same transaction.
pub async fn lock_booked(conn: &mut PgConnection, deposit: &Deposit) -> Result<bool, StoreError> {
    bank::lock_credit(conn, &deposit.id, &deposit.asset, deposit.amount).await
}

/// Credits a deposit at once. A repetition changes nothing.
pub async fn credit(
    conn: &mut PgConnection,
    deposit: &Deposit,
    operator: &str,
    reason: &str,
) -> Result<Deposited, StoreError> {
    let mut tx = begin(conn).await?;
    let credited = credit_in(&mut tx, deposit, operator, reason).await;
    end(tx, credited).await
}

async fn credit_in(
    conn: &mut PgConnection,
    deposit: &Deposit,
    operator: &str,
    reason: &str,
) -> Result<Deposited, StoreError> {
    let Deposit { id, owner, asset, amount } = deposit;
    let noted = balances::deposit(conn, id, owner, asset, *amount).await?;
    if noted == Deposited::Posted {
        let evidence = json!({"owner": owner, "asset": asset, "amountMinor": amount});
        let reference = format!("deposit:{id}");
        let action = NewAction {
            reference: &reference,
            action: "deposit",
            operator,
            reason,
            evidence: &evidence,
            version: 1,
        };
        operations::insert_action(conn, &action).await?;
    }
    Ok(noted)
}

/// Requests that a deposit is credited.
pub async fn request(
    conn: &mut PgConnection,
    deposit: &Deposit,
    maker: Maker<'_>,
) -> Result<RequestedChange, DepositError> {
    let wanted = SettingChange { kind: DEPOSIT, subject: &deposit.id, action: "credit_deposit" };
    Ok(requests::request_change(conn, wanted, deposit, maker).await?)
}

/// Credits a deposit when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
    checker: &str,
) -> Result<(), DepositError> {
    let deposit: Deposit = requests::unmoved(conn, request).await?;
    match credit_in(conn, &deposit, checker, &request.reason).await? {
        Deposited::Posted => Ok(()),
        Deposited::Repeated => Err(DepositError::Credited(deposit.id)),
        Deposited::Conflict => Err(DepositError::Conflict(deposit.id)),
    }
}
