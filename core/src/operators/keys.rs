//! Credentials of partners: the generation of API keys and their signing secrets, and the scopes of a key.
//!
//! Invariant: the texts returned by [`issue`] exist nowhere else. The database holds a keyed hash of the API key and
//! the sealed signing secret.

use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use dvp_domain::ids::KeyId;
use dvp_store::StoreError;
use dvp_store::partners::registry::{self, NewKey};
use dvp_store::{database::deployment, database::ids};
use sqlx::PgConnection;

use crate::secrets::{SealBroken, Vault};

/// All scopes of a key. A key issued without named scopes has all of them.
pub const SCOPES: [&str; 7] = [
    "quotes:write",
    "intents:write",
    "executions:read",
    "events:read",
    "webhooks:write",
    "reports:read",
    "resting_orders:write",
];

/// The random digits of an API key that may be displayed, after its prefix and environment; and with cells, where a proxy
/// tells keys of partners that moved by them.
const SHOWN_DIGITS: usize = 4;
const SHOWN_DIGITS_IN_CELL: usize = 12;

/// A key as it is shown to its holder, once.
pub struct Issued {
    pub key_id: String,
    /// `svc_{env}_`, with cells `c{cell}_`, and 48 hex digits.
    pub api_key: String,
    /// 64 hex digits; used as they are, as text.
    pub signing_secret: String,
}

/// Why a key could not be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("the operating system gives no random bytes: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error(transparent)]
    Seal(#[from] SealBroken),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates a key with its signing secret and stores what is needed to verify them.
pub async fn issue(
    conn: &mut PgConnection,
    vault: &Vault,
    partner_id: &str,
    environment: Environment,
    scopes: &[String],
) -> Result<Issued, IssueError> {
    let drawn = hex::encode(Vault::random()?);
    let digits: String = drawn.chars().take(48).collect();
    let cell = deployment::find_cell(conn).await?;
    let prefix = key_prefix(environment, cell);
    let shown = prefix.len() + if cell.is_some() { SHOWN_DIGITS_IN_CELL } else { SHOWN_DIGITS };
    let issued = Issued {
        key_id: KeyId::from_unique(ids::draw(cell).simple()).into(),
        api_key: format!("{prefix}{digits}"),
        signing_secret: hex::encode(Vault::random()?),
    };
    let key = NewKey {
        key_id: issued.key_id.clone(),
        partner_id: partner_id.to_owned(),
        env: environment.as_str(),
        key_hash: vault.api_key_hash(&issued.api_key),
        hash_key: vault.current_id().to_owned(),
        key_prefix: issued.api_key.chars().take(shown).collect(),
        sealed_secret: vault.seal(&issued.key_id, issued.signing_secret.as_bytes())?,
        scopes: scopes.to_vec(),
    };
    registry::ensure_key(conn, &key).await?;
    Ok(issued)
}

/// The part of an API key that names its environment and cell; a proxy finds the cell by it.
fn key_prefix(environment: Environment, cell: Option<CellId>) -> String {
    let environment = environment.as_str();
    cell.map_or_else(|| format!("svc_{environment}_"), |cell| format!("svc_{environment}_c{cell}_"))
}
