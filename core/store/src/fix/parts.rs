//! The changes of FIX sessions in a batch of the writer.
//!
//! A reset of the numbers loses no report: the last number that the peer has received is durable with the session's
//! commits, and a reset renumbers the messages after it in the same commit.
//!
//! Kept by `core/tests/it/fix_parts.rs::a_reset_keeps_unseen_messages_in_order_and_marks_possible_resends` and
//! `fix-gateway/tests/it/resets.rs::every_report_survives_random_resets_and_disconnects`.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::number;
use super::outbound::{insert_outbound, move_kept};
use crate::fix::parked as fix_parked;
use crate::fix::rows::{FixNumbers, FixOrder, FixRows, Renumber};
use crate::{StoreError, statement};

/// The numbers of one session before and after all its parts of a batch.
struct Span {
    owner: Option<Uuid>,
    before: i64,
    after: i64,
    next_in: i64,
    seen_out: i64,
    written_out: i64,
    feed_position: Option<i64>,
    /// The inbound number is set, and may decrease.
    is_set: bool,
}

/// Writes the FIX parts of a batch, in the order given.
///
/// A part whose number before differs from the session's number (another owner wrote, or an earlier part failed), or
/// whose owner has lost the session's lease, makes
/// the whole call [`StoreError::Stale`]; [`list_next_out`](super::list_next_out) shows which parts are invalid.
pub async fn apply_parts(
    conn: &mut PgConnection,
    parts: &[(&FixNumbers, FixRows)],
) -> Result<(), StoreError> {
    if parts.is_empty() {
        return Ok(());
    }
    update_numbers(conn, &spans(parts)?).await?;
    let mut from = 0;
    for (at, (part, _)) in parts.iter().enumerate() {
        if let Some(Renumber::Reset(reset)) = &part.renumber {
            // A reset also covers the messages before it in the batch.
            insert_outbound(conn, parts.get(from..at).unwrap_or_default()).await?;
            move_kept(conn, &part.session_id, reset).await?;
            from = at;
        }
    }
    insert_outbound(conn, parts.get(from..).unwrap_or_default()).await?;
    fix_parked::apply(conn, parts).await?;
    insert_orders(conn, parts).await?;
    update_orders(conn, parts).await
}

fn spans<'a>(parts: &[(&'a FixNumbers, FixRows)]) -> Result<BTreeMap<&'a str, Span>, StoreError> {
    let mut spans: BTreeMap<&str, Span> = BTreeMap::new();
    for (part, _) in parts {
        let (before, after, next_in) =
            (number(part.next_out_before)?, number(part.next_out)?, number(part.next_in)?);
        let span = spans.entry(&part.session_id).or_insert(Span {
            owner: part.owner,
            before,
            after: before,
            next_in,
            seen_out: 0,
            written_out: 0,
            feed_position: None,
            is_set: false,
        });
        if span.after != before || span.owner != part.owner {
            return Err(StoreError::Stale { what: "fix session" });
        }
        span.after = after;
        let is_set = part.renumber.is_some();
        span.next_in = if is_set { next_in } else { span.next_in.max(next_in) };
        (span.seen_out, span.written_out) = (number(part.seen_out)?, number(part.written_out)?);
        span.feed_position = part.feed_position.or(span.feed_position);
        span.is_set |= is_set;
    }
    Ok(spans)
}

/// A reset, or an operator, sets the numbers; otherwise the inbound number only increases, as the feed position does.
///
/// The lease is read without a lock: when it changes hands meanwhile, the next owner's first write finds another number
/// than it loaded, or waits for this one and goes on from it.
async fn update_numbers(conn: &mut PgConnection, spans: &BTreeMap<&str, Span>) -> Result<(), StoreError> {
    let sql = "update fix_session s \
         set next_out = u.after, \
             next_in = case when u.is_set then u.next_in else greatest(s.next_in, u.next_in) end, \
             seen_out = u.seen_out, written_out = u.written_out, \
             feed_position = greatest(u.feed_position, s.feed_position) \
         from unnest($1::text[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bool[], \
                     $9::uuid[]) \
              as u (session_id, before, after, next_in, seen_out, written_out, feed_position, is_set, owner) \
         where s.session_id = u.session_id and s.next_out = u.before \
           and (u.owner is null \
                or exists (select from lease l where l.name = 'fix:' || u.session_id and l.owner = u.owner))";
    let parameters = (
        spans.keys().copied().collect::<Vec<_>>(),
        spans.values().map(|span| span.before).collect::<Vec<_>>(),
        spans.values().map(|span| span.after).collect::<Vec<_>>(),
        spans.values().map(|span| span.next_in).collect::<Vec<_>>(),
        spans.values().map(|span| span.seen_out).collect::<Vec<_>>(),
        spans.values().map(|span| span.written_out).collect::<Vec<_>>(),
        spans.values().map(|span| span.feed_position).collect::<Vec<_>>(),
        spans.values().map(|span| span.is_set).collect::<Vec<_>>(),
        spans.values().map(|span| span.owner).collect::<Vec<_>>(),
    );
    let done = statement::affected(conn, sql, parameters).await?;
    if usize::try_from(done) == Ok(spans.len()) {
        Ok(())
    } else {
        Err(StoreError::Stale { what: "fix session" })
    }
}

/// A ClOrdID that was used before makes the whole batch fail by its key; a caller checks for it first.
async fn insert_orders(conn: &mut PgConnection, parts: &[(&FixNumbers, FixRows)]) -> Result<(), StoreError> {
    let orders = orders_of(parts, |rows| &rows.orders);
    if orders.is_empty() {
        return Ok(());
    }
    let sql = "insert into fix_order (session_id, cl_ord_id, reference, intent_id, details, trading_day) \
         select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::int4[])";
    let parameters = (
        orders.iter().map(|(session, _)| *session).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.cl_ord_id.as_str()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.reference.as_deref()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.intent_id.as_str()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.details.clone()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.trading_day).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

/// An accepted order's identity never changes.
async fn update_orders(conn: &mut PgConnection, parts: &[(&FixNumbers, FixRows)]) -> Result<(), StoreError> {
    let orders = orders_of(parts, |rows| &rows.updates);
    if orders.is_empty() {
        return Ok(());
    }
    let sql = "update fix_order o set details = u.details, reference = u.reference \
         from unnest($1::text[], $2::text[], $3::jsonb[], $4::text[], $5::int4[]) \
              as u (session_id, cl_ord_id, details, reference, trading_day) \
         where o.session_id = u.session_id and o.cl_ord_id = u.cl_ord_id and o.trading_day = u.trading_day \
           and (o.reference is null or o.reference = u.reference)";
    let parameters = (
        orders.iter().map(|(session, _)| *session).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.cl_ord_id.as_str()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.details.clone()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.reference.as_deref()).collect::<Vec<_>>(),
        orders.iter().map(|(_, order)| order.trading_day).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

fn orders_of<'a>(
    parts: &'a [(&'a FixNumbers, FixRows)],
    of: impl Fn(&'a FixRows) -> &'a Vec<FixOrder>,
) -> Vec<(&'a str, &'a FixOrder)> {
    let of_part = |(part, rows): &'a (&'a FixNumbers, FixRows)| {
        of(rows).iter().map(|order| (part.session_id.as_str(), order))
    };
    parts.iter().flat_map(of_part).collect()
}
