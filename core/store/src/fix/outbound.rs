//! Messages sent to peers, kept for resends.

use std::ops::RangeInclusive;

use sqlx::PgConnection;

use super::{number, unsigned};
use crate::fix::rows::{FixNumbers, FixOutbound, FixReset, FixRows};
use crate::{StoreError, statement};

/// The first stored messages of a range of numbers, ascending.
pub async fn list_outbound(
    conn: &mut PgConnection,
    session_id: &str,
    seqs: RangeInclusive<u64>,
    limit: i64,
) -> Result<Vec<FixOutbound>, StoreError> {
    let sql = "select seq, msg_type, body, sending_time, fraction_digits from fix_outbound \
         where session_id = $1 and seq between $2 and $3 order by seq limit $4";
    let rows: Vec<(i64, String, Vec<u8>, i64, i16)> =
        statement::list(conn, sql, (session_id, number(*seqs.start())?, number(*seqs.end())?, limit)).await?;
    rows.into_iter()
        .map(|(seq, msg_type, body, sending_time, fraction_digits)| {
            let corrupt = |_| StoreError::corrupt("fix_outbound", "a negative number");
            let seq = u64::try_from(seq).map_err(corrupt)?;
            let fraction_digits = u8::try_from(fraction_digits).map_err(corrupt)?;
            Ok(FixOutbound { seq, msg_type, body, sending_time, fraction_digits })
        })
        .collect()
}

/// The number of stored messages that a reset keeps: those after `seen_out` except those of stale types.
pub async fn count_kept(
    conn: &mut PgConnection,
    session_id: &str,
    seen_out: u64,
    stale_types: &[String],
) -> Result<u64, StoreError> {
    let sql = "select count(*) from fix_outbound where session_id = $1 and seq > $2 and msg_type <> all($3)";
    unsigned(statement::load_value(conn, sql, (session_id, number(seen_out)?, stale_types)).await?)
}

pub(super) async fn insert_outbound(
    conn: &mut PgConnection,
    parts: &[(&FixNumbers, FixRows)],
) -> Result<(), StoreError> {
    let messages: Vec<(&str, &FixOutbound)> = parts
        .iter()
        .flat_map(|(part, rows)| rows.outbound.iter().map(|message| (part.session_id.as_str(), message)))
        .collect();
    if messages.is_empty() {
        return Ok(());
    }
    let seqs: Result<Vec<i64>, StoreError> =
        messages.iter().map(|(_, message)| number(message.seq)).collect();
    let sql = "insert into fix_outbound (session_id, seq, msg_type, body, sending_time, fraction_digits) \
         select * from unnest($1::text[], $2::int8[], $3::text[], $4::bytea[], $5::int8[], $6::int2[])";
    let parameters = (
        messages.iter().map(|(session, _)| *session).collect::<Vec<_>>(),
        seqs?,
        messages.iter().map(|(_, message)| message.msg_type.as_str()).collect::<Vec<_>>(),
        messages.iter().map(|(_, message)| message.body.as_slice()).collect::<Vec<_>>(),
        messages.iter().map(|(_, message)| message.sending_time).collect::<Vec<_>>(),
        messages.iter().map(|(_, message)| i16::from(message.fraction_digits)).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

/// Deletes the stored messages of a session, and renumbers those that the peer may not have received.
///
/// A BusinessMessageReject loses its RefSeqNum(45): after the reset the number could be mistaken for that of another
/// message. BusinessRejectRefID(379) still identifies the rejected message.
pub(super) async fn move_kept(
    conn: &mut PgConnection,
    session_id: &str,
    reset: &FixReset,
) -> Result<(), StoreError> {
    // The window function reads every deleted row before the first one is inserted, so that numbers do not collide.
    let sql = "with gone as (delete from fix_outbound where session_id = $1 returning seq, msg_type, body, \
              sending_time, fraction_digits), \
              kept as (select seq, row_number() over (order by seq) - 1 + $4 as new_seq, msg_type, sending_time, \
                              fraction_digits, \
                              case when msg_type = 'j' and found > 0 \
                                   then substring(body from 1 for found - 1) \
                                        || substring(rest from position($8 in rest) + 1) \
                                   else body end as body \
                       from gone, position($7 in $8 || body) found, substring(body from found) rest \
                       where seq > $2 and msg_type <> all($5)) \
         insert into fix_outbound (session_id, seq, msg_type, body, sending_time, fraction_digits) \
         select $1, new_seq, msg_type, \
                case when seq <= $3 and substring(body from 1 for 5) <> $6 then $6 || body else body end, sending_time, \
                fraction_digits \
         from kept";
    let parameters = (
        session_id,
        number(reset.seen_out)?,
        number(reset.written_out)?,
        number(reset.first_kept)?,
        &reset.stale_types,
        &POSS_RESEND[..],
        &REF_SEQ_NUM[..],
        &SOH[..],
    );
    let done = statement::affected(conn, sql, parameters).await?;
    if done == reset.kept { Ok(()) } else { Err(StoreError::Stale { what: "fix session" }) }
}

/// PossResend(97)=Y before a body, from where it is moved into the header.
const POSS_RESEND: [u8; 5] = *b"97=Y\x01";

/// RefSeqNum(45) after the end of the field before it. No field of a BusinessMessageReject contains an SOH.
const REF_SEQ_NUM: [u8; 4] = *b"\x0145=";

const SOH: [u8; 1] = *b"\x01";
