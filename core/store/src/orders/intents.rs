//! Decided submissions.

use dvp_domain::intent::IntentRequest;
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// A tenant: a partner in one environment. Test and live data are separate.
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

pub(crate) fn tenants<'a>(of: impl Iterator<Item = &'a Tenant>) -> (Vec<&'a str>, Vec<bool>) {
    of.map(|tenant| (tenant.partner_id.as_str(), tenant.livemode)).unzip()
}

// `offset 0` keeps the planner from replacing one lookup per key by a scan of the whole index.

/// The outcome of a submission under an id: `None` without one, else its reference, or no reference when it was
/// rejected.
pub async fn find_submission(
    conn: &mut PgConnection,
    tenant: &Tenant,
    intent_id: &str,
) -> Result<Option<Option<String>>, StoreError> {
    let sql = "select reference from intent where partner_id = $1 and livemode = $2 and intent_id = $3";
    statement::find_value(conn, sql, (&tenant.partner_id, tenant.livemode, intent_id)).await
}

/// The intent ids that were used before, accepted or not.
pub async fn list_used_ids(
    conn: &mut PgConnection,
    requested: &[(&Tenant, &str)],
) -> Result<Vec<(Tenant, String)>, StoreError> {
    let (partners, modes) = tenants(requested.iter().map(|(tenant, _)| *tenant));
    let ids: Vec<&str> = requested.iter().map(|(_, id)| *id).collect();
    let sql = "select p, l, i from unnest($1::text[], $2::bool[], $3::text[]) as requested (p, l, i) \
         where exists (select from intent where partner_id = p and livemode = l and intent_id = i offset 0)";
    let rows: Vec<(String, bool, String)> = statement::list(conn, sql, (partners, modes, ids)).await?;
    Ok(rows.into_iter().map(|(partner_id, livemode, id)| (Tenant { partner_id, livemode }, id)).collect())
}

pub async fn list_used_client_references(
    conn: &mut PgConnection,
    requested: &[(&Tenant, &str)],
) -> Result<Vec<(Tenant, String)>, StoreError> {
    let (partners, modes) = tenants(requested.iter().map(|(tenant, _)| *tenant));
    let references: Vec<&str> = requested.iter().map(|(_, reference)| *reference).collect();
    let sql = "select p, l, c from unnest($1::text[], $2::bool[], $3::text[]) as requested (p, l, c) \
         where exists (select from intent where partner_id = p and livemode = l and client_reference = c \
                                            and reference is not null offset 0)";
    let rows: Vec<(String, bool, String)> = statement::list(conn, sql, (partners, modes, references)).await?;
    Ok(rows.into_iter().map(|(partner_id, livemode, id)| (Tenant { partner_id, livemode }, id)).collect())
}
