//! Moves of which one cell has lost its part when it was restored to an earlier moment.
//!
//! A target that was restored takes everything again: the source has kept all of it, and its rows change no more. A source
//! that was restored has the partner open, as the target has. Two operators record the move by which it had left, and a
//! run of that move ends what the source has begun since.

use dvp_store::moves::{self, MoveRow};
use dvp_store::{PgConnection, StoreError, deployment, partners};

use super::{MoveError, PARTNER_MOVE, Side, Wanted, check_sides, row};
use crate::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// Requests that the source records the move by which the partner is open at the target.
pub async fn request_left(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    partner: &str,
    maker: Maker<'_>,
) -> Result<RequestedChange, MoveError> {
    let found = partners::find_partner(source.conn, partner).await?;
    let found = found.ok_or_else(|| MoveError::Unknown(partner.to_owned()))?;
    let here = deployment::find_cell(source.conn).await?.ok_or(MoveError::NoCell)?;
    let there = deployment::find_cell(target.conn).await?.ok_or(MoveError::NoCell)?;
    let came = moves::find_arrival(target.conn, &found.id, &here.to_string()).await?;
    let came = came.ok_or_else(|| MoveError::NotOpen { here, there })?;
    check_sides(source, target, &came).await?;
    check_lost(source.conn, &found.id).await?;
    let wanted = Wanted {
        partner: found.name,
        partner_id: found.id,
        source: here,
        target: there,
        left_by: Some(came.id),
    };
    let details = serde_json::to_value(&wanted).map_err(|error| StoreError::corrupt("approval", error))?;
    let change = SettingChange {
        kind: PARTNER_MOVE,
        subject: &wanted.partner_id,
        action: "record",
        details: &details,
    };
    Ok(requests::request_change(source.conn, change, maker).await?)
}

/// Refuses unless the partner is open here, or came here by a move that was not finished at the restored moment. Returns
/// that move.
async fn check_lost(conn: &mut PgConnection, partner_id: &str) -> Result<Option<MoveRow>, MoveError> {
    match moves::find_latest(conn, partner_id).await? {
        Some(latest) if latest.state == "copied" => Ok(Some(latest)),
        Some(latest) if latest.state != "open" => {
            Err(MoveError::UnderWay(format!("{} is {}", latest.id, latest.state)))
        }
        Some(_) | None => Ok(None),
    }
}

/// Closes the partner for the move that has taken it from here. Its next run looks at the target again.
pub(super) async fn carry_out_left(
    conn: &mut PgConnection,
    wanted: &Wanted,
    id: &str,
    checker: &str,
) -> Result<(), MoveError> {
    moves::lock_orders(conn).await?;
    let arrival = check_lost(conn, &wanted.partner_id).await?.map(|row| row.id);
    if let Some(arrival) = &arrival {
        // The partner has left since, so that it had been opened.
        moves::advance(conn, arrival, ["copied", "open"], checker.trim()).await?;
    }
    let closed = [arrival.as_deref(), Some(id)];
    if !moves::set_closed(conn, &wanted.partner_id, closed).await? {
        return Err(ChangeError::Moved.into());
    }
    let left = row(id, &wanted.partner_id, [wanted.source, wanted.target], "closed", checker);
    Ok(moves::insert(conn, &left).await?)
}

/// Has sessions copied again that the target has lost, unless the partner has left the target since.
pub(super) async fn send_lost_sessions(
    source: &mut PgConnection,
    target: &mut PgConnection,
    found: &MoveRow,
) -> Result<(), StoreError> {
    let latest = moves::find_latest(target, &found.partner_id).await?;
    if latest.is_none_or(|latest| latest.id != found.id) {
        return Ok(());
    }
    for session in moves::list_sessions(source, &found.partner_id).await? {
        if session.moved_by.as_deref() == Some(found.id.as_str())
            && !moves::has_session(target, &session.session_id, &found.id).await?
        {
            moves::note_lost(source, &session.session_id).await?;
        }
    }
    Ok(())
}
