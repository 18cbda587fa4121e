//! Operators' decisions about partners, over the command line and the console.

use chrono::{DateTime, Utc};
use dvp_domain::ids::PartnerId;
use dvp_domain::names::names;
use dvp_store::partners::registry::{self, PartnerRow};
use dvp_store::{PgConnection, StoreError, database::ids};

use crate::operators::requests::{begin, end};

names! {
    /// A partner's class, which decides its usual rate.
    pub enum Tier {
        Standard = "standard",
        Enterprise = "enterprise",
    }
}

impl Tier {
    /// Requests a minute when nothing else was agreed.
    pub const fn usual_limit(self) -> i64 {
        match self {
            Self::Standard => 100,
            Self::Enterprise => 1000,
        }
    }
}

/// The most requests a minute that a partner may have.
pub const LIMIT_MAX: i64 = 1_000_000_000;
/// What a partner's name is, which becomes part of log lines and of a FIX user name.
pub const NAME: &str = "1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'";

pub fn is_name(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&text.len()) && text.chars().all(known)
}

/// Why a partner was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("a partner's name is {NAME}")]
    Name,
    #[error("a limit is 1 to {LIMIT_MAX} requests a minute")]
    Limit,
    #[error("there is a partner {0} already")]
    Exists(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates a partner and returns its id. It can do nothing before it has a key or a session.
pub async fn create(
    conn: &mut PgConnection,
    name: &str,
    tier: Tier,
    limit_per_minute: Option<i64>,
) -> Result<String, CreateError> {
    let limit = limit_per_minute.unwrap_or(tier.usual_limit());
    if !is_name(name) {
        return Err(CreateError::Name);
    }
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(CreateError::Limit);
    }
    let id = String::from(PartnerId::from_unique(ids::draw_here(conn).await?.simple()));
    if registry::insert_partner(conn, &id, name, tier.as_str(), limit).await? {
        Ok(id)
    } else {
        Err(CreateError::Exists(name.to_owned()))
    }
}

/// Why a partner was not disabled or enabled.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    #[error("operator and reason are needed")]
    NoReason,
    #[error("there is no partner {0}")]
    Unknown(String),
    #[error("the partner was enabled or disabled again since you opened the page: look again")]
    Changed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Disables or enables a partner, and returns it with whether anything changed.
pub async fn switch(
    conn: &mut PgConnection,
    name: &str,
    enabled: bool,
    operator: &str,
    reason: &str,
) -> Result<(PartnerRow, bool), SwitchError> {
    let partner = switched(conn, name, operator, reason).await?;
    let mut tx = begin(conn).await?;
    let switched = registry::switch_partner(&mut tx, &partner.id, enabled, operator, reason).await;
    let is_changed = end(tx, switched).await?;
    Ok((partner, is_changed))
}

/// Enables a partner that was disabled at `disabled_at`, and not again since.
pub async fn enable_seen(
    conn: &mut PgConnection,
    name: &str,
    disabled_at: DateTime<Utc>,
    operator: &str,
    reason: &str,
) -> Result<(), SwitchError> {
    let partner = switched(conn, name, operator, reason).await?;
    let mut tx = begin(conn).await?;
    let enabled = registry::enable_seen(&mut tx, &partner.id, disabled_at, operator, reason).await;
    if end(tx, enabled).await? { Ok(()) } else { Err(SwitchError::Changed) }
}

/// The partner of a switch that has an operator and a reason.
async fn switched(
    conn: &mut PgConnection,
    name: &str,
    operator: &str,
    reason: &str,
) -> Result<PartnerRow, SwitchError> {
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(SwitchError::NoReason);
    }
    let partner = registry::find_partner(conn, name).await?;
    partner.ok_or_else(|| SwitchError::Unknown(name.to_owned()))
}
