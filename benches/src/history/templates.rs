//! Orders of every outcome, settled by the engine and its workers: three partners have one of each.

use anyhow::ensure;
use dvp_core::context::now;
use dvp_core::engine::CancelOutcome;
use dvp_core::operators::operations::Action;
use dvp_core::writer::Outcome;
use dvp_domain::chain::ChainFact;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::ledger::Owner;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::settlement::Remedy;
use dvp_store::ledger::balances;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::registry;
use dvp_testing::chain::request_refunds;
use dvp_testing::harness::Database;
use dvp_testing::market::pair;
use dvp_testing::orders::{self, Terms, order_for};
use dvp_testing::wait::wait_for;
use dvp_testing::{Harness, Market};

const ENOUGH: u128 = u128::MAX >> 12;
const PROVIDERS: [&str; 2] = ["north", "south"];

/// Every kind of order, and two providers with enough for all of them.
pub fn market() -> Market {
    let pairs = vec![
        pair("USDC", "USD", "1"),
        pair("WETH", "USDC", "2000"),
        pair("USD", "EUR", "0.92"),
        pair("USD", "USDC", "1"),
    ];
    let south = LiquidityProvider {
        full_depth_bps: 100,
        ..LiquidityProvider::new("south", "0x0000000000000000000000000000000000000002", 20)
    };
    let market = Market::new(pairs).with_provider(south);
    let held = PROVIDERS.into_iter().flat_map(|id| ["USD", "EUR", "USDC", "WETH"].map(|asset| (id, asset)));
    held.fold(market, |market, (id, asset)| market.with_funds(id, asset, ENOUGH))
}

/// How an order is to end, or where it is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    PayoutFailed,
    ConversionFailed,
    Cancelled,
    Expired,
    Failed,
    /// Its payment came back, and nobody has decided what to do.
    Reversed,
    /// Its payment came back and was made another way.
    Resolved,
    Rejected,
    /// It rests before its lock is sent.
    Resting,
    /// Its lock is commanded.
    Locking,
    /// Its payout has no answer.
    Paying,
}

#[derive(Debug, Clone)]
pub struct Template {
    pub partner_id: String,
    /// Of a rejected order there is none.
    pub reference: Option<String>,
    pub intent_id: String,
    pub wallet: String,
    /// Of a thousand ended orders, or of a thousand open ones.
    pub share: i32,
    pub is_open: bool,
}

const TOKEN_TO_MONEY: Terms<'static> =
    Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" };
const MONEY: Terms<'static> = Terms { input: ("USD", 100_000), output: "EUR", account: "000123456789" };
const MONEY_TO_TOKEN: Terms<'static> = Terms { input: ("USD", 100_000), output: "USDC", account: "" };
const TOKENS: Terms<'static> =
    Terms { input: ("WETH", 1_000_000_000_000_000_000), output: "USDC", account: "" };

/// Each kind of order with its end, and its share of a thousand orders of its partner.
const KINDS: [(Terms<'static>, End, i32); 18] = [
    (TOKEN_TO_MONEY, End::Completed, 330),
    (MONEY, End::Completed, 250),
    (MONEY_TO_TOKEN, End::Completed, 60),
    (TOKENS, End::Completed, 60),
    (Terms { account: "000123450002", ..TOKEN_TO_MONEY }, End::PayoutFailed, 40),
    (Terms { account: "000123450002", ..MONEY }, End::PayoutFailed, 20),
    (Terms { account: "000123450003", ..TOKEN_TO_MONEY }, End::ConversionFailed, 50),
    (Terms { account: "000123450008", ..MONEY }, End::Cancelled, 50),
    (Terms { account: "000123450008", ..MONEY }, End::Expired, 50),
    (TOKEN_TO_MONEY, End::Failed, 20),
    (TOKENS, End::Failed, 10),
    (TOKEN_TO_MONEY, End::Resolved, 10),
    (MONEY, End::Rejected, 50),
    (Terms { account: "000123450008", ..TOKEN_TO_MONEY }, End::Resting, 200),
    (TOKEN_TO_MONEY, End::Locking, 250),
    (TOKEN_TO_MONEY, End::Reversed, 50),
    (Terms { account: "000123450007", ..TOKEN_TO_MONEY }, End::Paying, 300),
    (Terms { account: "000123450007", ..MONEY }, End::Paying, 200),
];

pub(super) const PARTNERS: [(&str, &str); 3] =
    [("ptn_acme", "acme"), ("ptn_globex", "globex"), ("ptn_initech", "initech")];

/// Settles one order of each kind for each partner, and waits until nothing is under way.
pub(super) async fn settle<D: Database>(harness: &Harness<D>) -> anyhow::Result<Vec<Template>> {
    let workers = harness.start_workers();
    let mut tenants = Vec::new();
    for (id, name) in PARTNERS {
        let mut conn = harness.pool().acquire().await?;
        let partner_id = registry::ensure_partner(&mut conn, id, name, "enterprise", 1_000_000_000).await?;
        let owner = Owner::Partner { id: partner_id.clone(), livemode: false };
        balances::deposit(&mut conn, &format!("history:{name}"), &owner, "USD", Minor::new(ENOUGH)).await?;
        tenants.push(Tenant { partner_id, livemode: false });
    }
    let place = |rests: bool| {
        let kinds = KINDS.iter().filter(move |(_, end, _)| (*end == End::Resting) == rests);
        let each = kinds.flat_map(|kind| tenants.iter().map(move |tenant| (tenant, kind)));
        futures_util::future::try_join_all(
            each.map(|(tenant, (terms, end, share))| template(harness, tenant, terms, *end, *share)),
        )
    };
    let mut templates = place(false).await?;
    harness
        .wait_for_count(
            "select count(*) from chain_fact where consumed_at is null and retracted_at is null",
            0,
        )
        .await;
    // They rest for seconds only: the others may take longer.
    templates.extend(place(true).await?);
    workers.abort();
    Ok(templates)
}

async fn template<D: Database>(
    harness: &Harness<D>,
    tenant: &Tenant,
    terms: &Terms<'_>,
    end: End,
    share: i32,
) -> anyhow::Result<Template> {
    let mut request = order_for(terms);
    match end {
        End::Expired => request.deadline = now().plus_millis(1_500),
        End::Rejected => {
            request.bounds =
                Bounds::ExactInput { input: Minor::new(terms.input.1), min_output: Minor::new(ENOUGH) };
        }
        _ => request.deadline = now().plus_millis(3_600_000),
    }
    let (intent_id, wallet) = (request.intent_id.clone(), request.user.to_lowercase());
    let reference = submit(harness, tenant, request).await?;
    let is_open = matches!(end, End::Resting | End::Locking | End::Paying | End::Reversed);
    let partner_id = tenant.partner_id.clone();
    if let Some(reference) = &reference {
        reach(harness, tenant, reference, terms, end).await?;
    }
    ensure!(reference.is_none() == (end == End::Rejected), "{end:?}: {reference:?}");
    Ok(Template { partner_id, reference, intent_id, wallet, share, is_open })
}

async fn submit<D: Database>(
    harness: &Harness<D>,
    tenant: &Tenant,
    request: IntentRequest,
) -> anyhow::Result<Option<String>> {
    match orders::submit(&harness.engine, tenant, request).await? {
        Outcome::Accepted(accepted) => Ok(Some(accepted.reference.to_string())),
        Outcome::Rejected { .. } => Ok(None),
        other => anyhow::bail!("neither accepted nor rejected: {other:?}"),
    }
}

async fn reach<D: Database>(
    harness: &Harness<D>,
    tenant: &Tenant,
    reference: &str,
    terms: &Terms<'_>,
    end: End,
) -> anyhow::Result<()> {
    let locks = terms.input.0 != "USD";
    match end {
        End::Completed | End::Reversed | End::Resolved => {
            harness.play_chain(reference).await;
            wait_for_final(harness, reference).await;
            if end != End::Completed {
                give_back(harness, reference).await;
                harness.wait_for_state(reference, "reversed").await;
            }
            if end == End::Resolved {
                pay_again(harness, reference).await;
            }
        }
        End::ConversionFailed => {
            harness.play_until(reference, |kind| kind == "cancel").await;
            harness.wait_for_state(reference, "conversion_failed").await;
        }
        End::PayoutFailed => {
            if locks {
                harness.play_until(reference, |kind| kind == "fill").await;
            }
            harness.wait_for_state(reference, "payout_failed").await;
            if locks {
                refund(harness, reference).await?;
            }
            close_conversion(harness, reference).await;
        }
        End::Cancelled => {
            let done = harness.engine.cancel(tenant, reference, None).await?;
            ensure!(done == CancelOutcome::Cancelled, "{done:?}");
        }
        End::Expired => harness.wait_for_state(reference, "expired").await,
        End::Failed => {
            let kind = if terms.output == "USDC" { "swap" } else { "create" };
            let (entity, _) = harness.command(reference, kind).await;
            let (code, message) = ("permit_expired".to_owned(), "the permit has expired".to_owned());
            let fact = ChainFact::CommandFailed { command: kind.to_owned(), code, message };
            harness.report_fact(&entity, &fact).await;
            harness.wait_for_state(reference, "failed").await;
        }
        End::Locking => harness.wait_for_state(reference, "locking").await,
        End::Paying => {
            if locks {
                harness.play_until(reference, |kind| kind == "fill").await;
            }
            harness.wait_for_state(reference, "paying").await;
        }
        End::Resting | End::Rejected => {}
    }
    Ok(())
}

async fn wait_for_final<D: Database>(harness: &Harness<D>, reference: &str) {
    let is_final = "select state_name = 'completed' and coalesce(jsonb_typeof(state -> 'finality') = 'object', false) \
                    from execution where reference = $1";
    wait_for("the anchored receipt", || async {
        harness.row_of::<(bool,)>(is_final, reference).await.0.then_some(())
    })
    .await;
}

/// The chain gives back what a failed payout has locked, as it does after the timelock.
async fn refund<D: Database>(harness: &Harness<D>, reference: &str) -> anyhow::Result<()> {
    const BEFORE_THE_TIMELOCK: i64 = -10_000_000;
    let mut conn = harness.pool().acquire().await?;
    request_refunds(&mut conn, BEFORE_THE_TIMELOCK).await;
    drop(conn);
    let (entity, _) = harness.command(reference, "refund").await;
    harness.report_fact(&entity, &ChainFact::Refunded).await;
    Ok(())
}

/// The bank has returned the payment.
async fn give_back<D: Database>(harness: &Harness<D>, reference: &str) {
    let action = Action::MarkReturned {
        provider_reference: format!("R{reference}"),
        at: now().to_utc(),
        came: None,
        code: "beneficiary_account_closed".into(),
    };
    harness.both_decide(reference, action).await;
}

/// A trade ends an unused conversion.
async fn close_conversion<D: Database>(harness: &Harness<D>, reference: &str) {
    let open = "select exists (select from execution where reference = $1 and unresolved)";
    let is_open = async || harness.row_of::<(bool,)>(open, reference).await.0;
    if is_open().await {
        let action = Action::CloseConversion { provider_reference: format!("T{reference}") };
        harness.both_decide(reference, action).await;
        wait_for("the position to end", || async { (!is_open().await).then_some(()) }).await;
    }
}

async fn pay_again<D: Database>(harness: &Harness<D>, reference: &str) {
    let (remedy, provider_reference) = (Remedy::PaidAgain, format!("P{reference}"));
    let action = Action::ResolveReturn { remedy, provider_reference, at: now().to_utc() };
    harness.both_decide(reference, action).await;
}
