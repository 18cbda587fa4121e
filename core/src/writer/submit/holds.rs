//! Firm quotes and their holds on the locked balances.

use std::collections::{BTreeMap, BTreeSet};

use dvp_domain::abandonment::{CoolDown, CoolDownScope};
use dvp_domain::hold::{Holder, QuoteHolds, providers};
use dvp_domain::ledger::Owner;
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::ledger::balances::{Balance, BalanceKey};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::quotes::{self, NewFirmQuote};
use dvp_store::orders::{abandonments, quote_holds};
use sqlx::PgConnection;

use super::snapshot::BatchSnapshot;
use crate::context::Context;
use crate::writer::unit::{Outcome, Refusal};

/// The tolerated difference of processes' clocks, for the end of a hold.
const HOLD_GRACE_MS: i64 = 2_000;

/// The balances that a firm quote has a hold on.
pub(in crate::writer) fn quote_keys(quote: &NewFirmQuote) -> impl Iterator<Item = BalanceKey> {
    let terms = &quote.terms;
    providers(&terms.slices).map(|id| (Owner::Provider(id.to_owned()), terms.output_asset.clone()))
}

pub(super) fn holder(tenant: &Tenant) -> Holder {
    (tenant.partner_id.clone(), tenant.livemode)
}

/// The holds on locked balances of providers. A hold counts a little longer than its quote is valid: another process's
/// clock may be behind.
pub(in crate::writer) async fn load_holds(
    conn: &mut PgConnection,
    keys: &BTreeSet<BalanceKey>,
    now: Timestamp,
) -> Result<QuoteHolds, StoreError> {
    let providers = keys.iter().filter_map(|(owner, asset)| match owner {
        Owner::Provider(id) => Some((id.as_str(), asset.as_str())),
        Owner::Partner { .. } => None,
    });
    let providers: Vec<(&str, &str)> = providers.collect();
    if providers.is_empty() {
        return Ok(QuoteHolds::default());
    }
    quote_holds::load(conn, &providers, now.plus_millis(-HOLD_GRACE_MS).to_utc()).await
}

/// Holds the output of a firm quote and stores both, or stores neither. A partner whose unused quotes have held too much of
/// a provider's asset holds no more of it for now.
pub(in crate::writer) async fn hold(
    conn: &mut PgConnection,
    context: &Context,
    known: &mut BatchSnapshot,
    balances: &BTreeMap<BalanceKey, Balance>,
    quote: &NewFirmQuote,
    now: Timestamp,
) -> Result<Outcome, StoreError> {
    let terms = &quote.terms;
    let available = |provider: &str| {
        let key = (Owner::Provider(provider.to_owned()), terms.output_asset.clone());
        balances.get(&key).map(|balance| balance.available).unwrap_or_default()
    };
    let partner = &quote.tenant.partner_id;
    for provider in providers(&terms.slices) {
        let balance = available(provider);
        let of = (provider, terms);
        let until = abandonments::refuse_quote(conn, partner, of, balance, &context.cool_down, now).await?;
        if let Some(until) = until {
            let refusal = Refusal::CoolingDown(CoolDown::new(CoolDownScope::Quotes, until, now));
            return Ok(Outcome::Refused(refusal));
        }
    }
    let share = context.liquidity.firm_share_bps();
    if known.holds.take(&holder(&quote.tenant), terms, available, share).is_err() {
        return Ok(Outcome::Refused(Refusal::NotHeld));
    }
    quotes::insert_firm(conn, quote).await?;
    quote_holds::insert(conn, quote, now).await?;
    Ok(Outcome::Written)
}
