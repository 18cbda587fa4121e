//! The sandbox's partners, keys, FIX sessions and balances. Seeding again changes nothing.

use std::time::Duration;

use anyhow::Context as _;
use dvp_core::operators::accounts::token_hash;
use dvp_core::operators::keys::SCOPES;
use dvp_core::secrets::Vault;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_domain::operator::OperatorRole;
use dvp_store::PgPool;
use dvp_store::fix::{self, NewFixSession};
use dvp_store::ledger::balances;
use dvp_store::operators::accounts;
use dvp_store::operators::accounts::sessions::{self, NewLink};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::{legacy, resting_orders};
use dvp_store::partners::registry::{self, NewKey};

use super::files::{PartnerSecrets, Secrets};
use super::inventory::{CURRENCIES, PREFUNDED, PROVIDERS};
use super::market::{prefunding, resting};

/// Requests a minute: high enough not to be reached by accident.
const LIMIT_PER_MINUTE: i64 = 600_000;

/// How long a sandbox's sign-in links are good; each start renews them.
const LINKS_FOR: Duration = Duration::from_secs(3650 * 86_400);

/// Where the first partner's outputs go when an order does not say.
const STANDING_INSTRUCTION: &str = "bene_straight:dest_10000000";

/// The service's CompID.
pub(super) const SERVICE_COMP_ID: &str = "DVP";

/// A FIX session of the partner: BeginString, the client's CompID, DefaultApplVerID.
pub(super) const SESSIONS: [(&str, &str, Option<&str>); 3] =
    [("FIX.4.4", "ACME", None), ("FIX.4.2", "ACME42", None), ("FIXT.1.1", "ACME50", Some("9"))];

/// Returns the partners' ids.
pub(super) async fn seed(
    pool: &PgPool,
    vault: &Vault,
    secrets: &Secrets,
    (solver, opening): (&str, &[(String, Minor)]),
) -> anyhow::Result<[String; 2]> {
    let mut tx = pool.begin().await?;
    for provider in PROVIDERS {
        for (asset, amount) in opening {
            balances::insert_opening(&mut tx, provider, asset, *amount).await?;
        }
    }
    if resting_orders::list_open(&mut tx).await?.is_empty() {
        for level in resting(solver)? {
            resting_orders::insert(&mut tx, &level).await?;
        }
    }
    let partner = seed_partner(&mut tx, vault, &secrets.partner).await?;
    let other = seed_partner(&mut tx, vault, &secrets.other_partner).await?;
    // Orders of the older surface name no recipient.
    let tenant = Tenant { partner_id: partner.clone(), livemode: false };
    for currency in CURRENCIES {
        let by = legacy::InstructedBy { operator: "sandbox", reason: "the sandbox begins", approval: None };
        legacy::upsert_instruction(&mut tx, &tenant, currency, STANDING_INSTRUCTION, by).await?;
    }
    for (begin_string, client, version) in SESSIONS {
        let id = fix::session_id(begin_string, SERVICE_COMP_ID, client);
        let session = NewFixSession {
            partner_id: partner.clone(),
            livemode: false,
            begin_string: begin_string.into(),
            client_comp_id: client.into(),
            service_comp_id: SERVICE_COMP_ID.into(),
            default_appl_ver_id: version.map(ToOwned::to_owned),
            username: secrets.partner.name.clone(),
            password_hash: vault.fix_password_hash(&id, &secrets.fix_password),
            password_key: vault.current_id().to_owned(),
        };
        fix::upsert_session(&mut tx, &session).await?;
    }
    seed_operators(&mut tx, secrets).await?;
    tx.commit().await?;
    Ok([partner, other])
}

/// Operators with every role, whose links can be used again for as long as the sandbox exists.
async fn seed_operators(tx: &mut sqlx::PgTransaction<'_>, secrets: &Secrets) -> anyhow::Result<()> {
    for (name, token) in &secrets.operators {
        let known = accounts::find_by_name(tx, name).await?;
        let id = match known {
            Some(operator) => operator.id,
            None => {
                let id = format!("opr_{name}");
                accounts::insert(tx, &id, name, &OperatorRole::ALL, "sandbox").await?;
                id
            }
        };
        let link = NewLink {
            operator_id: &id,
            token_hash: &token_hash(token),
            reusable: true,
            good_for: LINKS_FOR,
            code_hash: None,
            approval_id: None,
        };
        sessions::insert_link(tx, &link).await?;
    }
    Ok(())
}

async fn seed_partner(
    tx: &mut sqlx::PgTransaction<'_>,
    vault: &Vault,
    secrets: &PartnerSecrets,
) -> anyhow::Result<String> {
    let (id, key_id) = (format!("ptn_{}", secrets.name), format!("key_{}", secrets.name));
    let partner = registry::ensure_partner(tx, &id, &secrets.name, "enterprise", LIMIT_PER_MINUTE).await?;
    let prefix: String = secrets.api_key.chars().take(13).collect();
    let key = NewKey {
        partner_id: partner.clone(),
        env: "test",
        key_hash: vault.api_key_hash(&secrets.api_key),
        hash_key: vault.current_id().to_owned(),
        key_prefix: prefix,
        sealed_secret: vault.seal(&key_id, secrets.signing_secret.as_bytes()).context("signing secret")?,
        scopes: SCOPES.map(ToOwned::to_owned).to_vec(),
        key_id,
    };
    registry::ensure_key(tx, &key).await?;
    for currency in CURRENCIES {
        let owner = Owner::Partner { id: partner.clone(), livemode: false };
        let deposit = prefunding(&partner, currency);
        balances::deposit(tx, &deposit, &owner, currency, PREFUNDED).await?;
    }
    Ok(partner)
}
