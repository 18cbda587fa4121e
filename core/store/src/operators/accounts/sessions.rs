//! Sign-in links and sessions of operators.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use super::SignedIn;
use crate::{StoreError, read, statement};

/// A sign-in link.
#[derive(Debug, Clone, Copy)]
pub struct NewLink<'a> {
    pub operator_id: &'a str,
    pub token_hash: &'a [u8; 32],
    /// Of a sandbox: it can be used again.
    pub reusable: bool,
    pub good_for: Duration,
    /// SHA-256 of the code that the link needs.
    pub code_hash: Option<&'a [u8; 32]>,
    /// The request that it is made for.
    pub approval_id: Option<&'a str>,
}

/// Adds a sign-in link; one with the same token is renewed. [`StoreError::constraint`] is `operator_link_approval_key` when
/// its request has a link.
pub async fn insert_link(conn: &mut PgConnection, link: &NewLink<'_>) -> Result<(), StoreError> {
    let sql = "insert into operator_link (token_hash, operator_id, reusable, expires_at, code_hash, approval_id) \
         values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4), $5, $6) \
         on conflict on constraint operator_link_pkey do update set expires_at = excluded.expires_at \
         where operator_link.reusable";
    let parameters = (
        &link.token_hash[..],
        link.operator_id,
        link.reusable,
        link.good_for.as_secs_f64(),
        link.code_hash.map(|hash| &hash[..]),
        link.approval_id,
    );
    statement::execute(conn, sql, parameters).await
}

/// A link that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundLink {
    pub method: SignInMethod,
    /// The link needs a code.
    pub needs_code: bool,
}

/// A link that can be used. `None`: it does not exist, was used, or has expired.
pub async fn find_link(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
) -> Result<Option<FoundLink>, StoreError> {
    let sql = "select reusable, code_hash is not null from operator_link \
         where token_hash = $1 and expires_at > clock_timestamp() and (used_at is null or reusable)";
    let row: Option<(bool, bool)> = statement::find(conn, sql, (&token_hash[..],)).await?;
    Ok(row.map(|(reusable, needs_code)| FoundLink { method: SignInMethod::of_link(reusable), needs_code }))
}

/// Whether a request's link was made.
pub async fn has_link(conn: &mut PgConnection, approval_id: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select from operator_link where approval_id = $1)";
    statement::load_value(conn, sql, (approval_id,)).await
}

/// Uses a link. `None`: it does not exist, was used, has expired, needs another code, or its operator is disabled.
pub async fn use_link(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
    code_hash: &[u8; 32],
) -> Result<Option<(SignedIn, SignInMethod)>, StoreError> {
    let sql = "update operator_link l set used_at = clock_timestamp() from operator o \
         where l.token_hash = $1 and l.expires_at > clock_timestamp() and (l.used_at is null or l.reusable) \
           and (l.code_hash is null or l.code_hash = $2) \
           and o.id = l.operator_id and o.disabled_at is null \
         returning o.id as operator_id, o.name as operator_name, o.roles, l.reusable";
    let row = statement::find_row(conn, sql, (&token_hash[..], &code_hash[..])).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some((SignedIn::from_row(&row)?, SignInMethod::of_link(row.try_get("reusable")?))))
}

names! {
    /// How a session began.
    pub enum SignInMethod {
        /// A link that is used once.
        Link = "link",
        /// A link of a sandbox.
        ReusableLink = "reusable_link",
        Passkey = "passkey",
        /// A password and a one-time code.
        Password = "password",
        /// An account at an identity provider.
        Oidc = "oidc",
    }
}

impl SignInMethod {
    const fn of_link(reusable: bool) -> Self {
        if reusable { Self::ReusableLink } else { Self::Link }
    }

    /// Whether it is an authentication that the operator could repeat at any time.
    const fn is_authentication(self) -> bool {
        match self {
            Self::Passkey | Self::Password => true,
            Self::Link | Self::ReusableLink | Self::Oidc => false,
        }
    }
}

/// A new session.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    pub operator_id: &'a str,
    pub token_hash: &'a [u8; 32],
    pub method: SignInMethod,
    pub source: &'a str,
}

pub async fn insert_session(conn: &mut PgConnection, session: &NewSession<'_>) -> Result<(), StoreError> {
    let sql = "insert into operator_session (token_hash, operator_id, method, source, authenticated_at) \
         values ($1, $2, $3, $4, case when $5 then clock_timestamp() end)";
    let parameters = (
        &session.token_hash[..],
        session.operator_id,
        session.method.as_str(),
        session.source,
        session.method.is_authentication(),
    );
    statement::execute(conn, sql, parameters).await
}

/// How long sessions last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    /// Without a request.
    pub idle: Duration,
    /// From the sign-in.
    pub absolute: Duration,
    /// How long an authentication is recent.
    pub step_up: Duration,
}

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub operator: SignedIn,
    pub method: SignInMethod,
    /// The operator was authenticated recently in this session.
    pub is_recent: bool,
    /// The session began recently.
    pub is_new: bool,
    /// The operator has a passkey.
    pub has_passkey: bool,
    /// The operator has a password with one-time codes.
    pub has_password: bool,
}

impl FromRow<'_, PgRow> for Session {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let method = |text: &str| SignInMethod::parse(text).ok_or("is unknown");
        Ok(Self {
            operator: SignedIn::from_row(row)?,
            method: read(row, ("operator_session", "method"), method)?,
            is_recent: row.try_get("is_recent")?,
            is_new: row.try_get("is_new")?,
            has_passkey: row.try_get("has_passkey")?,
            has_password: row.try_get("has_password")?,
        })
    }
}

/// A live session. A request of its operator renews it, which is recorded once a minute; one that a page makes by itself
/// does not. The roles are those of now.
pub async fn find_session(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
    times: SessionTimes,
    renews: bool,
) -> Result<Option<Session>, StoreError> {
    let sql = "select o.id as operator_id, o.name as operator_name, o.roles, s.method, \
                s.last_used_at < clock_timestamp() - interval '1 minute' as is_due, \
                coalesce(s.authenticated_at > clock_timestamp() - make_interval(secs => $4), false) as is_recent, \
                s.started_at > clock_timestamp() - make_interval(secs => $4) as is_new, \
                exists (select from operator_passkey p where p.operator_id = o.id) as has_passkey, \
                exists (select from operator_password p where p.operator_id = o.id) as has_password \
         from operator_session s join operator o on o.id = s.operator_id \
         where s.token_hash = $1 and s.ended_at is null and o.disabled_at is null \
           and s.last_used_at > clock_timestamp() - make_interval(secs => $2) \
           and s.started_at > clock_timestamp() - make_interval(secs => $3)";
    let parameters = (
        &token_hash[..],
        times.idle.as_secs_f64(),
        times.absolute.as_secs_f64(),
        times.step_up.as_secs_f64(),
    );
    let row = statement::find_row(conn, sql, parameters).await?;
    let Some(row) = row else { return Ok(None) };
    if renews && row.try_get("is_due")? {
        let sql = "update operator_session set last_used_at = clock_timestamp() where token_hash = $1";
        statement::execute(conn, sql, (&token_hash[..],)).await?;
    }
    Ok(Some(Session::from_row(&row)?))
}

/// Records an authentication in a session and replaces its token. `false`: the session has ended, or its token was
/// replaced meanwhile.
pub async fn renew_session(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
    new_token_hash: &[u8; 32],
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update operator_session s set token_hash = $2, authenticated_at = clock_timestamp(), \
                last_used_at = clock_timestamp() \
         from operator o where s.token_hash = $1 and s.ended_at is null and o.id = s.operator_id \
           and o.disabled_at is null",
    );
    let done = done.bind(&token_hash[..]).bind(&new_token_hash[..]).execute(conn).await?;
    Ok(done.rows_affected() == 1)
}

/// Ends the other sessions of a session's operator.
pub async fn end_other_sessions(
    conn: &mut PgConnection,
    operator_id: &str,
    token_hash: &[u8; 32],
) -> Result<u64, StoreError> {
    let sql = "update operator_session set ended_at = clock_timestamp() \
         where operator_id = $1 and token_hash <> $2 and ended_at is null";
    statement::affected(conn, sql, (operator_id, &token_hash[..])).await
}

/// Ends a session. `false`: it had ended, or there is none.
pub async fn end_session(conn: &mut PgConnection, token_hash: &[u8; 32]) -> Result<bool, StoreError> {
    let sql =
        "update operator_session set ended_at = clock_timestamp() where token_hash = $1 and ended_at is null";
    Ok(statement::affected(conn, sql, (&token_hash[..],)).await? == 1)
}

/// A session that has not ended, for operators.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct OpenSession {
    /// The beginning of its token's hash, in hex.
    pub id: String,
    pub method: String,
    pub source: String,
    pub started_at: DateTime<Utc>,
    pub last_used_at: DateTime<Utc>,
}

/// The most sessions of an operator that are listed.
const LISTED: i64 = 100;

/// The open sessions of an operator, the newest first.
pub async fn list_open(
    conn: &mut PgConnection,
    operator_id: &str,
    times: SessionTimes,
) -> Result<Vec<OpenSession>, StoreError> {
    let rows = sqlx::query_as(
        "select encode(substr(token_hash, 1, 8), 'hex') as id, method, source, started_at, last_used_at \
         from operator_session \
         where operator_id = $1 and ended_at is null \
           and last_used_at > clock_timestamp() - make_interval(secs => $2) \
           and started_at > clock_timestamp() - make_interval(secs => $3) \
         order by started_at desc limit $4",
    )
    .bind(operator_id)
    .bind(times.idle.as_secs_f64())
    .bind(times.absolute.as_secs_f64())
    .bind(LISTED);
    Ok(rows.fetch_all(conn).await?)
}

/// Ends a session of an operator by its id in the list. `false`: it had ended, or there is none.
pub async fn end_open(conn: &mut PgConnection, operator_id: &str, id: &str) -> Result<bool, StoreError> {
    let sql = "update operator_session set ended_at = clock_timestamp() \
         where operator_id = $1 and encode(substr(token_hash, 1, 8), 'hex') = $2 and ended_at is null";
    Ok(statement::affected(conn, sql, (operator_id, id)).await? > 0)
}

/// Deletes sessions that began and links and tokens that expired so long ago, and expired challenges and attempts.
pub async fn delete_old(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let sql = "with links as (delete from operator_link where ctid = any(array( \
                            select ctid from operator_link where expires_at < now() - make_interval(secs => $1) \
                            order by expires_at limit $2))), \
              tokens as (delete from operator_token where ctid = any(array( \
                            select ctid from operator_token where expires_at < now() - make_interval(secs => $1) \
                            order by expires_at limit $2))), \
              challenges as (delete from operator_challenge where ctid = any(array( \
                            select ctid from operator_challenge where expires_at < now() \
                            order by expires_at limit $2))), \
              attempts as (delete from operator_attempt where ctid = any(array( \
                            select ctid from operator_attempt where since < now() - interval '1 day' \
                            order by since limit $2))) \
         delete from operator_session where ctid = any(array( \
             select ctid from operator_session where started_at < now() - make_interval(secs => $1) \
             order by started_at limit $2))";
    statement::affected(conn, sql, (age.as_secs_f64(), limit)).await
}
