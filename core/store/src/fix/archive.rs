//! The archive of FIX messages, in partitions of a day.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::PgConnection;

use crate::database::partitions::{self, DayTable};
use crate::{StoreError, statement};

/// A message for the archive, redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    pub session_id: String,
    pub at: DateTime<Utc>,
    pub is_outbound: bool,
    pub seq: Option<u64>,
    pub msg_type: String,
    pub cl_ord_id: Option<String>,
    pub orig_cl_ord_id: Option<String>,
    pub content: String,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ArchivedMessage {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub is_outbound: bool,
    pub seq: Option<i64>,
    pub msg_type: String,
    pub cl_ord_id: Option<String>,
    pub content: String,
}

/// Which messages of a session: all of a number, all that name a ClOrdID, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    All,
    Seq(u64),
    /// As ClOrdID(11) or OrigClOrdID(41).
    ClOrdId(&'a str),
}

/// A stretch of time, and the place after which a page begins: messages are listed from the newest to the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub from: DateTime<Utc>,
    /// Without this moment itself.
    pub until: DateTime<Utc>,
    /// The last message of the page before.
    pub before: Option<(DateTime<Utc>, i64)>,
}

impl Stretch {
    /// The place before which the page's messages are.
    fn before(&self) -> (DateTime<Utc>, i64) {
        self.before.filter(|(at, _)| *at < self.until).unwrap_or((self.until, 0))
    }
}

/// Creates the partition of a day (UTC), if there is none.
pub async fn create_day(conn: &mut PgConnection, day: NaiveDate) -> Result<(), StoreError> {
    partitions::create_day(conn, DayTable::FixMessages, day).await
}

/// Inserts messages, whose days have partitions.
pub async fn insert_messages(conn: &mut PgConnection, messages: &[NewMessage]) -> Result<(), StoreError> {
    let column = |text: fn(&NewMessage) -> Option<&str>| messages.iter().map(text).collect::<Vec<_>>();
    let seqs: Vec<Option<i64>> =
        messages.iter().map(|message| message.seq.and_then(|seq| i64::try_from(seq).ok())).collect();
    let sql = "insert into fix_message (session_id, at, is_outbound, seq, msg_type, cl_ord_id, orig_cl_ord_id, \
         content) \
         select * from unnest($1::text[], $2::timestamptz[], $3::bool[], $4::int8[], $5::text[], $6::text[], \
                              $7::text[], $8::text[])";
    let parameters = (
        column(|message| Some(&message.session_id)),
        messages.iter().map(|message| message.at).collect::<Vec<_>>(),
        messages.iter().map(|message| message.is_outbound).collect::<Vec<_>>(),
        seqs,
        column(|message| Some(&message.msg_type)),
        column(|message| message.cl_ord_id.as_deref()),
        column(|message| message.orig_cl_ord_id.as_deref()),
        column(|message| Some(&message.content)),
    );
    statement::execute(conn, sql, parameters).await
}

/// Messages of a session, the newest first. Each statement reads one index of each day of the stretch, and without a
/// number or a ClOrdID no more days than the page needs.
pub async fn list_messages(
    conn: &mut PgConnection,
    session_id: &str,
    wanted: Wanted<'_>,
    stretch: &Stretch,
    limit: i64,
) -> Result<Vec<ArchivedMessage>, StoreError> {
    let (before_at, before_id) = stretch.before();
    let (statement, seq, cl_ord_id) = match wanted {
        Wanted::All => (ALL, None, None),
        Wanted::Seq(seq) => (BY_SEQ, Some(super::number(seq)?), None),
        Wanted::ClOrdId(id) => (BY_CL_ORD_ID, None, Some(id)),
    };
    let rows = sqlx::query_as(statement)
        .bind(session_id)
        .bind(stretch.from)
        .bind(before_at)
        .bind(before_id)
        .bind(limit);
    // A plan for any number or ClOrdID would read all messages of the session in the stretch.
    let rows = match wanted {
        Wanted::All => rows,
        Wanted::Seq(_) => rows.bind(seq).persistent(false),
        Wanted::ClOrdId(_) => rows.bind(cl_ord_id).persistent(false),
    };
    Ok(rows.fetch_all(conn).await?)
}

const ALL: &str = "select id, at, is_outbound, seq, msg_type, cl_ord_id, content from fix_message \
                   where session_id = $1 and at >= $2 and at <= $3 and (at, id) < ($3, $4) \
                   order by at desc, id desc limit $5";

// Few messages have a number or a ClOrdID. They are found first: otherwise the planner may walk all messages of the
// session in the order of time.
const BY_SEQ: &str = "with found as materialized ( \
                          select id, at, is_outbound, seq, msg_type, cl_ord_id, content from fix_message \
                          where session_id = $1 and seq = $6 and at >= $2 and at <= $3 and (at, id) < ($3, $4)) \
                      select * from found order by at desc, id desc limit $5";

const BY_CL_ORD_ID: &str = "with found as materialized ( \
                                select id, at, is_outbound, seq, msg_type, cl_ord_id, content from fix_message \
                                where session_id = $1 and (cl_ord_id = $6 or orig_cl_ord_id = $6) \
                                  and at >= $2 and at <= $3 and (at, id) < ($3, $4)) \
                            select * from found order by at desc, id desc limit $5";
