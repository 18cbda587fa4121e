//! FIX sessions: their numbers, their newest messages, and operators' commands for them.

use axum::extract::Path;
use chrono::{DateTime, Utc};
use dvp_store::database::changes::Subject;
use dvp_store::fix::admin::{self, ListedSession};
use dvp_store::fix::commands;
use dvp_store::fix::settings::{self, FixSessionSettings};
use dvp_store::fix::status::{self, SessionStatus};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell};
use crate::offers::Offer;
use crate::request::{Asked, Reply, Visit};
use crate::routes::messages;
use crate::view;

const ROWS: i64 = 100;
const COMMANDS: i64 = 50;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SessionsQuery {
    /// Sessions after this one.
    #[serde(default)]
    after: String,
}

pub(crate) async fn list(Visit { console, operator }: Visit, Asked(query): Asked<SessionsQuery>) -> Reply {
    let mut conn = console.reading().await?;
    let sessions = admin::list(&mut conn, &query.after, ROWS).await?;
    let ids: Vec<&str> = sessions.iter().map(|row| row.session_id.as_str()).collect();
    let known = status::list(&mut conn, &ids).await?;
    drop(conn);
    let rows = sessions.iter().map(|row| {
        let status = known.iter().find(|status| status.session_id == row.session_id);
        let (next_in, next_out) = numbers(row, status);
        vec![
            Cell { class: "id".to_owned(), ..Cell::link(&row.session_id, view::session(&row.session_id)) },
            Cell::link(&row.partner, view::partner(&row.partner)),
            Cell::state(if row.enabled { "enabled" } else { "disabled" }),
            connected(status),
            Cell::text(if row.drop_copy { "drop copy" } else { "orders" }),
            Cell::number(next_in.to_string()),
            Cell::number(next_out.to_string()),
            status.map_or_else(Cell::default, gap),
            Cell::maybe_time(status.and_then(|status| status.last_in_at)),
        ]
    });
    let headings = [
        "Session",
        "Partner",
        "State",
        "Peer",
        "For",
        "#Expected in",
        "#Next out",
        "Missing",
        "Last message in (UTC)",
    ];
    let mut table = Block::table("Sessions", &headings, "There is no session.", rows);
    let is_full = i64::try_from(sessions.len()) == Ok(ROWS);
    let last = sessions.last().filter(|_| is_full);
    table.older = last.map(|row| format!("/fix?after={}", view::segment(&row.session_id)));
    let new = [Offer::new("fix-session add", "New session")];
    let all = vec![table.with_offers(operator.offers(new))];
    blocks::render(operator.page("FIX", "FIX sessions").live(&[Subject::Fix]), None, all)
}

pub(crate) async fn show(Visit { console, operator }: Visit, Path(id): Path<String>) -> Reply {
    let mut conn = console.reading().await?;
    let session = messages::find_session(&mut conn, &id).await?;
    let settings = settings::find_settings(&mut conn, &id).await?.unwrap_or_default();
    let is_owned = admin::is_held(&mut conn, &format!("fix:{id}")).await?;
    let known = status::list(&mut conn, &[&id]).await?;
    let history = commands::list_commands(&mut conn, &id, COMMANDS).await?;
    let messages = messages::newest(&mut conn, &id).await?;
    drop(conn);
    let status = known.first();
    let (next_in, next_out) = numbers(&session, status);
    let at = |at: Option<DateTime<Utc>>| at.map_or_else(|| Cell::text("none known"), Cell::exact_time);
    let facts = vec![
        ("Partner", Cell::link(&session.partner, view::partner(&session.partner))),
        ("Username", Cell::text(&session.username)),
        ("Run by a process", Cell::text(if is_owned { "yes" } else { "no" })),
        ("For", Cell::text(if session.drop_copy { "drop copy" } else { "orders" })),
        ("Peer", connected(status)),
        ("Connected since", at(status.and_then(|status| Some(status.connection.as_ref()?.1)))),
        ("Last message in", at(status.and_then(|status| status.last_in_at))),
        ("Last message out", at(status.and_then(|status| status.last_out_at))),
        ("Expected MsgSeqNum in", Cell::text(next_in.to_string())),
        ("Next MsgSeqNum out", Cell::text(next_out.to_string())),
        ("Missing messages", status.map_or_else(|| Cell::text("none"), gap)),
        ("Maximum slippage", Cell::text(format!("{} bps", session.max_slippage_bps))),
        (
            "Cancel on disconnect",
            Cell::text(
                session.cancel_on_disconnect_secs.map_or("no".to_owned(), |secs| format!("after {secs} s")),
            ),
        ),
        ("Networks of the peer", Cell::text(listed(settings.allowed_sources.as_deref()))),
        ("Client certificate", Cell::text(certificate(&settings))),
        ("Logon by", Cell::text(if settings.logon_secret.is_some() { "signature" } else { "password" })),
    ];
    let rows = history.iter().map(|row| {
        let outcome = row.outcome.clone().unwrap_or_else(|| "not answered".to_owned());
        vec![
            Cell::time(row.requested_at),
            Cell::text(view::words(&row.action)),
            Cell::text(&row.operator),
            Cell::text(&row.reason),
            if row.failed { Cell::toned(outcome, "bad") } else { Cell::text(outcome) },
        ]
    });
    let headings = ["Requested (UTC)", "Command", "Operator", "Reason", "Outcome"];
    let history = Block::table("Commands", &headings, "No operator has commanded this session.", rows);
    let offers = operator.offers(offers(&session, &settings));
    let all = vec![Block::facts("Session", facts).half().with_offers(offers), messages, history];
    let state = Cell::state(if session.enabled { "enabled" } else { "disabled" });
    blocks::render(operator.page("FIX", format!("Session {id}")).live(&[Subject::Fix]), Some(state), all)
}

/// The next numbers in and out: those of the owner's memory, which count each message, or else the committed ones.
fn numbers(session: &ListedSession, status: Option<&SessionStatus>) -> (i64, i64) {
    let connected = status.filter(|status| status.connection.is_some());
    connected.map_or((session.next_in, session.next_out), |status| (status.next_in, status.next_out))
}

/// The peer's address while it is connected.
fn connected(status: Option<&SessionStatus>) -> Cell {
    match status.and_then(|status| status.connection.as_ref()) {
        Some((peer, _)) => Cell::toned(peer, "good"),
        None => Cell::toned("not connected", "idle"),
    }
}

/// The numbers of missing messages.
fn gap(status: &SessionStatus) -> Cell {
    match status.gap {
        None => Cell::text("none"),
        Some((from, until)) if from == until => Cell::toned(from.to_string(), "warn"),
        Some((from, until)) => Cell::toned(format!("{from} to {until}"), "warn"),
    }
}

fn listed(names: Option<&[String]>) -> String {
    names.map_or_else(|| "any".to_owned(), |names| names.join(", "))
}

/// Which client certificate the peer must present.
fn certificate(settings: &FixSessionSettings) -> String {
    match (&settings.client_cert_sha256, &settings.client_cert_names) {
        (None, None) => "none needed".to_owned(),
        (Some(hashes), None) => format!("one of {}", hashes.len()),
        (_, Some(names)) => names.join(", "),
    }
}

/// What can be done about a session.
fn offers(session: &ListedSession, settings: &FixSessionSettings) -> Vec<Offer> {
    let id = session.session_id.as_str();
    let offer = |action, label: &str| Offer::new(action, label).about("session-id", id);
    let numbers = offer("fix-session set-seq", "Set the numbers")
        .proposed("next-in", session.next_in.to_string())
        .proposed("next-out", session.next_out.to_string())
        .only(&[]);
    let sources = settings.allowed_sources.as_deref().map_or_else(|| "off".to_owned(), |all| all.join(", "));
    let switch = if session.enabled {
        offer("fix-session disable", "Disable").dangerous()
    } else {
        offer("fix-session enable", "Enable")
    };
    vec![
        offer("fix-session test-request", "Send a TestRequest"),
        offer("fix-session logout", "Log out"),
        offer("fix-session disconnect", "Disconnect").dangerous(),
        offer("fix-session reset", "Reset the numbers").dangerous(),
        numbers.dangerous(),
        switch,
        offer("fix-session password", "Draw a new password"),
        offer("fix-session set", "Change who may connect").proposed("allowed-sources", sources).only(&[
            "client-cert-names",
            "client-cert-sha256",
            "reason",
            "evidence",
        ]),
        offer("fix-session set", "Change all settings"),
    ]
}
