//! Lists of orders for operators, newest first, a page at a time. Each view is read by an index of its own, so that a
//! page costs the same among a million orders.

use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use dvp_domain::settlement::State;
use sqlx::PgConnection;

use crate::{StoreError, statement};

names! {
    #[derive(Default)]
    pub enum OrderView {
        #[default]
        All = "all",
        /// They have not ended.
        Open = "open",
        /// They have not ended, do not rest, and were accepted ten minutes ago or earlier.
        Stuck = "stuck",
        /// They ended without their output.
        Unfilled = "unfilled",
        /// An alarm about their payment is open.
        Alarmed = "alarmed",
    }
}

#[derive(Debug, Clone, Default)]
pub struct OrderFilter<'a> {
    pub view: OrderView,
    pub partner: Option<&'a str>,
    pub state: Option<&'a str>,
    /// Accepted at this time or later, and before that one.
    pub from: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
    /// Before this one.
    pub before: Option<(DateTime<Utc>, &'a str)>,
    pub limit: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct OrderRow {
    pub reference: String,
    pub partner: String,
    pub intent_id: String,
    pub client_reference: Option<String>,
    pub state: String,
    pub accepted_at: DateTime<Utc>,
    pub terminal_at: Option<DateTime<Utc>>,
    pub input_asset: String,
    pub input_amount: String,
    pub input_exponent: i32,
    pub output_asset: String,
    pub output_amount: String,
    pub output_exponent: i32,
    /// The work that it waits for.
    pub waits_for: Option<String>,
    pub last_result: Option<String>,
    /// The open alarm about its payment.
    pub alarm: Option<String>,
}

/// A page: its references by a query of the view, then its rows. An order has few commands and payments, of which the
/// open ones are filtered: by an index of open ones the planner would read those of all orders for each row.
macro_rules! page {
    ($view:expr) => {
        concat!(
            "with page as (",
            $view,
            " order by e.accepted_at desc, e.reference desc limit $6) \
             select e.reference, p.name as partner, e.intent_id, e.client_reference, e.state_name as state, \
                    e.accepted_at, e.terminal_at, \
                    e.terms #>> '{input,asset}' as input_asset, e.terms #>> '{input,amount}' as input_amount, \
                    (e.terms #>> '{input,exponent}')::int as input_exponent, \
                    e.terms #>> '{output,asset}' as output_asset, e.terms #>> '{output,amount}' as output_amount, \
                    (e.terms #>> '{output,exponent}')::int as output_exponent, \
                    coalesce(f.kind, c.kind) as waits_for, f.last_result, b.alarm \
             from page join execution e using (reference) join partner p on p.id = e.partner_id \
                  left join lateral (select kind, last_result from effect \
                                     where reference = e.reference order by id desc limit 1) f on true \
                  left join lateral (select string_agg(kind, ', ' order by id) \
                                                filter (where state in ('pending', 'sent')) as kind \
                                     from chain_command where reference = e.reference) c on true \
                  left join lateral (select min(alarm) filter (where alarm_cleared_at is null) as alarm \
                                     from bank_payment where execution = e.reference) b on true \
             order by e.accepted_at desc, e.reference desc"
        )
    };
}

/// The orders of a source within the time of the filter. One bound on each side: of two upper ones an index begins at
/// one and reads every entry down to the other.
macro_rules! within {
    ($from:expr) => {
        concat!(
            "select e.reference, e.accepted_at from ",
            $from,
            " and e.accepted_at >= $3 and (e.accepted_at, e.reference) < ($4, $5)"
        )
    };
}

/// Those that meet all of the filter.
macro_rules! filtered {
    ($from:expr) => {
        concat!(
            within!($from),
            " and ($1::text is null or e.partner_id = (select id from partner where name = $1)) \
              and ($2::text is null or e.state_name = $2)"
        )
    };
}

/// The newest orders of each partner, merged: the indexes of all orders and of open ones begin with the partner.
macro_rules! by_partner {
    ($partners:literal, $condition:literal) => {
        concat!(
            "select e.reference, e.accepted_at from ",
            $partners,
            " cross join lateral (",
            within!(concat!(
                "execution e where e.partner_id = p.id \
                   and e.livemode = coalesce((select environment = 'live' from deployment), false)",
                $condition
            )),
            " order by e.accepted_at desc, e.reference desc limit $6) e where ($1::text is null or p.name = $1)"
        )
    };
}

const ALL: &str = page!(by_partner!("partner p", " and ($2::text is null or e.state_name = $2)"));
const OPEN: &str =
    page!(by_partner!("partner p", " and e.terminal_at is null and ($2::text is null or e.state_name = $2)"));
/// Those of a state in which orders end without their output. The state is named once: the planner takes two conditions
/// for independent, expects next to none of the orders, and then sorts all of them.
const ENDED: &str = page!(by_partner!("partner p", " and e.exception = $2"));
/// One order.
const ONE: &str = page!(
    "select reference, accepted_at from execution e where reference = $1 and $2::text is null \
                           and $3::timestamptz is null and $4::timestamptz is null and $5::text is null"
);
const STUCK: &str = page!(by_partner!(
    "partner p",
    " and e.terminal_at is null and e.state_name <> 'resting' and ($2::text is null or e.state_name = $2) \
      and e.accepted_at < clock_timestamp() - interval '10 minutes'"
));
const UNFILLED: &str = page!(filtered!("execution e where e.exception is not null"));
/// Those of one partner, which may have none among many of others. The index has each state's in order.
const UNFILLED_OF_PARTNER: &str = page!(by_partner!(
    "partner p cross join (values ('conversion_failed'), ('payout_failed'), ('cancelled'), ('expired'), ('failed'), \
                                  ('reversed')) unfilled (state)",
    " and e.exception = unfilled.state and ($2::text is null or e.state_name = $2)"
));
const ALARMED: &str = page!(filtered!(
    "(select distinct execution from bank_payment where alarm is not null and alarm_cleared_at is null) b \
     join execution e on e.reference = b.execution where true"
));

/// The states of orders that ended without their output.
const UNFILLED_STATES: [&str; 6] =
    ["conversion_failed", "payout_failed", "cancelled", "expired", "failed", "reversed"];

/// A page of orders, newest first.
pub async fn list(conn: &mut PgConnection, filter: &OrderFilter<'_>) -> Result<Vec<OrderRow>, StoreError> {
    let sql = match filter.view {
        // A rare state is not looked for among all orders.
        OrderView::All if filter.state.is_some_and(|state| State::OPEN_STAGES.contains(&state)) => OPEN,
        OrderView::All | OrderView::Unfilled
            if filter.state.is_some_and(|state| UNFILLED_STATES.contains(&state)) =>
        {
            ENDED
        }
        OrderView::All => ALL,
        OrderView::Open => OPEN,
        OrderView::Stuck => STUCK,
        OrderView::Unfilled if filter.partner.is_some() => UNFILLED_OF_PARTNER,
        OrderView::Unfilled => UNFILLED,
        OrderView::Alarmed => ALARMED,
    };
    // No reference comes before the empty one.
    let until = (filter.until.unwrap_or(END), "");
    let before = filter.before.map_or(until, |before| before.min(until));
    let parameters = (
        filter.partner,
        filter.state,
        filter.from.unwrap_or(DateTime::<Utc>::UNIX_EPOCH),
        before.0,
        before.1,
        filter.limit,
    );
    statement::list(conn, sql, parameters).await
}

/// An order as lists have it.
pub async fn find(conn: &mut PgConnection, reference: &str) -> Result<Option<OrderRow>, StoreError> {
    let (none, never) = (None::<&str>, None::<DateTime<Utc>>);
    statement::find(conn, ONE, (reference, none, never, never, none, 1_i64)).await
}

/// After every order.
const END: DateTime<Utc> = DateTime::<Utc>::MAX_UTC;
