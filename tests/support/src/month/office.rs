//! What operators do at noon: money that partners and providers bring and take, sweeps of fees and settlements of claims
//! on Fridays, and payments that came back. Each is requested by one operator and approved by another, and moves money
//! on the chain or at the bank as well.

use chrono::{Datelike as _, Weekday};
use dvp_core::approvals::approve;
use dvp_core::ledger_operations::request;
use dvp_core::operations::{Action, Resolution, resolve};
use dvp_core::requests::Maker;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::ledger::{Claimant, Owner};
use dvp_domain::money::Minor;
use dvp_domain::settlement::Remedy;
use dvp_domain::terms::Terms;
use dvp_store::ledger::balances;
use sqlx::types::Json;

use super::Month;
use super::chain::token;

/// The service's own wallet.
pub(super) const TREASURY: &str = "0x00000000000000000000000000000000000000f0";
const PROVIDERS: [&str; 2] = ["north", "south"];

pub(super) async fn noon(month: &mut Month) {
    resolve_returns(month).await;
    // What follows from it moves fees, too.
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

async fn post(month: &mut Month, operation: &Operation) {
    month.report.operations += 1;
    let id = format!("O-{}", month.report.operations);
    let maker = Maker { operator: "jo", reason: "business", evidence: "a statement" };
    let mut conn = month.harness.pool().acquire().await.unwrap();
    let requested = request(&mut conn, &id, operation, maker).await.unwrap();
    approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
}

async fn sum(month: &Month, kind: &str, owner: &str, part: &str, asset: &str) -> i128 {
    let text: String = sqlx::query_scalar(
        "select coalesce(sum(amount), 0)::numeric(39, 0)::text from ledger_entry \
         where owner_kind = $1 and owner = $2 and part = $3 and asset = $4",
    )
    .bind(kind)
    .bind(owner)
    .bind(part)
    .bind(asset)
    .fetch_one(month.harness.pool())
    .await
    .unwrap();
    text.parse().unwrap()
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
            None => month.bank.deposit(&owner.name(), asset, amount),
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
        post(month, &operation).await;
        match token(asset) {
            Some(token) => month.chain.transfer(&wallet, &outside, token, i128::try_from(amount).unwrap()),
            None => month.bank.send(&owner.name(), asset, amount),
        }
    }
}

async fn sweep_fees(month: &mut Month, currency: &str) {
    let fees = sum(month, "fees", "", "total", currency).await;
    if fees > 0 {
        let amount = Minor::new(unsigned(fees));
        post(month, &Operation::FeeSweep { asset: currency.to_owned(), amount }).await;
        month.bank.send("treasury", currency, unsigned(fees));
    }
}

/// Each wallet pays what it holds of others' funds, as far as one other has a claim.
async fn settle_claims(month: &mut Month, asset: &str) {
    let wallet = |month: &Month, claimant: &Claimant| match claimant {
        Claimant::House => TREASURY.to_owned(),
        Claimant::Provider(id) => {
            month.harness.market.providers.iter().find(|one| one.id == *id).unwrap().wallet.clone()
        }
    };
    let mut claims = vec![(Claimant::House, sum(month, "house", "", "claim", asset).await)];
    for id in PROVIDERS {
        claims.push((Claimant::Provider(id.into()), sum(month, "provider", id, "claim", asset).await));
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
    let rows: Vec<(String, Json<Terms>)> = sqlx::query_as(
        "select reference, terms from execution e \
         where state_name = 'reversed' and state #>> '{reversal,resolved}' is null \
           and jsonb_typeof(state -> 'finality') = 'object' \
           and not exists (select from effect where reference = e.reference) order by reference",
    )
    .fetch_all(month.harness.pool())
    .await
    .unwrap();
    for (reference, Json(terms)) in rows {
        let remedy = if month.dice.throw(2) == 0 { Remedy::PaidAgain } else { Remedy::GivenBack };
        let action = Action::ResolveReturn { remedy, provider_reference: "W2".into(), at: month.now() };
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
                month.bank.send(&reference, &terms.output.asset, terms.plan.priced.output.get());
            }
            (Remedy::GivenBack, Some(token)) => {
                let amount = i128::try_from(terms.input.amount.get()).unwrap();
                month.chain.transfer(TREASURY, &terms.request.user, token, amount);
            }
            // A prefunded input is the partner's again, and stays where it is.
            (Remedy::GivenBack, None) => {}
        }
    }
}
