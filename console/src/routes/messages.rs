//! A FIX session's messages, from the archive: searched by MsgSeqNum, ClOrdID and time, a page at a time.

use axum::extract::Path;
use chrono::{DateTime, TimeDelta, Utc};
use dvp_store::PgConnection;
use dvp_store::database::changes::Subject;
use dvp_store::fix::admin::{self, ListedSession};
use dvp_store::fix::archive::{self, ArchivedMessage, Stretch, Wanted};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::PageError;
use crate::request::{self, Asked, Reply, Visit};
use crate::view;

/// Rows of a page, and of the session's own page.
const ROWS: usize = 100;
const NEWEST: usize = 10;

/// The search as it is in the address. Empty fields are no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct MessagesQuery {
    #[serde(default)]
    seq: String,
    #[serde(default)]
    cl_ord_id: String,
    /// Times (UTC): `2026-01-31T09:30` with or without seconds.
    #[serde(default)]
    from: String,
    #[serde(default)]
    until: String,
    /// Messages before this one: microseconds of its time, a point, its id.
    #[serde(default)]
    before: String,
}

impl MessagesQuery {
    fn wanted(&self) -> Result<Wanted<'_>, PageError> {
        match (self.seq.trim(), self.cl_ord_id.trim()) {
            ("", "") => Ok(Wanted::All),
            ("", id) => Ok(Wanted::ClOrdId(id)),
            (seq, "") => match seq.parse() {
                Ok(seq) => Ok(Wanted::Seq(seq)),
                Err(_) => Err(PageError::Invalid(format!("{seq} is no MsgSeqNum."))),
            },
            _ => Err(PageError::Invalid("Search by a MsgSeqNum or by a ClOrdID.".to_owned())),
        }
    }

    fn stretch(&self) -> Result<Stretch, PageError> {
        let place = |text: &str| -> Result<_, PageError> {
            let (at, id) = request::placed(text)?;
            let id = id.parse().map_err(|_| PageError::Invalid(format!("{id} is no message.")))?;
            Ok((at, id))
        };
        Ok(Stretch {
            from: request::time(&self.from)?.unwrap_or(DateTime::UNIX_EPOCH),
            // Clocks of several processes write the archive.
            until: request::time(&self.until)?.unwrap_or_else(|| Utc::now() + TimeDelta::days(1)),
            before: (!self.before.is_empty()).then(|| place(&self.before)).transpose()?,
        })
    }

    fn older(&self, session: &str, last: &ArchivedMessage) -> String {
        let before = view::place(last.at, last.id);
        let fields = [
            ("seq", self.seq.as_str()),
            ("cl_ord_id", &self.cl_ord_id),
            ("from", &self.from),
            ("until", &self.until),
            ("before", &before),
        ];
        view::address(&view::messages(session), &fields)
    }
}

/// The messages that a query finds, with the form that searches.
async fn find(
    conn: &mut PgConnection,
    session: &str,
    query: &MessagesQuery,
    rows: usize,
) -> Result<Block, PageError> {
    let (wanted, stretch) = (query.wanted()?, query.stretch()?);
    let limit = i64::try_from(rows + 1).unwrap_or(i64::MAX);
    let mut messages = archive::list_messages(conn, session, wanted, &stretch, limit).await?;
    let has_more = messages.len() > rows;
    messages.truncate(rows);
    let headings = ["Time (UTC)", "Message", "Direction", "#MsgSeqNum", "ClOrdID", "Fields"];
    let empty = "The archive has no such message.";
    let mut block = Block::table("Messages", &headings, empty, messages.iter().map(row));
    block.older = messages.last().filter(|_| has_more).map(|last| query.older(session, last));
    let value = |field: Field, value: &str| Field { value: value.to_owned(), ..field.optional() };
    let fields = vec![
        value(Field::text("seq", "MsgSeqNum"), &query.seq),
        value(Field::text("cl_ord_id", "ClOrdID"), &query.cl_ord_id),
        value(Field::time("from", "From (UTC)"), &query.from),
        value(Field::time("until", "Until (UTC)"), &query.until),
    ];
    Ok(block.with_forms([Form::search(view::messages(session), "Search", fields)]))
}

/// The newest messages of a session.
pub(crate) async fn newest(conn: &mut PgConnection, session: &str) -> Result<Block, PageError> {
    find(conn, session, &MessagesQuery::default(), NEWEST).await
}

fn row(message: &ArchivedMessage) -> Vec<Cell> {
    let direction = if message.is_outbound { Cell::toned("out", "busy") } else { Cell::toned("in", "idle") };
    vec![
        Cell::exact_time(message.at),
        Cell::text(name(&message.msg_type)),
        direction,
        Cell::number(message.seq.map(|seq| seq.to_string()).unwrap_or_default()),
        Cell::found(message.cl_ord_id.clone().unwrap_or_default()),
        Cell { class: "raw".to_owned(), ..Cell::text(&message.content) },
    ]
}

/// MsgType(35) with its name.
fn name(msg_type: &str) -> String {
    let name = match msg_type {
        "0" => "Heartbeat",
        "1" => "TestRequest",
        "2" => "ResendRequest",
        "3" => "Reject",
        "4" => "SequenceReset",
        "5" => "Logout",
        "8" => "ExecutionReport",
        "9" => "OrderCancelReject",
        "A" => "Logon",
        "D" => "NewOrderSingle",
        "F" => "OrderCancelRequest",
        "G" => "OrderCancelReplaceRequest",
        "H" => "OrderStatusRequest",
        "AF" => "OrderMassStatusRequest",
        "R" => "QuoteRequest",
        "S" => "Quote",
        "b" => "MassQuoteAcknowledgement",
        "AG" => "QuoteRequestReject",
        "j" => "BusinessMessageReject",
        _ => return msg_type.to_owned(),
    };
    format!("{name} ({msg_type})")
}

pub(crate) async fn show(
    Visit { console, operator }: Visit,
    Path(id): Path<String>,
    Asked(query): Asked<MessagesQuery>,
) -> Reply {
    let mut conn = console.reading().await?;
    find_session(&mut conn, &id).await?;
    let found = find(&mut conn, &id, &query, ROWS).await?;
    drop(conn);
    let page = operator.page("FIX", format!("Messages of {id}"));
    let page = if query == MessagesQuery::default() { page.live(&[Subject::Fix]) } else { page };
    let session = Cell::link("Session", view::session(&id));
    blocks::render(page, Some(session), vec![found])
}

pub(crate) async fn find_session(conn: &mut PgConnection, id: &str) -> Result<ListedSession, PageError> {
    admin::find(conn, id).await?.ok_or_else(|| PageError::NotFound(format!("session {id}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_read_from_the_address() {
        let query = MessagesQuery {
            seq: " 7 ".into(),
            from: "2026-01-31T09:30".into(),
            until: "2026-01-31T09:30:05".into(),
            before: "1000000.42".into(),
            ..MessagesQuery::default()
        };
        assert_eq!(query.wanted().unwrap(), Wanted::Seq(7));
        let Stretch { from, until, before } = query.stretch().unwrap();
        assert_eq!((until - from).num_seconds(), 5);
        assert_eq!(before, Some((DateTime::from_timestamp(1, 0).unwrap(), 42)));
        let by_order = MessagesQuery { cl_ord_id: "a".into(), ..MessagesQuery::default() };
        assert_eq!(by_order.wanted().unwrap(), Wanted::ClOrdId("a"));
        assert_eq!(MessagesQuery::default().wanted().unwrap(), Wanted::All);
    }

    #[test]
    fn a_search_that_cannot_be_read_is_refused() {
        let wrong = [
            MessagesQuery { seq: "x".into(), ..MessagesQuery::default() },
            MessagesQuery { seq: "1".into(), cl_ord_id: "a".into(), ..MessagesQuery::default() },
            MessagesQuery { from: "31.1.2026".into(), ..MessagesQuery::default() },
            MessagesQuery { before: "1".into(), ..MessagesQuery::default() },
        ];
        for query in wrong {
            let read = query.wanted().map(|_| ()).and_then(|()| query.stretch().map(|_| ()));
            assert!(matches!(read, Err(PageError::Invalid(_))), "{query:?}");
        }
    }
}
