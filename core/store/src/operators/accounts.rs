//! Operators of the console: roles, and their records in the audit log; below, how they sign in.

pub mod challenges;
pub mod identities;
pub mod passkeys;
pub mod passwords;
pub mod sessions;
pub mod tokens;

use chrono::{DateTime, Utc};
use dvp_domain::names::names;
use dvp_domain::operator::OperatorRole;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::{StoreError, read, statement};

/// An operator who may sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    pub operator_id: String,
    pub name: String,
    pub roles: Vec<OperatorRole>,
}

/// An operator, disabled or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorRow {
    pub id: String,
    pub name: String,
    pub roles: Vec<OperatorRole>,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    pub disabled_at: Option<DateTime<Utc>>,
    /// The last use of a session.
    pub last_seen_at: Option<DateTime<Utc>>,
}

/// Of the columns `operator_id`, `operator_name` and `roles`.
impl FromRow<'_, PgRow> for SignedIn {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            operator_id: row.try_get("operator_id")?,
            name: row.try_get("operator_name")?,
            roles: roles(row)?,
        })
    }
}

impl FromRow<'_, PgRow> for OperatorRow {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            roles: roles(row)?,
            created_by: row.try_get("created_by")?,
            created_at: row.try_get("created_at")?,
            disabled_at: row.try_get("disabled_at")?,
            last_seen_at: row.try_get("last_seen_at")?,
        })
    }
}

fn roles(row: &PgRow) -> sqlx::Result<Vec<OperatorRole>> {
    let role = |text: &String| OperatorRole::parse(text).ok_or_else(|| format!("{text} is unknown"));
    read(row, ("operator", "roles"), |roles: Vec<String>| roles.iter().map(role).collect::<Result<_, _>>())
}

fn words(roles: &[OperatorRole]) -> Vec<&'static str> {
    roles.iter().map(|role| role.as_str()).collect()
}

/// Adds an operator. [`StoreError::constraint`] is `operator_name_key` when the name is taken.
pub async fn insert(
    conn: &mut PgConnection,
    id: &str,
    name: &str,
    roles: &[OperatorRole],
    created_by: &str,
) -> Result<(), StoreError> {
    let sql = "insert into operator (id, name, roles, created_by) values ($1, $2, $3, $4)";
    statement::execute(conn, sql, (id, name, words(roles), created_by)).await
}

/// Whether there is no operator; none is added by others until the transaction's end.
pub async fn lock_if_none(conn: &mut PgConnection) -> Result<bool, StoreError> {
    statement::execute(conn, "lock table operator in exclusive mode", ()).await?;
    statement::load_value(conn, "select not exists (select from operator)", ()).await
}

/// Operators by name, those after `after`; or the one of a name.
async fn select(
    conn: &mut PgConnection,
    name: Option<&str>,
    after: &str,
    limit: i64,
) -> Result<Vec<OperatorRow>, StoreError> {
    let sql = "select o.id, o.name, o.roles, o.created_by, o.created_at, o.disabled_at, \
                (select max(s.last_used_at) from operator_session s where s.operator_id = o.id) as last_seen_at \
         from operator o where ($1::text is null or lower(o.name) = lower($1)) and lower(o.name) > lower($2) \
         order by lower(o.name) limit $3";
    statement::list(conn, sql, (name, after, limit)).await
}

pub async fn find_by_name(conn: &mut PgConnection, name: &str) -> Result<Option<OperatorRow>, StoreError> {
    Ok(select(conn, Some(name.trim()), "", 1).await?.pop())
}

pub async fn list(conn: &mut PgConnection, after: &str, limit: i64) -> Result<Vec<OperatorRow>, StoreError> {
    select(conn, None, after, limit).await
}

/// Replaces an operator's roles. `false`: there is no such operator.
pub async fn update_roles(
    conn: &mut PgConnection,
    id: &str,
    roles: &[OperatorRole],
) -> Result<bool, StoreError> {
    let sql = "update operator set roles = $2 where id = $1";
    Ok(statement::affected(conn, sql, (id, words(roles))).await? == 1)
}

/// Disables an operator, or enables it again, and ends its sessions and links. `false`: it was so before.
pub async fn set_disabled(conn: &mut PgConnection, id: &str, disabled: bool) -> Result<bool, StoreError> {
    let sql = "with changed as (update operator set disabled_at = case when $2 then clock_timestamp() end \
                          where id = $1 and (disabled_at is not null) <> $2 returning id), \
         ended as (update operator_session s set ended_at = clock_timestamp() from changed c \
                   where s.operator_id = c.id and s.ended_at is null), \
         spent as (delete from operator_link l using changed c where l.operator_id = c.id), \
         revoked as (update operator_token t set ended_at = clock_timestamp() from changed c \
                     where t.operator_id = c.id and t.ended_at is null) \
         select from changed";
    Ok(statement::find_row(conn, sql, (id, disabled)).await?.is_some())
}

names! {
    /// What an entry of the audit log records about the console.
    pub enum ConsoleAction {
        SignedIn = "signed_in",
        SignedOut = "signed_out",
        /// An action that the operator's roles do not allow, or that was not carried out.
        Refused = "refused",
        /// Personal data was read.
        Read = "read",
        /// An action that has no record of its own.
        Acted = "acted",
        /// A sign-in or an authentication within a session failed.
        Failed = "failed",
        /// A way to sign in was added.
        Registered = "registered",
        /// A way to sign in was removed.
        Removed = "removed",
        /// The operator was authenticated again within its session.
        SteppedUp = "stepped_up",
    }
}

/// A new entry about the console.
#[derive(Debug, Clone, Copy)]
pub struct ConsoleRecord<'a> {
    pub operator: &'a str,
    pub action: ConsoleAction,
    pub route: &'a str,
    pub subject: &'a str,
    pub source: &'a str,
}

/// Appends an entry to the audit log.
pub async fn record(conn: &mut PgConnection, record: &ConsoleRecord<'_>) -> Result<(), StoreError> {
    let sql =
        "insert into console_record (operator, action, route, subject, source) values ($1, $2, $3, $4, $5)";
    let parameters = (record.operator, record.action.as_str(), record.route, record.subject, record.source);
    statement::execute(conn, sql, parameters).await
}
