//! What the target takes over of a partner.
//!
//! Its intents, which are many, come in commits of their own: most before the source closes it, the last ones after. All
//! else follows in one transaction with the step to `copied`.

use dvp_store::Acquire as _;
use dvp_store::moves::{self, CopiedRows, IntentKey, MoveRow};
use serde_json::Value;

use super::{MoveError, Side, parsed, set, taken};
use crate::secrets::{SealBroken, Vault};

const PAGE: i64 = 2_000;
/// So few intents that the source can be closed for the rest.
const FEW: usize = 200;
/// How often the partner's intents are gone through while it still places orders.
const ROUNDS_AHEAD: usize = 5;

/// Copies the intents of a partner that the source has not closed yet. Each round takes less time than the one before it,
/// and leaves what was accepted meanwhile.
pub(super) async fn copy_ahead(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    partner_id: &str,
) -> Result<(), MoveError> {
    for _ in 0..ROUNDS_AHEAD {
        if copy_intents(source, target, partner_id).await? <= FEW {
            break;
        }
    }
    Ok(())
}

/// Copies the intents that the target does not have. Returns how many there were. The target may have more: those of legacy
/// orders that it has executed since the partner left.
async fn copy_intents(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    partner_id: &str,
) -> Result<usize, MoveError> {
    let seed = moves::draw_seed(source.conn).await?;
    let (mut after, mut copied) = (IntentKey::default(), 0_usize);
    while let Some(page) = moves::find_intent_page(source.conn, partner_id, after, seed, PAGE).await? {
        if moves::has_intent_page(target.conn, partner_id, &page).await? {
            after = page.last;
        } else {
            let keys = moves::list_intent_keys(source.conn, partner_id, &page).await?;
            let missing = moves::list_missing_intents(target.conn, partner_id, &keys).await?;
            let rows = moves::list_intents(source.conn, partner_id, &missing).await?;
            moves::insert_intents(target.conn, &rows).await.map_err(taken)?;
            let still = moves::list_missing_intents(target.conn, partner_id, &missing).await?;
            if let Some(key) = still.into_iter().next() {
                return Err(MoveError::Incomplete(key.intent_id));
            }
            copied = copied.saturating_add(missing.len());
            after = keys.into_iter().next_back().unwrap_or(page.last);
        }
    }
    Ok(copied)
}

/// Copies all that a closed partner has.
pub(super) async fn copy(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    found: &MoveRow,
    operator: &str,
) -> Result<(), MoveError> {
    let known = moves::find(target.conn, &found.id).await?.ok_or(MoveError::NotApproved)?;
    if !is_arriving(found, known.state)? {
        if found.state != "moved" {
            // A source that was restored may have accepted orders since then.
            copy_intents(source, target, &found.partner_id).await?;
        }
        return Ok(());
    }
    // As long as the target is `arriving`, the source stays closed: no further ones come.
    copy_intents(source, target, &found.partner_id).await?;
    let mut tx = target.conn.begin().await?;
    let copied = {
        let mut inner = Side { conn: &mut tx, vault: target.vault };
        copy_in(source, &mut inner, found, operator).await
    };
    if copied.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    copied
}

/// `false`: everything was copied by an earlier run.
fn is_arriving(found: &MoveRow, state: String) -> Result<bool, MoveError> {
    match state.as_str() {
        "arriving" => Ok(true),
        // The source may be open again.
        "cancelled" => Err(MoveError::State { id: found.id.clone(), state }),
        _ => Ok(false),
    }
}

/// Two runs at once copy one after the other, by the lock of the move's row. The step is an entry of the audit log, which
/// others' entries wait for until the commit, so it comes last.
async fn copy_in(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    found: &MoveRow,
    operator: &str,
) -> Result<(), MoveError> {
    let state = moves::lock(target.conn, &found.id).await?.ok_or(MoveError::NotApproved)?;
    if !is_arriving(found, state)? {
        return Ok(());
    }
    for kind in CopiedRows::ALL {
        copy_rows(source, target, kind, &found.partner_id).await?;
    }
    super::step(target.conn, &found.id, ["arriving", "copied"], operator).await
}

async fn copy_rows(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    kind: CopiedRows,
    partner_id: &str,
) -> Result<(), MoveError> {
    let mut after = None;
    loop {
        let (mut rows, last) = moves::list_rows(source.conn, kind, partner_id, after, PAGE).await?;
        if last.is_none() {
            return Ok(());
        }
        after = last;
        for row in &mut rows {
            for (column, owner) in sealed_columns(kind) {
                *row = reseal(row, column, owner, [source.vault, target.vault])?;
            }
        }
        moves::insert_rows(target.conn, kind, &rows).await.map_err(taken)?;
    }
}

/// The encrypted columns of a row, and the column of the owner that they are bound to.
const fn sealed_columns(kind: CopiedRows) -> &'static [(&'static str, &'static str)] {
    match kind {
        CopiedRows::Keys => &[("sealed_secret", "id")],
        CopiedRows::Endpoints => &[("sealed_secret", "id"), ("sealed_next", "id")],
        CopiedRows::Partner
        | CopiedRows::RevokedKeys
        | CopiedRows::Instructions
        | CopiedRows::Limits
        | CopiedRows::LimitUse
        | CopiedRows::Pauses
        | CopiedRows::Beneficiaries
        | CopiedRows::Destinations
        | CopiedRows::Answers
        | CopiedRows::Nonces
        | CopiedRows::Deposits => &[],
    }
}

/// The row with a column's secret encrypted for the other cell. It is in the clear in memory only.
pub(super) fn reseal(
    row: &str,
    column: &str,
    owner: &str,
    [from, to]: [&Vault; 2],
) -> Result<String, MoveError> {
    let mut fields = parsed(row)?;
    let Some(text) = fields.get(column).and_then(Value::as_str) else { return Ok(row.to_owned()) };
    let owner = fields.get(owner).and_then(Value::as_str).unwrap_or_default();
    let broken = |_: SealBroken| MoveError::Sealed(owner.to_owned());
    let sealed = text.strip_prefix("\\x").and_then(|digits| hex::decode(digits).ok());
    let sealed = sealed.ok_or_else(|| MoveError::Sealed(owner.to_owned()))?;
    let secret = from.open(owner, &sealed).map_err(broken)?;
    let again = to.seal(owner, &secret).map_err(broken)?;
    set(&mut fields, column, Value::from(format!("\\x{}", hex::encode(again))));
    Ok(fields.to_string())
}
