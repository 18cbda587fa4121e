//! Challenges that operators sign with their passkeys, and sign-ins that were begun at an identity provider. One is
//! answered once.

use std::time::Duration;

use sqlx::PgConnection;

use crate::{StoreError, statement};

/// What a challenge is signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    SignIn,
    /// A sign-in at an identity provider.
    Oidc,
    /// A new passkey of this operator.
    Register(&'a str),
    /// An authentication of this operator within its session.
    StepUp(&'a str),
}

impl<'a> Purpose<'a> {
    const fn as_str(self) -> &'static str {
        match self {
            Self::SignIn => "sign_in",
            Self::Oidc => "oidc",
            Self::Register(_) => "register",
            Self::StepUp(_) => "step_up",
        }
    }

    const fn operator_id(self) -> Option<&'a str> {
        match self {
            Self::SignIn | Self::Oidc => None,
            Self::Register(operator) | Self::StepUp(operator) => Some(operator),
        }
    }
}

pub async fn insert(
    conn: &mut PgConnection,
    challenge: &[u8; 16],
    purpose: Purpose<'_>,
    state: &[u8],
    good_for: Duration,
) -> Result<(), StoreError> {
    let sql = "insert into operator_challenge (challenge, purpose, operator_id, state, expires_at) \
         values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))";
    let parameters = (&challenge[..], purpose.as_str(), purpose.operator_id(), state, good_for.as_secs_f64());
    statement::execute(conn, sql, parameters).await
}

/// Takes a challenge out and returns its state. `None`: it does not exist, was answered, has expired, or is for another
/// purpose.
pub async fn take(
    conn: &mut PgConnection,
    challenge: &[u8; 16],
    purpose: Purpose<'_>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "delete from operator_challenge where challenge = $1 and purpose = $2 and operator_id is not \
           distinct from $3 and expires_at > clock_timestamp() returning state";
    statement::find_value(conn, sql, (&challenge[..], purpose.as_str(), purpose.operator_id())).await
}
