//! Sign-in links and sessions of operators.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use super::SignedIn;
use crate::{StoreError, read};

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
    sqlx::query(
        "insert into operator_link (token_hash, operator_id, reusable, expires_at, code_hash, approval_id) \
         values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4), $5, $6) \
         on conflict on constraint operator_link_pkey do update set expires_at = excluded.expires_at \
         where operator_link.reusable",
    )
    .bind(&link.token_hash[..])
    .bind(link.operator_id)
    .bind(link.reusable)
    .bind(link.good_for.as_secs_f64())
    .bind(link.code_hash.map(|hash| &hash[..]))
    .bind(link.approval_id)
    .execute(conn)
    .await?;
    Ok(())
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
    let row: Option<(bool, bool)> = sqlx::query_as(
        "select reusable, code_hash is not null from operator_link \
         where token_hash = $1 and expires_at > clock_timestamp() and (used_at is null or reusable)",
    )
    .bind(&token_hash[..])
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|(reusable, needs_code)| FoundLink { method: SignInMethod::of_link(reusable), needs_code }))
}

/// Whether a request's link was made.
pub async fn has_link(conn: &mut PgConnection, approval_id: &str) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar("select exists (select from operator_link where approval_id = $1)");
    Ok(found.bind(approval_id).fetch_one(conn).await?)
}

/// Uses a link. `None`: it does not exist, was used, has expired, needs another code, or its operator is disabled.
pub async fn use_link(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
    code_hash: &[u8; 32],
) -> Result<Option<(SignedIn, SignInMethod)>, StoreError> {
    let row = sqlx::query(
        "update operator_link l set used_at = clock_timestamp() from operator o \
         where l.token_hash = $1 and l.expires_at > clock_timestamp() and (l.used_at is null or l.reusable) \
           and (l.code_hash is null or l.code_hash = $2) \
           and o.id = l.operator_id and o.disabled_at is null \
         returning o.id as operator_id, o.name as operator_name, o.roles, l.reusable",
    )
    .bind(&token_hash[..])
    .bind(&code_hash[..])
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some((SignedIn::from_row(&row)?, SignInMethod::of_link(row.try_get("reusable")?))))
}

/// How a session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInMethod {
    /// A link that is used once.
    Link,
    /// A link of a sandbox.
    ReusableLink,
    Passkey,
    /// A password and a one-time code.
    Password,
    /// An account at an identity provider.
    Oidc,
}

impl SignInMethod {
    const ALL: [Self; 5] = [Self::Link, Self::ReusableLink, Self::Passkey, Self::Password, Self::Oidc];

    const fn of_link(reusable: bool) -> Self {
        if reusable { Self::ReusableLink } else { Self::Link }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::ReusableLink => "reusable_link",
            Self::Passkey => "passkey",
            Self::Password => "password",
            Self::Oidc => "oidc",
        }
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
    sqlx::query(
        "insert into operator_session (token_hash, operator_id, method, source, authenticated_at) \
         values ($1, $2, $3, $4, case when $5 then clock_timestamp() end)",
    )
    .bind(&session.token_hash[..])
    .bind(session.operator_id)
    .bind(session.method.as_str())
    .bind(session.source)
    .bind(session.method.is_authentication())
    .execute(conn)
    .await?;
    Ok(())
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
        let known = |text: &str| SignInMethod::ALL.into_iter().find(|known| known.as_str() == text);
        let method = |text| known(text).ok_or_else(|| format!("{text} is unknown"));
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
    let row = sqlx::query(
        "select o.id as operator_id, o.name as operator_name, o.roles, s.method, \
                s.last_used_at < clock_timestamp() - interval '1 minute' as is_due, \
                coalesce(s.authenticated_at > clock_timestamp() - make_interval(secs => $4), false) as is_recent, \
                s.started_at > clock_timestamp() - make_interval(secs => $4) as is_new, \
                exists (select from operator_passkey p where p.operator_id = o.id) as has_passkey, \
                exists (select from operator_password p where p.operator_id = o.id) as has_password \
         from operator_session s join operator o on o.id = s.operator_id \
         where s.token_hash = $1 and s.ended_at is null and o.disabled_at is null \
           and s.last_used_at > clock_timestamp() - make_interval(secs => $2) \
           and s.started_at > clock_timestamp() - make_interval(secs => $3)",
    )
    .bind(&token_hash[..])
    .bind(times.idle.as_secs_f64())
    .bind(times.absolute.as_secs_f64())
    .bind(times.step_up.as_secs_f64())
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if renews && row.try_get("is_due")? {
        sqlx::query("update operator_session set last_used_at = clock_timestamp() where token_hash = $1")
            .bind(&token_hash[..])
            .execute(conn)
            .await?;
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
    let done = sqlx::query(
        "update operator_session set ended_at = clock_timestamp() \
         where operator_id = $1 and token_hash <> $2 and ended_at is null",
    );
    Ok(done.bind(operator_id).bind(&token_hash[..]).execute(conn).await?.rows_affected())
}

/// Ends a session. `false`: it had ended, or there is none.
pub async fn end_session(conn: &mut PgConnection, token_hash: &[u8; 32]) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update operator_session set ended_at = clock_timestamp() where token_hash = $1 and ended_at is null",
    );
    Ok(done.bind(&token_hash[..]).execute(conn).await?.rows_affected() == 1)
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
    let done = sqlx::query(
        "update operator_session set ended_at = clock_timestamp() \
         where operator_id = $1 and encode(substr(token_hash, 1, 8), 'hex') = $2 and ended_at is null",
    );
    Ok(done.bind(operator_id).bind(id).execute(conn).await?.rows_affected() > 0)
}

/// Deletes sessions that began and links that expired so long ago, and expired challenges and attempts.
pub async fn delete_old(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "with links as (delete from operator_link where ctid = any(array( \
                            select ctid from operator_link where expires_at < now() - make_interval(secs => $1) \
                            order by expires_at limit $2))), \
              challenges as (delete from operator_challenge where ctid = any(array( \
                            select ctid from operator_challenge where expires_at < now() \
                            order by expires_at limit $2))), \
              attempts as (delete from operator_attempt where ctid = any(array( \
                            select ctid from operator_attempt where since < now() - interval '1 day' \
                            order by since limit $2))) \
         delete from operator_session where ctid = any(array( \
             select ctid from operator_session where started_at < now() - make_interval(secs => $1) \
             order by started_at limit $2))",
    );
    Ok(done.bind(age.as_secs_f64()).bind(limit).execute(conn).await?.rows_affected())
}
