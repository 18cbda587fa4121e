//! Who acts: an operator by its console session or by a token, with what that proof allows.
//!
//! ```text
//! dvp login: a token drawn on the operator's machine --its hash, on a page of the console, after a step-up--> valid
//!            the first use binds it to the address it comes from; an hour later it ends
//! service:   a token with chosen actions and an end --two operators--> valid; it signs nothing for a second operator
//! sandbox:   the reusable sign-in token of sandbox.json, which the database refuses in a live deployment
//! ```

use std::net::IpAddr;
use std::time::Duration;

use dvp_core::operators::accounts::token_hash;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts::tokens::{self, TokenKind, TokenRow};
use dvp_store::{PgConnection, StoreError};

use crate::table::{Second, Spec};

/// How long a token of `dvp login` is good.
const LOGIN_FOR: Duration = Duration::from_secs(3600);

/// How a caller was authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// A session of the console.
    Session,
    /// A token of `dvp login` on the named machine.
    Login(String),
    /// A token of a service operator, with what it may do.
    Service { token: String, actions: Vec<String> },
    /// A reusable sign-in token of a sandbox.
    Sandbox,
}

impl Proof {
    /// A token of a service operator is good for its actions, and for no second signature.
    pub(crate) fn is_good_for(&self, spec: &Spec) -> bool {
        let Self::Service { actions, .. } = self else { return true };
        spec.second != Second::Signs && actions.iter().any(|action| action == spec.name)
    }

    fn describe(&self) -> String {
        match self {
            Self::Session => "session".to_owned(),
            Self::Login(machine) => format!("login on {machine}"),
            Self::Service { token, .. } => format!("service token {token}"),
            Self::Sandbox => "sandbox token".to_owned(),
        }
    }
}

/// The operator that an action is carried out for.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: String,
    pub roles: Vec<OperatorRole>,
    /// The address that it comes from.
    pub source: String,
    pub proof: Proof,
    /// The authentication is of the last minutes.
    pub is_recent: bool,
}

impl Caller {
    pub fn may(&self, roles: &[OperatorRole]) -> bool {
        self.roles.iter().any(|role| roles.contains(role))
    }

    /// Whether the operator's roles and its proof are good for an action.
    pub fn may_perform(&self, spec: &Spec) -> bool {
        self.may(spec.roles) && self.proof.is_good_for(spec)
    }

    /// Where an action comes from, as the audit log has it.
    pub(crate) fn origin(&self) -> String {
        match &self.proof {
            Proof::Session => self.source.clone(),
            proof => format!("{} ({})", self.source, proof.describe()),
        }
    }
}

/// The operator of a bearer token; `None`: the token is nobody's, has ended, or is another machine's.
///
/// # Errors
/// Fails when the database cannot be read.
pub async fn authenticate(
    conn: &mut PgConnection,
    token: &str,
    source: IpAddr,
    recent: Duration,
) -> Result<Option<Caller>, StoreError> {
    let source = source.to_string();
    let found = tokens::find_used(conn, &token_hash(token), &source, recent).await?;
    Ok(found.map(|TokenRow { id, operator, roles, kind, machine, actions, is_recent }| Caller {
        name: operator,
        roles,
        source,
        proof: match kind {
            TokenKind::Login => Proof::Login(machine),
            TokenKind::Service => Proof::Service { token: id, actions },
            TokenKind::Sandbox => Proof::Sandbox,
        },
        is_recent: is_recent || kind != TokenKind::Login,
    }))
}

/// Makes the token of which a machine has shown the hash the operator's own, for an hour. `false`: it was granted before.
///
/// # Errors
/// Fails when the database cannot be written.
pub async fn grant_login(
    conn: &mut PgConnection,
    operator_id: &str,
    hash: &[u8; 32],
    machine: &str,
) -> Result<bool, StoreError> {
    tokens::insert_login(conn, operator_id, hash, machine, LOGIN_FOR).await
}
