//! Operations of the ledger that operators request and approve: withdrawals, returns of deposits, adjustments, sweeps of
//! fees, charges of a bank, transfers between providers, settlements of claims, gifts to the escrow.
//!
//! An operation has a permanent id given by its maker: a repetition changes nothing, a different operation under the id
//! is refused. It is checked when it is requested and again when it is approved, and posted under `operation:<id>` in
//! the transaction that approves it. Its version is the number of operations on its accounts: if another one was
//! approved in between, the request is out of date.

use dvp_domain::ledger::operation::{Adjusted, Direction, Operation, OperationError};
use dvp_domain::ledger::{Account, Claimant, Owner, Part};
use dvp_domain::money::Minor;
use dvp_store::ledger::{self, Deposited, NewPosting, balances};
use dvp_store::operators::approvals::{self as approval_store, Approval};
use dvp_store::orders::operations::{self as actions, NewAction};
use dvp_store::orders::quote_holds;
use dvp_store::reconcile::bank::{ChargedEntry, find_charge};
use dvp_store::reconcile::wallets::is_surplus;
use dvp_store::{PgConnection, StoreError};
use serde_json::{Value, json};

use crate::operators::requests::{self, Maker, RequestedChange, Wanted, begin, end};

/// The kind of requests about the ledger.
pub const LEDGER: &str = "ledger";

/// Why an operation was not requested or posted.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("id, operator, reason and evidence are needed")]
    NoReason,
    #[error(transparent)]
    Impossible(#[from] OperationError),
    #[error("the ledger knows no {0}")]
    UnknownOwner(String),
    #[error("the ledger knows no asset {0}")]
    UnknownAsset(String),
    #[error("there is no deposit {0} of this owner and asset")]
    UnknownDeposit(String),
    #[error("the deposit is less than what would have been sent back of it")]
    MoreThanDeposit,
    #[error("the id of a charge is the reference of the bank's entry")]
    OtherEntry,
    #[error("no statement has a debit of the amount with the reference {0} that is about nothing else")]
    UnknownEntry(String),
    #[error("the entry is the debit of a payment that was ordered")]
    EntryOfPayment,
    #[error("the entry was posted under another of its references")]
    EntryPosted,
    #[error("the last comparison found no surplus of the amount in the escrow")]
    NoSurplus,
    #[error("{0} is less than the amount")]
    Short(String),
    #[error("the id belongs to another operation")]
    Conflict,
    #[error("another operation on the same account was approved since: request it again")]
    Moved,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for LedgerError {
    fn from(error: StoreError) -> Self {
        match error.constraint() {
            Some("account_balance_not_negative") => Self::Short("what is available".to_owned()),
            _ => Self::Store(error),
        }
    }
}

/// Requests an operation under its id.
pub async fn request(
    conn: &mut PgConnection,
    id: &str,
    operation: &Operation,
    maker: Maker<'_>,
) -> Result<RequestedChange, LedgerError> {
    let given = [id, maker.operator, maker.reason, maker.evidence];
    if given.iter().any(|text| text.trim().is_empty()) {
        return Err(LedgerError::NoReason);
    }
    if let Operation::Charge { entry, .. } = operation
        && entry != id
    {
        return Err(LedgerError::OtherEntry);
    }
    let mut tx = begin(conn).await?;
    let requested = request_in(&mut tx, id, operation, maker).await;
    end(tx, requested).await
}

async fn request_in(
    conn: &mut PgConnection,
    id: &str,
    operation: &Operation,
    maker: Maker<'_>,
) -> Result<RequestedChange, LedgerError> {
    let details = requests::written(operation)?;
    let touches = operation.touches();
    approval_store::lock(conn).await?;
    let version = approval_store::count_touching(conn, &touches).await?;
    if let Some(standing) = requests::find_standing(conn, LEDGER, id, version).await? {
        let is_same = standing.details == details;
        return if is_same {
            Ok(RequestedChange { approval: standing, repeated: true })
        } else {
            Err(LedgerError::Conflict)
        };
    }
    check(conn, operation).await?;
    let action = operation.as_str();
    let wanted = Wanted { kind: LEDGER, subject: id, action, details: &details, touches: &touches, version };
    let request = requests::request(conn, &wanted, maker).await?;
    let Maker { operator, reason, evidence } = maker;
    let kept = json!({"evidence": evidence, "approval": request, "operation": details});
    record(conn, id, &format!("propose_{action}"), operator, reason, &kept, version).await?;
    let approval = approval_store::find(conn, &request).await?;
    let approval = approval.ok_or(LedgerError::Store(StoreError::Stale { what: "the request" }))?;
    Ok(RequestedChange { approval, repeated: false })
}

/// Posts an operation that `checker` approves.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
    checker: &str,
) -> Result<(), LedgerError> {
    let operation: Operation = requests::read(request)?;
    if approval_store::count_touching(conn, &operation.touches()).await? != request.version {
        return Err(LedgerError::Moved);
    }
    check(conn, &operation).await?;
    let reference = format!("operation:{}", request.subject);
    let new = NewPosting { reference, step: 1, posting: operation.posting()? };
    if ledger::insert_once(conn, &new).await? != Deposited::Posted {
        return Err(LedgerError::Conflict);
    }
    let kept = json!({"evidence": request.evidence, "approval": request.id, "proposedBy": request.maker,
                      "operation": request.details});
    record(conn, &request.subject, operation.as_str(), checker, &request.reason, &kept, request.version).await
}

async fn record(
    conn: &mut PgConnection,
    id: &str,
    action: &str,
    operator: &str,
    reason: &str,
    evidence: &Value,
    version: i64,
) -> Result<(), LedgerError> {
    let reference = format!("operation:{id}");
    let new = NewAction { reference: &reference, action, operator, reason, evidence, version };
    Ok(actions::insert_action(conn, &new).await?)
}

/// Checks that the ledger has the amounts that the operation takes.
async fn check(conn: &mut PgConnection, operation: &Operation) -> Result<(), LedgerError> {
    // All of them in the writer's locking order, and before the holds of firm quotes are read.
    balances::lock(conn, &operation.posting()?.balances().collect()).await?;
    let asset = operation.asset();
    if !balances::is_known(conn, None, Some(asset)).await? {
        return Err(LedgerError::UnknownAsset(asset.to_owned()));
    }
    match operation {
        Operation::Withdrawal { owner, amount, .. } => spend(conn, owner, asset, *amount).await,
        Operation::Return { owner, amount, deposit, .. } => {
            match ledger::deposit_covers(conn, deposit, owner, asset, *amount).await? {
                None => Err(LedgerError::UnknownDeposit(deposit.clone())),
                Some(false) => Err(LedgerError::MoreThanDeposit),
                Some(true) => spend(conn, owner, asset, *amount).await,
            }
        }
        Operation::Adjustment { account, direction, amount, .. } => match (account, direction) {
            (Adjusted::Available(owner), Direction::Debit) => spend(conn, owner, asset, *amount).await,
            (Adjusted::Available(owner), Direction::Credit) => known(conn, owner).await,
            (Adjusted::Owed(provider), Direction::Credit | Direction::Debit) => {
                known(conn, &Owner::Provider(provider.clone())).await
            }
            (Adjusted::Fees, Direction::Debit) => hold(conn, &Account::Fees, asset, *amount).await,
            (Adjusted::Fees, Direction::Credit) => Ok(()),
        },
        Operation::Charge { amount, entry, .. } => match find_charge(conn, entry, asset, *amount).await? {
            Some(ChargedEntry::Open) => Ok(()),
            Some(ChargedEntry::OfPayment) => Err(LedgerError::EntryOfPayment),
            Some(ChargedEntry::Posted) => Err(LedgerError::EntryPosted),
            None => Err(LedgerError::UnknownEntry(entry.clone())),
        },
        Operation::FeeSweep { amount, .. } => hold(conn, &Account::Fees, asset, *amount).await,
        Operation::Gift { amount, .. } if is_surplus(conn, asset, *amount).await? => Ok(()),
        Operation::Gift { .. } => Err(LedgerError::NoSurplus),
        Operation::Transfer { from, to, amount, .. } => {
            known(conn, &Owner::Provider(to.clone())).await?;
            spend(conn, &Owner::Provider(from.clone()), asset, *amount).await
        }
        Operation::ClaimSettlement { debtor, claimant, amount, .. } => {
            hold(conn, &Account::Claim(claimant.clone()), asset, *amount).await?;
            if ledger::owes(conn, &Account::Claim(debtor.clone()), asset, *amount).await? {
                return Ok(());
            }
            let debtor = match debtor {
                Claimant::Provider(id) => format!("what provider {id} owes"),
                Claimant::House => "what the house owes".to_owned(),
            };
            Err(LedgerError::Short(debtor))
        }
    }
}

pub(crate) async fn known(conn: &mut PgConnection, owner: &Owner) -> Result<(), LedgerError> {
    if balances::is_known(conn, Some(owner), None).await? {
        Ok(())
    } else {
        Err(LedgerError::UnknownOwner(owner.to_string()))
    }
}

pub(crate) async fn spend(
    conn: &mut PgConnection,
    owner: &Owner,
    asset: &str,
    amount: Minor,
) -> Result<(), LedgerError> {
    known(conn, owner).await?;
    let available = balances::find(conn, owner, asset).await?.available;
    // The amount held by open firm quotes belongs to others.
    let held = match owner {
        Owner::Provider(id) => quote_holds::find_held(conn, id, asset).await?,
        Owner::Partner { .. } => Minor::ZERO,
    };
    if available.checked_sub(held).is_some_and(|free| free >= amount) {
        return Ok(());
    }
    let (kind, name, _) = Account::Balance(owner.clone(), Part::Available).columns();
    Err(LedgerError::Short(format!("what {kind} {name} has available of {asset}")))
}

async fn hold(
    conn: &mut PgConnection,
    account: &Account,
    asset: &str,
    amount: Minor,
) -> Result<(), LedgerError> {
    if ledger::holds(conn, account, asset, amount).await? {
        return Ok(());
    }
    let (kind, owner, part) = account.columns();
    Err(LedgerError::Short(format!("{} of {asset}", [kind, &owner, part].join(":"))))
}
