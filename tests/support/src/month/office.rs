//! The operators' daily work: deposits and withdrawals of partners and providers, sweeps of fees and settlements of
//! claims on Fridays, and payments that came back. Each is requested by one operator and approved by another, and moves
//! money on the chain or at the bank as well.

use chrono::{DateTime, Datelike as _, Utc, Weekday};
use dvp_core::approvals::approve;
use dvp_core::ledger_operations::request;
use dvp_core::operations::{Action, Resolution, resolve};
use dvp_core::requests::Maker;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::ledger::{Account, Claimant, Owner};
use dvp_domain::money::Minor;
use dvp_domain::settlement::{Remedy, State};
use dvp_domain::terms::Terms;
use dvp_store::ledger::statements::StatementAccount;
use dvp_store::ledger::{balances, closings};
use sqlx::types::Json;

use super::Month;
use super::chain::token;

/// The service's own wallet.
pub(super) const TREASURY: &str = "0x00000000000000000000000000000000000000f0";
const PROVIDERS: [&str; 2] = ["north", "south"];

pub(super) async fn noon(month: &mut Month) {
    resolve_returns(month).await;
    // The reversal moves fees, too.
    month.settle_down().await;
    bring_and_take(month).await;
    if month.now().weekday() == Weekday::Fri {
        for currency in ["USD", "EUR"] {
            sweep_fees(month, currency).await;
        }
        settle_claims(month, "USDC").await;
        settle_claims(month, "WETH").await;
    }
}

/// Returns the operation's id, which the bank is told, too.
async fn post(month: &mut Month, operation: &Operation) -> String {
    month.report.operations += 1;
    let id = format!("O-{}", month.report.operations);
    let maker = Maker { operator: "jo", reason: "business", evidence: "a statement" };
    let mut conn = month.harness.pool().acquire().await.unwrap();
    let requested = request(&mut conn, &id, operation, maker).await.unwrap();
    approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
    id
}

/// A balance of whole minor units, now.
async fn balance(month: &Month, account: Account, asset: &str) -> i128 {
    let mut conn = month.harness.pool().acquire().await.unwrap();
    let (account, end) = (StatementAccount::from(&account), DateTime::<Utc>::MAX_UTC);
    let text = closings::load_balance_before(&mut conn, &account, asset, end).await;
    text.unwrap().parse().unwrap()
}

fn unsigned(amount: i128) -> u128 {
    u128::try_from(amount).unwrap()
}

async fn bring_and_take(month: &mut Month) {
    let owners = [month.harness.partner(), Owner::Provider("north".into()), Owner::Provider("south".into())];
    let owner = owners[month.dice.index(owners.len())].clone();
    let is_partner = matches!(owner, Owner::Partner { .. });
    let assets: &[&str] = if is_partner { &["USD", "EUR"] } else { &["USD", "EUR", "USDC", "WETH"] };
    let asset = assets[month.dice.index(assets.len())];
    let wallet = month.harness.market.providers.iter().find(|one| one.id == owner.name());
    let wallet = wallet.map(|one| one.wallet.clone()).unwrap_or_default();
    let amount = 1 + u128::from(month.dice.throw(50_000_000));
    let outside = format!("wallet of {}", owner.name());
    if month.dice.throw(2) == 0 {
        let mut conn = month.harness.pool().acquire().await.unwrap();
        let id = format!("D-{}", month.now().timestamp());
        balances::deposit(&mut conn, &id, &owner, asset, Minor::new(amount)).await.unwrap();
        match token(asset) {
            Some(token) => month.chain.transfer(&outside, &wallet, token, i128::try_from(amount).unwrap()),
            None => month.bank.deposit(&id, asset, amount),
        }
    } else {
        let (available, _) = month.harness.balance(&owner, asset).await;
        let amount = amount.min(available);
        if amount == 0 {
            return;
        }
        let amount_minor = Minor::new(amount);
        let operation =
            Operation::Withdrawal { owner: owner.clone(), asset: asset.to_owned(), amount: amount_minor };
        let id = post(month, &operation).await;
        match token(asset) {
            Some(token) => month.chain.transfer(&wallet, &outside, token, i128::try_from(amount).unwrap()),
            None => month.bank.send(&id, asset, amount),
        }
    }
}

async fn sweep_fees(month: &mut Month, currency: &str) {
    let fees = balance(month, Account::Fees, currency).await;
    if fees > 0 {
        let amount = Minor::new(unsigned(fees));
        let id = post(month, &Operation::FeeSweep { asset: currency.to_owned(), amount }).await;
        month.bank.send(&id, currency, unsigned(fees));
    }
}

/// Each wallet pays out others' funds that it holds, up to one other owner's claim.
async fn settle_claims(month: &mut Month, asset: &str) {
    let wallet = |month: &Month, claimant: &Claimant| match claimant {
        Claimant::House => TREASURY.to_owned(),
        Claimant::Provider(id) => {
            month.harness.market.providers.iter().find(|one| one.id == *id).unwrap().wallet.clone()
        }
    };
    let mut claims = Vec::new();
    let providers = PROVIDERS.iter().map(|id| Claimant::Provider((*id).to_owned()));
    for claimant in std::iter::once(Claimant::House).chain(providers) {
        let amount = balance(month, Account::Claim(claimant.clone()), asset).await;
        claims.push((claimant, amount));
    }
    let debtor = claims.iter().min_by_key(|(_, amount)| *amount).unwrap().clone();
    let claimant = claims.iter().max_by_key(|(_, amount)| *amount).unwrap().clone();
    let amount = claimant.1.min(-debtor.1);
    if amount > 0 {
        let operation = Operation::ClaimSettlement {
            debtor: debtor.0.clone(),
            claimant: claimant.0.clone(),
            asset: asset.to_owned(),
            amount: Minor::new(unsigned(amount)),
        };
        post(month, &operation).await;
        let (from, to) = (wallet(month, &debtor.0), wallet(month, &claimant.0));
        month.chain.transfer(&from, &to, token(asset).unwrap(), amount);
    }
}

/// A payment that came back is made another way, or the input is given back.
async fn resolve_returns(month: &mut Month) {
    let rows: Vec<(String, Json<Terms>, Json<State>)> = sqlx::query_as(
        "select reference, terms, state from execution e \
         where state_name = 'reversed' and state #>> '{reversal,resolved}' is null \
           and jsonb_typeof(state -> 'finality') = 'object' \
           and not exists (select from effect where reference = e.reference) order by reference",
    )
    .fetch_all(month.harness.pool())
    .await
    .unwrap();
    for (reference, Json(terms), Json(state)) in rows {
        let pays_again = month.dice.throw(2) == 0 && !state.was_paid_by_house();
        let remedy = if pays_again { Remedy::PaidAgain } else { Remedy::GivenBack };
        // The bank knows the payment by this reference alone.
        let by_hand = format!("W{}", month.report.operations);
        let action = Action::ResolveReturn { remedy, provider_reference: by_hand.clone(), at: month.now() };
        for operator in ["jo", "mika"] {
            let mut conn = month.harness.pool().acquire().await.unwrap();
            let (reason, evidence) = ("the bank sent it back", "statement 18");
            let resolution =
                Resolution { reference: &reference, action: action.clone(), operator, reason, evidence };
            let decided = resolve(&mut conn, &resolution).await.unwrap();
            assert_eq!(decided.is_proposal, operator == "jo", "two operators decide");
        }
        month.report.operations += 1;
        match (remedy, token(&terms.input.asset)) {
            (Remedy::PaidAgain, _) => {
                month.bank.send(&by_hand, &terms.output.asset, terms.plan.priced.output.get());
            }
            // The user has the input already.
            (Remedy::GivenBack, Some(_)) if state.was_paid_by_house() => {}
            (Remedy::GivenBack, Some(token)) => {
                let amount = i128::try_from(terms.input.amount.get()).unwrap();
                month.chain.transfer(TREASURY, &terms.request.user, token, amount);
            }
            // A prefunded input is the partner's again, and stays where it is.
            (Remedy::GivenBack, None) => {}
        }
    }
}
