use super::*;
use crate::plan::OrderKind;
use crate::settlement::tests::terms_of;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const PATIENCE_MS: i64 = 60_000;

fn wallet(ledger: i128, in_flight: i128, held: i128, differs_since: Option<Timestamp>) -> WalletBalance {
    WalletBalance {
        whose: "the wallet of north".into(),
        account: "wallet:0x01".into(),
        asset: "USDC".into(),
        ledger,
        in_flight,
        held,
        differs_since,
    }
}

#[test]
fn what_is_in_flight_explains_a_difference_to_the_unit() {
    assert_eq!(wallet(100, -30, 70, None).judge(NOW, PATIENCE_MS), BalanceCheck::Agrees);
    let since = NOW.plus_millis(-1);
    assert_eq!(wallet(100, -30, 70, Some(since)).judge(NOW, PATIENCE_MS), BalanceCheck::Agrees);
    assert_eq!(wallet(100, -30, 71, None).judge(NOW, PATIENCE_MS), BalanceCheck::InTransit { since: NOW });
}

#[test]
fn a_difference_that_lasts_is_a_break_though_it_changes() {
    let since = NOW.plus_millis(-PATIENCE_MS);
    assert_eq!(wallet(100, 0, 71, Some(since)).judge(NOW, PATIENCE_MS), BalanceCheck::InTransit { since });
    let since = since.plus_millis(-1);
    let BalanceCheck::Differs { found, since: kept } =
        wallet(100, -30, 60, Some(since)).judge(NOW, PATIENCE_MS)
    else {
        panic!("no break");
    };
    assert_eq!((found.kind, kept), (BreakKind::BalanceDiffers, since));
    let difference = Difference { account: "wallet:0x01".into(), asset: "USDC".into(), minor: -10 };
    assert_eq!(found.difference, Some(difference));
    assert_eq!(
        found.detail,
        "the wallet of north holds 60 of USDC, the ledger has 100, and -30 is in flight; since 2027-01-15T07:58:59.999Z"
    );
}

/// What a settlement has moved, as `holder asset amount`.
fn lines(kind: OrderKind, events: &[&str]) -> Vec<String> {
    let terms = terms_of(kind);
    let at_block = events.iter().fold(OnChain::default(), |state, event| state.after(event));
    let name = |holder: &TokenHolder| match holder {
        TokenHolder::Escrow => "escrow".to_owned(),
        TokenHolder::Provider(id) => {
            assert_eq!(*id, terms.plan.solver_id);
            "solver".to_owned()
        }
    };
    let (input, output) = (terms.plan.priced.input.get(), terms.plan.priced.output.get());
    let amount = |amount: i128| match amount {
        amount if amount.unsigned_abs() == input && amount > 0 => "+input".to_owned(),
        amount if amount.unsigned_abs() == output && amount < 0 => "-output".to_owned(),
        other => other.to_string(),
    };
    moved(&terms, at_block)
        .iter()
        .map(|one| format!("{} {}", name(&one.holder), amount(one.amount)))
        .collect()
}

#[test]
fn what_a_settlement_has_moved_follows_from_its_events() {
    use OrderKind::{FiatToFiat, FiatToToken, TokenToFiat, TokenToToken};
    assert_eq!(lines(TokenToFiat, &[]), [""; 0]);
    assert_eq!(lines(TokenToFiat, &["Created", "Locked"]), ["escrow +input"]);
    assert_eq!(lines(TokenToFiat, &["Created", "Locked", "Filled"]), ["escrow +input"]);
    let settled = ["Created", "Locked", "Filled", "Released", "Settled"];
    assert_eq!(lines(TokenToFiat, &settled), ["solver +input"]);
    assert_eq!(lines(TokenToFiat, &["Created", "Locked", "Cancelled", "Refunded"]), [""; 0]);
    assert_eq!(lines(TokenToFiat, &["Created", "Locked", "Filled", "Refunded"]), [""; 0]);
    assert_eq!(lines(TokenToToken, &["Paid", "Settled"]), ["solver +input", "solver -output"]);
    assert_eq!(lines(FiatToToken, &["Paid"]), ["solver -output"]);
    assert_eq!(lines(FiatToFiat, &[]), [""; 0]);
}
