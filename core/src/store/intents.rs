//! Decided submissions and the permit nonces that live ones hold.

use dvp_domain::intent::IntentRequest;
use sqlx::PgConnection;

use super::StoreError;

/// A tenant: a partner in one environment. Test and live data never meet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant {
    pub partner_id: String,
    pub livemode: bool,
}

/// A row of `intent`: accepted with a reference, or rejected with a reason.
#[derive(Debug, Clone)]
pub struct IntentRow<'a> {
    pub tenant: &'a Tenant,
    pub request: &'a IntentRequest,
    pub reference: Option<&'a str>,
    pub reason: Option<&'static str>,
}

/// A nonce of an owner's permit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitKey {
    /// Lowercase address.
    pub owner: String,
    pub nonce: String,
}

impl PermitKey {
    /// The nonce an intent spends, if it has a permit.
    pub fn of(request: &IntentRequest) -> Option<Self> {
        let permit = request.permit.as_ref()?;
        Some(Self { owner: request.user.to_lowercase(), nonce: permit.nonce.to_string() })
    }
}

pub(super) fn tenants<'a>(of: impl Iterator<Item = &'a Tenant>) -> (Vec<&'a str>, Vec<bool>) {
    of.map(|tenant| (tenant.partner_id.as_str(), tenant.livemode)).unzip()
}

// `offset 0` keeps the planner from turning a lookup a key into one walk through the whole index.

/// What a submission under an id came to: `None` when there was none, else its reference, or no reference when it was
/// rejected.
pub async fn find_submission(
    conn: &mut PgConnection,
    tenant: &Tenant,
    intent_id: &str,
) -> Result<Option<Option<String>>, StoreError> {
    let row: Option<(Option<String>,)> = sqlx::query_as(
        "select reference from intent where partner_id = $1 and livemode = $2 and intent_id = $3",
    )
    .bind(&tenant.partner_id)
    .bind(tenant.livemode)
    .bind(intent_id)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| row.0))
}

/// Which of the intent ids were used before, accepted or not.
pub async fn list_used_ids(
    conn: &mut PgConnection,
    asked: &[(&Tenant, &str)],
) -> Result<Vec<(Tenant, String)>, StoreError> {
    let (partners, modes) = tenants(asked.iter().map(|(tenant, _)| *tenant));
    let ids: Vec<&str> = asked.iter().map(|(_, id)| *id).collect();
    let rows: Vec<(String, bool, String)> = sqlx::query_as(
        "select p, l, i from unnest($1::text[], $2::bool[], $3::text[]) as asked (p, l, i) \
         where exists (select from intent where partner_id = p and livemode = l and intent_id = i offset 0)",
    )
    .bind(partners)
    .bind(modes)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(partner_id, livemode, id)| (Tenant { partner_id, livemode }, id)).collect())
}

/// Which of the client references belong to accepted intents.
pub async fn list_used_client_references(
    conn: &mut PgConnection,
    asked: &[(&Tenant, &str)],
) -> Result<Vec<(Tenant, String)>, StoreError> {
    let (partners, modes) = tenants(asked.iter().map(|(tenant, _)| *tenant));
    let references: Vec<&str> = asked.iter().map(|(_, reference)| *reference).collect();
    let rows: Vec<(String, bool, String)> = sqlx::query_as(
        "select p, l, c from unnest($1::text[], $2::bool[], $3::text[]) as asked (p, l, c) \
         where exists (select from intent where partner_id = p and livemode = l and client_reference = c \
                                            and reference is not null offset 0)",
    )
    .bind(partners)
    .bind(modes)
    .bind(references)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(partner_id, livemode, id)| (Tenant { partner_id, livemode }, id)).collect())
}

/// Which of the nonces are held by live settlements.
pub async fn list_held_permits(
    conn: &mut PgConnection,
    chain_id: i64,
    asked: &[PermitKey],
) -> Result<Vec<PermitKey>, StoreError> {
    let (owners, nonces): (Vec<&str>, Vec<&str>) =
        asked.iter().map(|key| (key.owner.as_str(), key.nonce.as_str())).unzip();
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select o, n from unnest($2::text[], $3::text[]) as asked (o, n) \
         where exists (select from permit_use where chain_id = $1 and owner = o and nonce = n::numeric offset 0)",
    )
    .bind(chain_id)
    .bind(owners)
    .bind(nonces)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(owner, nonce)| PermitKey { owner, nonce }).collect())
}

/// Lets go of the nonces of settlements whose lock is decided. What another settlement holds by now is left alone.
pub async fn delete_permits(
    conn: &mut PgConnection,
    chain_id: i64,
    held: &[(PermitKey, String)],
) -> Result<(), StoreError> {
    let owners: Vec<&str> = held.iter().map(|(key, _)| key.owner.as_str()).collect();
    let nonces: Vec<&str> = held.iter().map(|(key, _)| key.nonce.as_str()).collect();
    let references: Vec<&str> = held.iter().map(|(_, reference)| reference.as_str()).collect();
    sqlx::query(
        "delete from permit_use p using unnest($2::text[], $3::text[], $4::text[]) as u (owner, nonce, reference) \
         where p.chain_id = $1 and p.owner = u.owner and p.nonce = u.nonce::numeric and p.reference = u.reference",
    )
    .bind(chain_id)
    .bind(owners)
    .bind(nonces)
    .bind(references)
    .execute(conn)
    .await?;
    Ok(())
}
