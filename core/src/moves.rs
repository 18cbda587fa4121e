//! The move of a partner from one cell to another while its orders flow.
//!
//! ```text
//! source:  approved ──> closed ──> moved
//! target:  arriving ─────────> copied ──> open
//! ```
//!
//! Two operators decide it; then one runs it. Each arrow is a commit of one database, in the order arriving, closed,
//! copied, moved, open; a run that ends anywhere is continued by the next. From `closed` on the source accepts nothing
//! new of the partner, and the target accepts nothing before `open`: never both. `copied` holds all that the source ever
//! accepted, so that a repeated request is answered as it was, and never accepted again. What is open at the source ends
//! there, and what the partner has prefunded stays there until it is transferred ([`crate::transfers`]).
//!
//! FIX sessions follow one by one, each when its own orders have ended: it is disabled at the source, and copied with its
//! numbers, messages and ClOrdIDs. A drop copy follows when all orders have ended, reports what happened at the target
//! since it was opened, and has to come before the partner moves again.
//!
//! A partner returns to a cell that it has left by another move. The rows that this cell still has of the partner are
//! updated ([`CopiedRows`]). Once the partner is `arriving` there, the move by which it left cannot be continued.
//!
//! A cell that was restored to an earlier moment has lost its part of a move: `restored`.

mod copying;
mod late;
mod restored;
mod sessions;

use dvp_domain::cell::CellId;
use dvp_domain::ledger::Owner;
use dvp_store::approvals::Approval;
use dvp_store::ledger::balances::{self, BalanceRow};
use dvp_store::moves::{self, CopiedRows, MoveRow};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy;
use dvp_store::{Acquire as _, PgConnection, StoreError, deployment, partners};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::restored::request_left;
use crate::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};
use crate::secrets::{SHARED, Vault};

pub use sessions::FailedSession;

/// The kind of requests about moves.
pub const PARTNER_MOVE: &str = "partner_move";

/// What another operator approves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    partner: String,
    partner_id: String,
    source: CellId,
    target: CellId,
    /// The move by which the partner has left already, of a source that was restored to before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_by: Option<String>,
}

/// Why a partner does not move.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("there is no partner {0}")]
    Unknown(String),
    #[error("this database has no cell: configure [cell] and run dvp migrate")]
    NoCell,
    #[error("the partner is in cell {0} already")]
    SameCell(CellId),
    #[error("a move of the partner is under way: {0}")]
    UnderWay(String),
    #[error("no move of the partner was approved: request one")]
    NotApproved,
    #[error("no move from cell {here} is open in cell {there}")]
    NotOpen { here: CellId, there: CellId },
    #[error("the move {id} is {state}")]
    State { id: String, state: String },
    #[error(
        "the move is from cell {source_cell} to cell {target}, and the configurations are of {given} and {given_target}"
    )]
    OtherCells { source_cell: String, target: String, given: String, given_target: String },
    #[error("both cells need the same cell.shared_key")]
    SharedKey,
    #[error("the databases have schemas {0} and {1}: bring both to the same version")]
    Schema(i64, i64),
    #[error("the databases belong to a test and to a live deployment")]
    Environment,
    #[error("the partner cannot be moved now: {}", .0.join("; "))]
    Obstacles(Vec<String>),
    #[error("the target has the partner already, and no move has taken it from there")]
    Occupied,
    #[error("the move {id} took sessions from the target that their next cell does not have yet: run that move again first ({})", .sessions.join(", "))]
    Between { id: String, sessions: Vec<String> },
    #[error("another partner of the target has the name, a key, or a session of this one: {0}")]
    Taken(String),
    #[error("the target has not taken the used intentId {0}")]
    Incomplete(String),
    #[error("a secret of {0} does not open with the master keys of its cell")]
    Sealed(String),
    #[error("sessions did not move: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Sessions(Vec<FailedSession>),
    #[error("operator and reason are needed")]
    NoReason,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for MoveError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Requests that a partner moves to another cell. The databases of both are compared when it is run.
pub async fn request(
    conn: &mut PgConnection,
    partner: &str,
    target: CellId,
    maker: Maker<'_>,
) -> Result<RequestedChange, MoveError> {
    let found = partners::find_partner(conn, partner).await?;
    let found = found.ok_or_else(|| MoveError::Unknown(partner.to_owned()))?;
    let source = deployment::find_cell(conn).await?.ok_or(MoveError::NoCell)?;
    if source == target {
        return Err(MoveError::SameCell(source));
    }
    check_free(conn, &found.id).await?;
    let wanted = Wanted { partner: found.name, partner_id: found.id, source, target, left_by: None };
    let details = serde_json::to_value(&wanted).map_err(|error| StoreError::corrupt("approval", error))?;
    let change =
        SettingChange { kind: PARTNER_MOVE, subject: &wanted.partner_id, action: "move", details: &details };
    Ok(requests::request_change(conn, change, maker).await?)
}

/// Refuses a partner whose move is unfinished, or that has left this cell.
async fn check_free(conn: &mut PgConnection, partner_id: &str) -> Result<(), MoveError> {
    match moves::find_latest(conn, partner_id).await? {
        Some(latest) if !["open", "cancelled"].contains(&latest.state.as_str()) => {
            Err(MoveError::UnderWay(format!("{} is {}", latest.id, latest.state)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Records the decided move when another operator approves it. Nothing is closed yet.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
    checker: &str,
) -> Result<(), MoveError> {
    requests::check_unmoved(conn, request).await?;
    let wanted: Wanted = serde_json::from_value(request.details.clone())
        .map_err(|error| StoreError::corrupt("approval", error))?;
    if let Some(left_by) = &wanted.left_by {
        return restored::carry_out_left(conn, &wanted, left_by, checker).await;
    }
    check_free(conn, &wanted.partner_id).await?;
    let decided = row(&request.id, &wanted.partner_id, [wanted.source, wanted.target], "approved", checker);
    Ok(moves::insert(conn, &decided).await?)
}

fn row(id: &str, partner_id: &str, [source, target]: [CellId; 2], state: &str, operator: &str) -> MoveRow {
    MoveRow {
        id: id.to_owned(),
        partner_id: partner_id.to_owned(),
        source: source.to_string(),
        target: target.to_string(),
        state: state.to_owned(),
        operator: operator.trim().to_owned(),
        since: chrono::DateTime::UNIX_EPOCH,
        closed_before: None,
    }
}

/// One of the two cells of a move.
pub struct Side<'a> {
    pub conn: &'a mut PgConnection,
    pub vault: &'a Vault,
}

/// How far a move is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    pub id: String,
    pub partner_id: String,
    pub source: String,
    pub target: String,
    pub source_state: String,
    pub target_state: Option<String>,
    /// Executions at the source that have not ended. They end there.
    pub open_at_source: i64,
    /// Waiting legacy orders that the source pays to another account than the target's standing instruction.
    pub redirected_orders: i64,
    /// What keeps the partner from being closed.
    pub obstacles: Vec<String>,
    /// Prefunded money at the source, which transfers between cells take to the target.
    pub balances: Vec<HeldBalance>,
    pub sessions: Vec<SessionProgress>,
}

/// Prefunded money in minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBalance {
    pub asset: String,
    pub available_minor: String,
    /// Promised to open orders, which end at the source.
    pub reserved_minor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionProgress {
    pub session_id: String,
    /// `waits`: for the end of its orders; `ready`, `moved`; `disabled`: it stays.
    pub state: &'static str,
}

/// How far the partner's latest move is.
pub async fn progress(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    partner: &str,
) -> Result<Progress, MoveError> {
    let found = decided(source.conn, partner).await?;
    let target_state = moves::find(target.conn, &found.id).await?.map(|row| row.state);
    let is_open = target_state.as_deref() == Some("open");
    let mut obstacles = Vec::new();
    if found.state == "approved" {
        obstacles.extend(moves::list_obstacles(source.conn, &found.partner_id, SHARED).await?);
        obstacles.extend(drop_copies_behind(source.conn, target.conn, &found).await?);
    }
    let sessions = moves::list_sessions(source.conn, &found.partner_id).await?.into_iter().map(|one| {
        let state = match (&one.moved_by, one.enabled, one.is_busy) {
            (Some(_), _, _) => "moved",
            (None, false, _) => "disabled",
            (None, true, true) => "waits",
            (None, true, false) => "ready",
        };
        SessionProgress { session_id: one.session_id, state }
    });
    let sessions = sessions.collect();
    Ok(Progress {
        open_at_source: moves::count_open(source.conn, &found.partner_id).await?,
        redirected_orders: redirected(source.conn, target.conn, &found.partner_id, is_open).await?,
        balances: held(source.conn, &found.partner_id).await?,
        obstacles,
        id: found.id,
        partner_id: found.partner_id,
        source: found.source,
        target: found.target,
        source_state: found.state,
        target_state,
        sessions,
    })
}

async fn decided(conn: &mut PgConnection, partner: &str) -> Result<MoveRow, MoveError> {
    let found = partners::find_partner(conn, partner).await?;
    let found = found.ok_or_else(|| MoveError::Unknown(partner.to_owned()))?;
    let latest = moves::find_latest(conn, &found.id).await?;
    let latest = latest.filter(|latest| ["approved", "closed", "moved"].contains(&latest.state.as_str()));
    latest.ok_or(MoveError::NotApproved)
}

/// The number of orders that wait at the source for another account than the target's instruction. `is_open`: the target
/// has opened the partner, so that its instructions are the partner's.
async fn redirected(
    source: &mut PgConnection,
    target: &mut PgConnection,
    partner_id: &str,
    is_open: bool,
) -> Result<i64, StoreError> {
    let mut number = 0;
    if is_open {
        for waiting in legacy::list_waiting_payees(source, partner_id).await? {
            let tenant = Tenant { partner_id: partner_id.to_owned(), livemode: waiting.livemode };
            let named = legacy::find_instruction(target, &tenant, &waiting.asset).await?;
            number += if named.is_none_or(|named| named == waiting.account) { 0 } else { waiting.orders };
        }
    }
    Ok(number)
}

/// What the partner has at the source.
async fn held(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<HeldBalance>, StoreError> {
    let livemode = deployment::find_environment(conn).await?.is_some_and(|environment| environment.is_live());
    let rows = balances::list_of(conn, &Owner::Partner { id: partner_id.to_owned(), livemode }).await?;
    let held = rows.into_iter().map(|BalanceRow { asset, available, reserved, .. }| HeldBalance {
        asset,
        available_minor: available,
        reserved_minor: reserved,
    });
    Ok(held.collect())
}

/// Moves the partner as far as it can be moved now. To run it again continues it.
pub async fn run(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    partner: &str,
    operator: &str,
) -> Result<Progress, MoveError> {
    if operator.trim().is_empty() {
        return Err(MoveError::NoReason);
    }
    let found = decided(source.conn, partner).await?;
    check_sides(source, target, &found).await?;
    if found.state == "approved" {
        // Before the target is `arriving`: then the move that would bring them cannot be continued.
        let behind = drop_copies_behind(source.conn, target.conn, &found).await?;
        if !behind.is_empty() {
            return Err(MoveError::Obstacles(behind));
        }
        arrive(source, target, &found, operator).await?;
        close(source.conn, &found, operator).await?;
    } else if moves::find(target.conn, &found.id).await?.is_none() {
        // The target was restored to an earlier moment.
        arrive(source, target, &found, operator).await?;
    }
    copying::copy(source, target, &found, operator).await?;
    step(source.conn, &found.id, ["closed", "moved"], operator).await?;
    open(source.conn, target.conn, &found, operator).await?;
    restored::send_lost_sessions(source.conn, target.conn, &found).await?;
    sessions::follow(source, target, &found, operator).await?;
    progress(source, target, partner).await
}

/// A drop copy reports the orders of one cell after those of the other. So it comes before the partner leaves again: it
/// would never report the orders of a cell that it has not been in.
async fn drop_copies_behind(
    source: &mut PgConnection,
    target: &mut PgConnection,
    found: &MoveRow,
) -> Result<Vec<String>, StoreError> {
    let mut behind = moves::list_behind(source, &found.partner_id, &found.target).await?;
    behind.extend(moves::list_staying(target, &found.partner_id).await?);
    Ok(behind)
}

async fn check_sides(source: &mut Side<'_>, target: &mut Side<'_>, found: &MoveRow) -> Result<(), MoveError> {
    let given = deployment::find_cell(source.conn).await?.ok_or(MoveError::NoCell)?.to_string();
    let given_target = deployment::find_cell(target.conn).await?.ok_or(MoveError::NoCell)?.to_string();
    if (&given, &given_target) != (&found.source, &found.target) {
        let (source_cell, target) = (found.source.clone(), found.target.clone());
        return Err(MoveError::OtherCells { source_cell, target, given, given_target });
    }
    let schemas = (moves::schema_version(source.conn).await?, moves::schema_version(target.conn).await?);
    if schemas.0 != schemas.1 {
        return Err(MoveError::Schema(schemas.0, schemas.1));
    }
    let proof = source.vault.shared_proof();
    if proof.is_none() || proof != target.vault.shared_proof() {
        return Err(MoveError::SharedKey);
    }
    let environments =
        (deployment::find_environment(source.conn).await?, deployment::find_environment(target.conn).await?);
    if environments.0 != environments.1 {
        return Err(MoveError::Environment);
    }
    Ok(())
}

async fn step(conn: &mut PgConnection, id: &str, states: [&str; 2], operator: &str) -> Result<(), MoveError> {
    if moves::advance(conn, id, states, operator.trim()).await? {
        return Ok(());
    }
    let now = moves::find(conn, id).await?.ok_or(MoveError::NotApproved)?;
    if now.state == states[1] { Ok(()) } else { Err(MoveError::State { id: now.id, state: now.state }) }
}

/// The partner exists at the target, closed, with the intentIds that it has used so far: nearly all of them, so that few
/// are left to be copied while it is closed at both.
async fn arrive(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    found: &MoveRow,
    operator: &str,
) -> Result<(), MoveError> {
    let known = moves::find(target.conn, &found.id).await?;
    if known.is_none() {
        let leaving = moves::list_sessions(source.conn, &found.partner_id).await?.into_iter();
        let leaving: Vec<String> = leaving.filter(|one| one.enabled).map(|one| one.session_id).collect();
        if let Some(session) = moves::list_present(target.conn, &leaving).await?.into_iter().next() {
            return Err(MoveError::Taken(session));
        }
        let (mut rows, _) =
            moves::list_rows(source.conn, CopiedRows::Partner, &found.partner_id, None, 1).await?;
        let closed_by = Value::from(found.id.as_str());
        for row in &mut rows {
            let mut fields = parsed(row)?;
            set(&mut fields, "closed_by", closed_by.clone());
            *row = fields.to_string();
        }
        let mut tx = target.conn.begin().await?;
        let arrived = arrive_in(&mut tx, found, rows, operator).await;
        if arrived.is_ok() {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        arrived?;
    }
    copying::copy_ahead(source, target, &found.partner_id).await
}

async fn arrive_in(
    tx: &mut PgConnection,
    found: &MoveRow,
    rows: Vec<String>,
    operator: &str,
) -> Result<(), MoveError> {
    let closed_before = match moves::find_closer(tx, &found.partner_id).await? {
        Some(closer) => {
            let closer = closer.ok_or(MoveError::Occupied)?;
            let earlier = moves::find(tx, &closer).await?.ok_or(MoveError::Occupied)?;
            let before = take_over(tx, earlier, operator).await?;
            moves::set_closed(tx, &found.partner_id, [Some(&closer), Some(&found.id)]).await?;
            before
        }
        None => None,
    };
    moves::insert_rows(tx, CopiedRows::Partner, &rows).await.map_err(taken)?;
    let operator = operator.trim().to_owned();
    let arriving = MoveRow { state: "arriving".to_owned(), operator, closed_before, ..found.clone() };
    moves::insert(tx, &arriving).await.map_err(taken)
}

/// Takes over from the move that has closed the partner at the target. Returns the move by which the partner left the
/// target; `None`: it was never open there.
async fn take_over(
    tx: &mut PgConnection,
    earlier: MoveRow,
    operator: &str,
) -> Result<Option<String>, MoveError> {
    match earlier.state.as_str() {
        "moved" => {
            let sessions = moves::list_between(tx, &earlier.partner_id).await?;
            if sessions.is_empty() {
                Ok(Some(earlier.id))
            } else {
                Err(MoveError::Between { id: earlier.id, sessions })
            }
        }
        // Its source has ended it: this one was approved after it.
        "arriving" => {
            moves::advance(tx, &earlier.id, ["arriving", "cancelled"], operator.trim()).await?;
            Ok(earlier.closed_before)
        }
        "cancelled" => Ok(earlier.closed_before),
        _ => Err(MoveError::Occupied),
    }
}

fn taken(error: StoreError) -> MoveError {
    match error.constraint() {
        Some(constraint) if error.is_unique_violation() => MoveError::Taken(constraint.to_owned()),
        _ => error.into(),
    }
}

/// From the commit on the source accepts nothing new of the partner.
async fn close(conn: &mut PgConnection, found: &MoveRow, operator: &str) -> Result<(), MoveError> {
    let mut tx = conn.begin().await?;
    moves::lock_orders(&mut tx).await?;
    let hindering = moves::list_obstacles(&mut tx, &found.partner_id, SHARED).await?;
    if !hindering.is_empty() {
        tx.rollback().await?;
        return Err(MoveError::Obstacles(hindering));
    }
    let is_closed = moves::set_closed(&mut tx, &found.partner_id, [None, Some(&found.id)]).await?
        && moves::advance(&mut tx, &found.id, ["approved", "closed"], operator.trim()).await?;
    if is_closed {
        tx.commit().await?;
        return Ok(());
    }
    tx.rollback().await?;
    step(conn, &found.id, ["approved", "closed"], operator).await
}

fn parsed(row: &str) -> Result<Value, StoreError> {
    serde_json::from_str(row).map_err(|error| StoreError::corrupt("partner", error))
}

fn set(row: &mut Value, column: &str, value: Value) {
    if let Some(fields) = row.as_object_mut() {
        fields.insert(column.to_owned(), value);
    }
}

/// The target accepts the partner's new orders: the source never will again.
async fn open(
    source: &mut PgConnection,
    target: &mut PgConnection,
    found: &MoveRow,
    operator: &str,
) -> Result<(), MoveError> {
    let drop_copies = moves::list_drop_copies(source, found).await?;
    let mut tx = target.begin().await?;
    let is_open = moves::set_closed(&mut tx, &found.partner_id, [Some(&found.id), None]).await?
        && moves::open(&mut tx, &found.id, operator.trim(), &drop_copies).await?;
    if is_open {
        tx.commit().await?;
        return Ok(());
    }
    tx.rollback().await?;
    step(target, &found.id, ["copied", "open"], operator).await
}

/// Ends a move before anything was copied: the partner stays at the source, and its orders are accepted there again.
pub async fn cancel(
    source: &mut PgConnection,
    target: &mut PgConnection,
    partner: &str,
    operator: &str,
) -> Result<MoveRow, MoveError> {
    if operator.trim().is_empty() {
        return Err(MoveError::NoReason);
    }
    let found = decided(source, partner).await?;
    if found.state == "moved" {
        return Err(MoveError::State { id: found.id, state: found.state });
    }
    // The target first: a run at the same time cannot copy any more, so that the source never becomes `moved`.
    if let Some(there) = moves::find(target, &found.id).await? {
        let mut tx = target.begin().await?;
        let is_ended = moves::advance(&mut tx, &found.id, ["arriving", "cancelled"], operator.trim()).await?;
        if let Some(before) = there.closed_before.filter(|_| is_ended) {
            moves::set_closed(&mut tx, &found.partner_id, [Some(&found.id), Some(&before)]).await?;
        }
        tx.commit().await?;
        if !is_ended {
            step(target, &found.id, ["arriving", "cancelled"], operator).await?;
        }
    }
    let mut tx = source.begin().await?;
    let is_ended = moves::advance(&mut tx, &found.id, ["approved", "cancelled"], operator.trim()).await?
        || moves::advance(&mut tx, &found.id, ["closed", "cancelled"], operator.trim()).await?;
    moves::set_closed(&mut tx, &found.partner_id, [Some(&found.id), None]).await?;
    tx.commit().await?;
    let now = moves::find(source, &found.id).await?.ok_or(MoveError::NotApproved)?;
    if is_ended { Ok(now) } else { Err(MoveError::State { id: now.id, state: now.state }) }
}
