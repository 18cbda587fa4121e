//! Sessions: credentials, settings, numbers.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{FromRow as _, PgConnection, Row as _};
use uuid::Uuid;

use crate::fix::settings::FixSessionSettings;
use crate::{StoreError, statement};

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FixSessionRow {
    /// `FIX.4.4:DVP->ACME`.
    pub session_id: String,
    pub partner_id: String,
    pub livemode: bool,
    pub begin_string: String,
    pub client_comp_id: String,
    pub service_comp_id: String,
    /// DefaultApplVerID(1137) of a FIXT session.
    pub default_appl_ver_id: Option<String>,
    pub username: String,
    /// `Secrets::fix_password_hash` of session id and password.
    pub password_hash: Vec<u8>,
    /// The session is enabled, and so is its partner.
    pub enabled: bool,
    pub reset_on_logon: bool,
    pub reset_allowed: bool,
    pub max_slippage_bps: i32,
    pub next_in: i64,
    pub next_out: i64,
    pub feed_position: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFixSession {
    pub partner_id: String,
    pub livemode: bool,
    pub begin_string: String,
    pub client_comp_id: String,
    pub service_comp_id: String,
    pub default_appl_ver_id: Option<String>,
    pub username: String,
    pub password_hash: [u8; 32],
    /// Id of the master key of the hash.
    pub password_key: String,
}

impl NewFixSession {
    /// `FIX.4.4:DVP->ACME`.
    pub fn session_id(&self) -> String {
        session_id(&self.begin_string, &self.service_comp_id, &self.client_comp_id)
    }
}

/// A session's id from its BeginString and CompIDs.
pub fn session_id(begin_string: &str, service_comp_id: &str, client_comp_id: &str) -> String {
    format!("{begin_string}:{service_comp_id}->{client_comp_id}")
}

/// Adds a session, or replaces the credentials of an existing one; its numbers stay. Reports begin with the next event.
pub async fn upsert_session(conn: &mut PgConnection, session: &NewFixSession) -> Result<(), StoreError> {
    let sql = "insert into fix_session (session_id, partner_id, livemode, begin_string, client_comp_id, \
                                  service_comp_id, \
                                  default_appl_ver_id, username, password_hash, password_key, feed_position) \
         select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, position from feed_counter \
         on conflict on constraint fix_session_pkey do update \
         set username = excluded.username, password_hash = excluded.password_hash, \
             password_key = excluded.password_key";
    let parameters = (
        session.session_id(),
        &session.partner_id,
        session.livemode,
        &session.begin_string,
        &session.client_comp_id,
        &session.service_comp_id,
        session.default_appl_ver_id.as_deref(),
        &session.username,
        &session.password_hash[..],
        &session.password_key,
    );
    statement::execute(conn, sql, parameters).await
}

const COLUMNS: &str = "session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
    default_appl_ver_id, username, password_hash, \
    enabled and (select p.disabled_at is null from partner p where p.id = partner_id) as enabled, reset_on_logon, reset_allowed, max_slippage_bps, next_in, \
    next_out, feed_position";

#[derive(Debug, Clone)]
pub struct ConfiguredSession {
    pub session: FixSessionRow,
    pub settings: FixSessionSettings,
    /// The owner of the lease `fix:` and the session's id.
    pub owner: Option<uuid::Uuid>,
    /// How long the owner's lease lasts unless it is renewed.
    pub held_for: Option<Duration>,
    /// Where the owner takes forwarded connections, if it does.
    pub forward_address: Option<String>,
}

/// An unreadable row; the other rows are readable.
#[derive(Debug)]
pub struct UnreadableSession {
    pub session_id: String,
    pub error: sqlx::Error,
}

/// Sessions after `after`, by id, disabled ones included. An unreadable one does not prevent reading the others.
pub async fn list_configured(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<Result<ConfiguredSession, UnreadableSession>>, StoreError> {
    // The columns are constants of these modules; their names are unique across the joined tables.
    let sql = sqlx::AssertSqlSafe(format!(
        "select {COLUMNS}, {}, l.owner, o.forward_address, \
                extract(epoch from least(l.expires_at, clock_timestamp() + interval '1 day') \
                    - clock_timestamp())::float8 as held_for from fix_session \
         left join lease l on l.name = 'fix:' || session_id and l.expires_at > clock_timestamp() \
         left join fix_process o on o.id = l.owner \
         where session_id > $1 order by session_id limit $2",
        crate::fix::settings::COLUMNS
    ));
    let rows: Vec<PgRow> = statement::list_rows(conn, sql, (after, limit)).await?;
    rows.iter().map(configured).collect()
}

fn configured(row: &PgRow) -> Result<Result<ConfiguredSession, UnreadableSession>, StoreError> {
    let session_id: String = row.try_get("session_id")?;
    let read = || {
        let session = FixSessionRow::from_row(row)?;
        let settings = FixSessionSettings::from_row(row)?;
        let (owner, forward_address) = (row.try_get("owner")?, row.try_get("forward_address")?);
        let held_for: Option<f64> = row.try_get("held_for")?;
        let held_for = held_for.map(|secs| Duration::try_from_secs_f64(secs).unwrap_or_default());
        Ok(ConfiguredSession { session, settings, owner, held_for, forward_address })
    };
    Ok(read().map_err(|error| UnreadableSession { session_id, error }))
}

/// Stores a session's password under the hash of the current master key.
pub async fn rehash_password(
    conn: &mut PgConnection,
    session_id: &str,
    password_hash: &[u8; 32],
    master_key: &str,
) -> Result<(), StoreError> {
    let sql = "update fix_session set password_hash = $2, password_key = $3 where session_id = $1";
    statement::execute(conn, sql, (session_id, password_hash.as_slice(), master_key)).await
}

pub async fn find_session(conn: &mut PgConnection, id: &str) -> Result<Option<FixSessionRow>, StoreError> {
    // The columns are a constant of this module.
    let sql = sqlx::AssertSqlSafe(format!("select {COLUMNS} from fix_session where session_id = $1"));
    statement::find(conn, sql, (id,)).await
}

/// The schedule window of a session's numbers; `None` when it was never recorded.
pub async fn find_epoch(conn: &mut PgConnection, id: &str) -> Result<Option<i64>, StoreError> {
    let sql = "select epoch from fix_session where session_id = $1";
    let epoch: Option<Option<i64>> = statement::find_value(conn, sql, (id,)).await?;
    Ok(epoch.flatten())
}

/// Records the window of a session's numbers. A later one stays.
pub async fn update_epoch(conn: &mut PgConnection, id: &str, epoch: i64) -> Result<(), StoreError> {
    let sql = "update fix_session set epoch = greatest(coalesce(epoch, $2), $2) where session_id = $1";
    statement::execute(conn, sql, (id, epoch)).await
}

/// The numbers of the service's messages that a session's peer has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct FixReach {
    /// The peer has received the service's messages up to this number, as far as is known.
    pub seen_out: i64,
    /// Messages beyond this number have never been written to a socket.
    pub written_out: i64,
    /// The highest number of a stored message, 0 without any.
    pub stored_out: i64,
}

/// The received numbers of the session's peer; `None` without such a session.
pub async fn find_reach(conn: &mut PgConnection, id: &str) -> Result<Option<FixReach>, StoreError> {
    let sql = "select s.seen_out, s.written_out, \
                coalesce((select max(seq) from fix_outbound o where o.session_id = s.session_id), 0) as stored_out \
         from fix_session s where s.session_id = $1";
    statement::find(conn, sql, (id,)).await
}

/// The next outbound number of each existing session that the process named with it owns.
pub async fn list_next_out(
    conn: &mut PgConnection,
    sessions: &[(&str, Option<Uuid>)],
) -> Result<HashMap<String, u64>, StoreError> {
    let (ids, owners): (Vec<&str>, Vec<Option<Uuid>>) = sessions.iter().copied().unzip();
    let sql = "select s.session_id, s.next_out from unnest($1::text[], $2::uuid[]) as u (session_id, owner) \
         join fix_session s on s.session_id = u.session_id \
         where u.owner is null \
            or exists (select from lease l where l.name = 'fix:' || u.session_id and l.owner = u.owner)";
    let rows: Vec<(String, i64)> = statement::list(conn, sql, (ids, owners)).await?;
    rows.into_iter()
        .map(|(id, next_out)| match u64::try_from(next_out) {
            Ok(next_out) => Ok((id, next_out)),
            Err(_) => Err(StoreError::corrupt("fix_session", "negative next_out")),
        })
        .collect()
}

/// A session, as the map of a proxy needs it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MappedSession {
    pub session_id: String,
    pub enabled: bool,
}

pub async fn list_mapped(conn: &mut PgConnection) -> Result<Vec<MappedSession>, StoreError> {
    let sql = "select session_id, enabled from fix_session order by session_id";
    statement::list(conn, sql, ()).await
}
