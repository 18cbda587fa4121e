//! The operators' daily work: deposits and withdrawals of partners and providers, sweeps of fees and settlements of
//! claims on Fridays, and payments that came back. Each is requested by one operator and approved by another, and moves
//! money on the chain or at the bank as well.

use chrono::{DateTime, Datelike as _, Utc, Weekday};
use dvp_core::operators::approvals::approve;
use dvp_core::operators::ledger_operations::request;
use dvp_core::operators::operations::Action;
use dvp_core::operators::requests::Maker;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::ledger::{Account, Claimant, Owner};
use dvp_domain::money::Minor;
use dvp_domain::settlement::{Position, Remedy, State};
use dvp_domain::terms::Terms;
use dvp_rails::LegKind;
use dvp_store::ledger::statements::StatementAccount;
use dvp_store::ledger::{balances, closings};
use dvp_store::orders::bank;
use sqlx::types::Json;

use super::Month;
use super::chain::token;

/// The service's own wallet.
pub(super) const TREASURY: &str = "0x00000000000000000000000000000000000000f0";
const PROVIDERS: [&str; 2] = ["north", "south"];

pub(super) async fn noon(month: &mut Month) {
    resolve_contradictions(month).await;
    month.settle_down().await;
    resolve_returns(month).await;
    give_up_conversions(month).await;
    close_conversions(month).await;
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

async fn is_booked(month: &Month, reference: &str) -> bool {
    let mut conn = month.harness.pool().acquire().await.unwrap();
    let standing = bank::find_standing(&mut conn, reference).await.unwrap();
    standing.is_some_and(|standing| standing.against_unpaid().is_some())
}

/// Payments about which the bank has changed its word: operators record what it has done, or close what has come back;
/// on some days they get to nothing. The return of a payment that nobody has recorded as paid waits beside its debt.
async fn resolve_contradictions(month: &mut Month) {
    let rows = "select e.reference, e.terms, e.state from bank_payment b join execution e on e.reference = b.execution \
                where b.contradicting is not null and b.closed_at is null \
                  and not exists (select from effect where reference = e.reference \
                                    and not (kind = 'reversal' and e.state_name = 'owing')) order by e.reference";
    let rows: Vec<(String, Json<Terms>, Json<State>)> = month.harness.rows(rows).await;
    for (reference, Json(terms), Json(state)) in rows {
        if month.dice.throw(3) == 0 {
            continue;
        }
        let is_booked = is_booked(month, &reference).await;
        let is_unresolved = match &state {
            State::PayoutFailed { .. } | State::Owing { .. } => true,
            State::Completed { reversal: Some(open), .. } => open.resolved.is_none(),
            _ => false,
        };
        // The bank knows the payment by the order's reference alone.
        let at = month.now();
        if is_booked && is_unresolved {
            let provider_reference = reference.clone();
            month
                .harness
                .both_decide(&reference, Action::MarkPaid { leg: LegKind::Payout, provider_reference, at })
                .await;
        } else if matches!(state, State::Releasing { .. }) || month.fickle.will_say_more(&reference) {
            continue;
        } else if matches!(state, State::Owing { .. }) {
            if !state.is_released_debt() {
                continue;
            }
            let provider_reference = format!("S-{reference}");
            month.harness.both_decide(&reference, Action::ReturnDebt { provider_reference, at }).await;
            let amount = i128::try_from(terms.input.amount.get()).unwrap();
            let token = token(&terms.input.asset).unwrap();
            month.chain.transfer(TREASURY, &terms.request.user, token, amount);
        } else {
            month.harness.both_decide(&reference, Action::CloseContradiction).await;
        }
        month.report.operations += 1;
    }
}

/// Operators fail conversions about which the desk is silent, which it carries out all the same; on some days they wait.
async fn give_up_conversions(month: &mut Month) {
    let silent = "select e.reference from execution e join effect f on f.reference = e.reference \
                  where e.state_name = 'converting' and f.called_at < now() - interval '1 minute' order by 1";
    let silent: Vec<String> = sqlx::query_scalar(silent).fetch_all(month.harness.pool()).await.unwrap();
    for reference in silent {
        if month.dice.throw(2) == 0 {
            let (leg, code) = (LegKind::Offramp, "desk_silent".to_owned());
            month.harness.both_decide(&reference, Action::Fail { leg, code }).await;
            month.report.given_up += 1;
        }
    }
}

/// Treasury unwinds some of the conversions that no order has used; the others stay open.
async fn close_conversions(month: &mut Month) {
    let open = "select reference, terms, state from execution e where unresolved \
                and not exists (select from effect where reference = e.reference) order by reference";
    let open: Vec<(String, Json<Terms>, Json<State>)> = month.harness.rows(open).await;
    for (reference, Json(terms), Json(state)) in open {
        // Operators wait for what the bank may still say.
        let Some(position) = state.open_position().filter(|_| !month.fickle.will_say_more(&reference)) else {
            continue;
        };
        if !terms.plan.priced.gross_output.get().is_multiple_of(3) {
            let provider_reference = format!("T-{reference}");
            month.harness.both_decide(&reference, Action::CloseConversion { provider_reference }).await;
            if position == Position::Short {
                month.closed.remove(&reference);
            } else {
                month.closed.insert(reference);
            }
        }
    }
}

/// A payment that came back is made another way, or the input is given back.
async fn resolve_returns(month: &mut Month) {
    let rows = "select reference, terms, state from execution e \
                where state_name = 'reversed' and state #>> '{reversal,resolved}' is null \
                  and jsonb_typeof(state -> 'finality') = 'object' \
                  and not exists (select from effect where reference = e.reference) order by reference";
    let rows: Vec<(String, Json<Terms>, Json<State>)> = month.harness.rows(rows).await;
    for (reference, Json(terms), Json(state)) in rows {
        // Operators have asked the bank, which says that it is not done with the payment.
        if month.fickle.will_say_more(&reference) || is_booked(month, &reference).await {
            continue;
        }
        let pays_again = month.dice.throw(2) == 0 && !state.was_paid_by_house();
        let remedy = if pays_again { Remedy::PaidAgain } else { Remedy::GivenBack };
        // The bank knows the payment by this reference alone.
        let by_hand = format!("W{}", month.report.operations);
        let action = Action::ResolveReturn { remedy, provider_reference: by_hand.clone(), at: month.now() };
        month.harness.both_decide(&reference, action).await;
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
            (Remedy::GivenBack, None) | (Remedy::Stands, _) => {}
        }
    }
}
