//! Queries for an operator's health check.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{MIGRATOR, StoreError, statement};

pub async fn server_version(conn: &mut PgConnection) -> Result<String, StoreError> {
    statement::load_value(conn, "select current_setting('server_version')", ()).await
}

/// The database's clock.
pub async fn clock(conn: &mut PgConnection) -> Result<DateTime<Utc>, StoreError> {
    statement::load_value(conn, "select clock_timestamp()", ()).await
}

/// The connection's protection, for display.
pub async fn protection(conn: &mut PgConnection) -> Result<String, StoreError> {
    let of_this = "select inet_server_addr() is null, s.ssl, s.version, s.cipher, s.client_dn
        from pg_stat_ssl s
        where s.pid = pg_backend_pid()";
    let (by_socket, encrypted, version, cipher, client): (
        bool,
        bool,
        Option<String>,
        Option<String>,
        Option<String>,
    ) = statement::load(conn, of_this, ()).await?;
    if by_socket {
        return Ok("by a unix socket".to_owned());
    }
    if !encrypted {
        return Ok("on this machine, not encrypted".to_owned());
    }
    let (version, cipher) = (version.unwrap_or_default(), cipher.unwrap_or_default());
    let client = client.map_or_else(String::new, |name| format!(", with our certificate for {name}"));
    Ok(format!("by {version} ({cipher}), host name and certificate verified{client}"))
}

/// The difference between the schema and what this program needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The latest migration that was applied completely. `None`: there is no schema.
    pub newest: Option<i64>,
    /// Migrations that this program needs and the schema lacks. Migrations are not always applied in the order of their
    /// numbers, so an older one can be missing below a newer one.
    pub missing: Vec<i64>,
}

impl Schema {
    /// The missing migrations as text, `None` without any.
    pub fn complaint(&self) -> Option<String> {
        let (first, last) = (self.missing.first()?, self.missing.last()?);
        let newest = self.newest.map_or_else(|| "empty".to_owned(), |newest| format!("at version {newest}"));
        let missing = self.missing.len();
        Some(format!(
            "the schema is {newest} and lacks {missing} migrations ({first} to {last}): run dvp migrate"
        ))
    }
}

pub async fn schema(conn: &mut PgConnection) -> Result<Schema, StoreError> {
    let there: bool =
        statement::load_value(conn, "select to_regclass('_sqlx_migrations') is not null", ()).await?;
    let applied: Vec<i64> = if there {
        let sql = "select version from _sqlx_migrations where success order by version";
        statement::list_values(conn, sql, ()).await?
    } else {
        Vec::new()
    };
    let needed = MIGRATOR.iter().map(|migration| migration.version);
    let missing = needed.filter(|version| applied.binary_search(version).is_err()).collect();
    Ok(Schema { newest: applied.last().copied(), missing })
}

/// An encrypted secret with its key's id, to test the master key.
pub async fn any_sealed_secret(conn: &mut PgConnection) -> Result<Option<(String, Vec<u8>)>, StoreError> {
    let sql = "select id, sealed_secret from api_key where revoked_at is null order by id limit 1";
    statement::find(conn, sql, ()).await
}
