//! What a cell writes for others, and the comparison with what another one wrote.

use dvp_domain::cell::CellId;
use dvp_domain::ids::TransferId;
use dvp_domain::reconcile::transfers::KnownTransfer;
use dvp_domain::time::Timestamp;
use dvp_domain::transfer::TransferState;
use dvp_domain::transfer::compare::{Compared, List, compare};
use dvp_domain::transfer::message::{Listed, Message};
use dvp_store::transfers::{self as store, KeptTransfer, TransferFilter};
use dvp_store::{Acquire as _, PgConnection, approvals};

use super::TransferError;
use super::keys::{CellKeys, DocumentError};

/// Transfers of a list that are read at a time.
const PAGE: i64 = 1_000;

/// The document of what this cell has committed about a transfer: the transfer itself where it was sent, the receipt or
/// the refusal where it was received or refused. It can be written again at any time.
pub async fn write_document(
    conn: &mut PgConnection,
    keys: &CellKeys,
    id: &TransferId,
) -> Result<String, TransferError> {
    let kept = store::find(conn, id).await?.ok_or_else(|| TransferError::Unknown(id.clone()))?;
    let (environment, transfer, at) = (keys.environment(), kept.transfer(keys.cell), kept.known.since);
    let message = match kept.known.state {
        TransferState::Sent | TransferState::Confirmed | TransferState::TakenBack => {
            Message::Transfer { environment, transfer }
        }
        TransferState::Received => Message::Receipt { environment, transfer, at },
        TransferState::Refused => Message::Refusal { environment, transfer, at },
        TransferState::Announced => return Err(TransferError::Undecided),
    };
    Ok(keys.sign(&message)?)
}

/// The signed list of all transfers with another cell, for the other one to compare.
pub async fn list_for(
    conn: &mut PgConnection,
    keys: &CellKeys,
    other: CellId,
) -> Result<String, TransferError> {
    keys.check_peer(other)?;
    let (at, transfers) = read(conn, other).await?;
    let (environment, cell) = (keys.environment(), keys.cell);
    Ok(keys.sign(&Message::Transfers { environment, cell, with: other, at, transfers })?)
}

/// Compares the transfers with another cell with the list that it has signed. Returns the cell, too.
pub async fn compare_with(
    conn: &mut PgConnection,
    keys: &CellKeys,
    document: &str,
    patience_ms: i64,
) -> Result<(CellId, Compared), TransferError> {
    let (cell, at, theirs) = match keys.open(document)? {
        Message::Transfers { cell, with, at, transfers, .. } if with == keys.cell => (cell, at, transfers),
        Message::Transfers { with, .. } => return Err(DocumentError::OtherAddressee(with).into()),
        other => return Err(DocumentError::OtherKind { wanted: "list", found: other.kind() }.into()),
    };
    let (here_at, ours) = read(conn, cell).await?;
    let (here, there) = (List { transfers: &ours, at: here_at }, List { transfers: &theirs, at });
    Ok((cell, compare(here, there, patience_ms)))
}

/// All transfers with a cell, and the time by which everything in them had been committed: changes take the same lock.
async fn read(conn: &mut PgConnection, cell: CellId) -> Result<(Timestamp, Vec<Listed>), TransferError> {
    let mut tx = conn.begin().await?;
    approvals::lock(&mut tx).await?;
    let at = store::now(&mut tx).await?;
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let after = all.last().map(|last| last.id.clone());
        let filter = TransferFilter { cell: Some(cell), is_open: false, after: after.as_ref(), limit: PAGE };
        let page = store::list(&mut tx, &filter).await?;
        let is_last = i64::try_from(page.len()).is_ok_and(|count| count < PAGE);
        all.extend(page.into_iter().map(listed));
        if is_last {
            break;
        }
    }
    tx.rollback().await?;
    Ok((at.into(), all))
}

fn listed(kept: KeptTransfer) -> Listed {
    let KeptTransfer { known, sent_at, .. } = kept;
    let KnownTransfer { id, owner, asset, amount, state, since, .. } = known;
    let direction = state.direction();
    Listed { id, direction, owner, asset, amount_minor: amount, state, sent_at: sent_at.into(), since }
}
