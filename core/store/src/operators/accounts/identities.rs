//! Operators' accounts at an identity provider.

use sqlx::PgConnection;

use super::SignedIn;
use crate::{StoreError, statement};

/// Sets the address by which an operator signs in at the provider, and forgets its account there; without one it
/// does not sign in there any more.
/// [`StoreError::constraint`] is `operator_identity_email_key` when another operator has it.
pub async fn upsert(
    conn: &mut PgConnection,
    operator_id: &str,
    email: Option<&str>,
) -> Result<(), StoreError> {
    let sql = "insert into operator_identity (operator_id, email) values ($1, $2) \
         on conflict on constraint operator_identity_pkey do update \
         set email = excluded.email, issuer = null, subject = null";
    statement::execute(conn, sql, (operator_id, email)).await
}

/// The operator of an account; at its first sign-in the one with its verified address. `None`: there is none, or it is
/// disabled.
pub async fn find(
    conn: &mut PgConnection,
    issuer: &str,
    subject: &str,
    verified_email: Option<&str>,
) -> Result<Option<SignedIn>, StoreError> {
    let sql = "select o.id as operator_id, o.name as operator_name, o.roles from operator_identity i join operator \
         o on o.id = i.operator_id where i.issuer = $1 and i.subject = $2 and o.disabled_at is null";
    let bound = statement::find(conn, sql, (issuer, subject)).await?;
    match bound {
        Some(operator) => Ok(Some(operator)),
        None => bind(conn, issuer, subject, verified_email).await,
    }
}

/// Binds the operator with a verified address to an account that is bound to none.
async fn bind(
    conn: &mut PgConnection,
    issuer: &str,
    subject: &str,
    verified_email: Option<&str>,
) -> Result<Option<SignedIn>, StoreError> {
    let sql = "update operator_identity i set issuer = $1, subject = $2 from operator o \
         where o.id = i.operator_id and o.disabled_at is null and i.issuer is null and lower(i.email) = lower($3) \
           and not exists (select from operator_identity k where k.issuer = $1 and k.subject = $2) \
         returning o.id as operator_id, o.name as operator_name, o.roles";
    statement::find(conn, sql, (issuer, subject, verified_email)).await
}
