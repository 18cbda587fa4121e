//! Tokens by which operators act without a session of the console: those of `dvp login`, and those of service operators.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use dvp_domain::operator::OperatorRole;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::{StoreError, read, statement};

names! {
    /// What a token was made for.
    pub enum TokenKind {
        /// `dvp login`: of a person at a machine.
        Login = "login",
        /// Automation.
        Service = "service",
        /// The reusable sign-in link of a sandbox.
        Sandbox = "sandbox",
    }
}

/// A token that is good, with its operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub operator: String,
    pub roles: Vec<OperatorRole>,
    pub kind: TokenKind,
    /// Where `dvp login` was run.
    pub machine: String,
    /// What a service operator may do by it.
    pub actions: Vec<String>,
    /// Its operator was authenticated within the last minutes.
    pub is_recent: bool,
}

impl FromRow<'_, PgRow> for TokenRow {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let kind = |text: String| TokenKind::parse(&text).ok_or_else(|| format!("{text} is unknown"));
        Ok(Self {
            id: row.try_get("id")?,
            operator: row.try_get("operator")?,
            roles: super::roles(row)?,
            kind: read(row, ("operator_token", "kind"), kind)?,
            machine: row.try_get("machine")?,
            actions: row.try_get("actions")?,
            is_recent: row.try_get("is_recent")?,
        })
    }
}

/// Finds a token that is good, and binds one of `dvp login` to the address of its first use.
pub async fn find_used(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
    source: &str,
    recent: Duration,
) -> Result<Option<TokenRow>, StoreError> {
    let sql = "with used as (update operator_token t \
               set source = coalesce(t.source, case when t.kind = 'login' then $2 end), \
                   last_used_at = clock_timestamp() \
               where t.token_hash = $1 and t.expires_at > clock_timestamp() and t.ended_at is null \
                 and (t.kind <> 'login' or coalesce(t.source, $2) = $2) returning t.*), \
         found as (select id, operator_id, kind, machine, actions, \
                          created_at > clock_timestamp() - make_interval(secs => $3) as is_recent from used \
                   union all \
                   select '', operator_id, 'sandbox', '', '{}', true from operator_link \
                   where token_hash = $1 and reusable and expires_at > clock_timestamp()) \
         select f.id, o.name as operator, o.roles, f.kind, f.machine, f.actions, f.is_recent \
         from found f join operator o on o.id = f.operator_id where o.disabled_at is null";
    statement::find(conn, sql, (&token_hash[..], source, recent.as_secs_f64())).await
}

/// Adds a token of `dvp login`. `false`: there is one with this hash.
pub async fn insert_login(
    conn: &mut PgConnection,
    operator_id: &str,
    token_hash: &[u8; 32],
    machine: &str,
    good_for: Duration,
) -> Result<bool, StoreError> {
    let sql = "insert into operator_token (token_hash, operator_id, kind, machine, expires_at) \
         values ($1, $2, 'login', $3, clock_timestamp() + make_interval(secs => $4)) on conflict do nothing";
    let parameters = (&token_hash[..], operator_id, machine, good_for.as_secs_f64());
    Ok(statement::affected(conn, sql, parameters).await? == 1)
}

/// Adds a token of a service operator.
pub async fn insert_service(
    conn: &mut PgConnection,
    operator_id: &str,
    token_hash: &[u8],
    actions: &[String],
    expires_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    let sql = "insert into operator_token (token_hash, operator_id, kind, actions, expires_at) \
         values ($1, $2, 'service', $3, $4)";
    statement::execute(conn, sql, (token_hash, operator_id, actions, expires_at)).await
}

/// Ends the tokens of an operator. Returns how many were good.
pub async fn end_all(conn: &mut PgConnection, operator_id: &str) -> Result<u64, StoreError> {
    let sql = "update operator_token set ended_at = clock_timestamp() \
         where operator_id = $1 and ended_at is null and expires_at > clock_timestamp()";
    statement::affected(conn, sql, (operator_id,)).await
}
