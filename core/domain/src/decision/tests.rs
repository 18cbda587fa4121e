use crate::asset::{Asset, AssetKind, Pair, Registry};
use crate::beneficiary::Beneficiary;
use crate::ids::QuoteId;
use crate::intent::Side;
use crate::pricing::FeeSchedule;
use crate::quote::{AmountType, FirmRequest, LiquidityProvider, firm};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub(crate) fn registry() -> Registry {
    let token = AssetKind::Erc20 { chain: "anvil".into(), address: "0xaa".into() };
    let fiat = |code: &str| AssetKind::Fiat { currency: code.into() };
    Registry {
        assets: vec![
            Asset { symbol: "USDC".into(), exponent: 6, kind: token },
            Asset { symbol: "USD".into(), exponent: 2, kind: fiat("USD") },
            Asset { symbol: "EUR".into(), exponent: 2, kind: fiat("EUR") },
        ],
        pairs: vec![Pair { base: "USDC".into(), quote: "USD".into(), reference_price: "1".parse().unwrap() }],
    }
}

pub(crate) fn provider() -> LiquidityProvider {
    LiquidityProvider {
        id: "north".into(),
        wallet: "0x1".into(),
        spread_bps: 10,
        full_depth_bps: 100,
        fees: FeeSchedule {
            protocol_fee_bps: 5,
            payout_fee_minor: Minor::new(50),
            network_fee_minor: Minor::new(30_000),
        },
        candidate_ttl_sec: 15,
        firm_ttl_sec: 30,
    }
}

pub(crate) fn request() -> IntentRequest {
    let json = serde_json::json!({
        "intent_id": "6f1e2d3c-0000-4000-8000-000000000001", "client_reference": "ref-1", "user": "0xAbc",
        "input_asset": {"type": "erc20", "symbol": "USDC"}, "output_asset": {"type": "fiat", "symbol": "USD"},
        "bounds": {"exact_input": {"input": "100000000", "min_output": "9900"}},
        "quote_id": null, "deadline": 1_800_000_600_000_i64, "settlement_type": "hybrid", "output_recipient": null,
        "beneficiary": {"account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
        "permit": {"token": "0xaa", "amountMinor": "100000000", "spender": "0xee", "nonce": "0",
                   "deadline": 1_800_003_600, "signature": format!("0x{}", "11".repeat(65))},
        "actor_type": "institution", "side": "sell", "metadata": null,
    });
    serde_json::from_value(json).unwrap()
}

fn decided(request: &IntentRequest, available: u128, quote: &QuoteLookup) -> Decision {
    let (registry, provider) = (registry(), provider());
    let market = Market { registry: &registry, provider: &provider, available: Minor::new(available) };
    decide(request, &market, quote, "simulated-bank", NOW)
}

fn reason(change: impl FnOnce(&mut IntentRequest)) -> Reason {
    let mut request = request();
    change(&mut request);
    match decided(&request, 1_000_000, &QuoteLookup::NotAsked) {
        Decision::Rejected(reason) => reason,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

fn exact_output(output: u128, max_input: u128) -> Bounds {
    Bounds::ExactOutput { output: Minor::new(output), max_input: Minor::new(max_input) }
}

fn quote(amount: u128, amount_type: AmountType) -> FirmTerms {
    let (registry, provider) = (registry(), provider());
    let market = Market { registry: &registry, provider: &provider, available: Minor::new(1_000_000) };
    let (input, output) = (registry.find("USDC").unwrap(), registry.find("USD").unwrap());
    let asked = FirmRequest { input, output, amount: Minor::new(amount), amount_type, side: Side::Sell };
    firm(&market, &asked, QuoteId::from_unique("q"), NOW).unwrap()
}

#[test]
fn an_exact_input_is_accepted_with_surplus_over_its_floor() {
    let Decision::Accepted(plan) = decided(&request(), 1_000_000, &QuoteLookup::NotAsked) else { panic!() };
    // 100 USDC less 5 bps, at 0.999, less 0.50.
    assert_eq!(plan.priced.output, Minor::new(9_935));
    assert_eq!(plan.surplus, Minor::new(35));
    assert_eq!((plan.kind, &plan.funding), (OrderKind::TokenToFiat, &InputFunding::Permit));
    let [slice] = plan.slices.as_slice() else { panic!("one provider fills it") };
    assert_eq!(slice.input.checked_add(plan.priced.protocol_fee), Some(plan.priced.input));
    assert_eq!(slice.output, plan.priced.gross_output);
    assert_eq!(shown_fees(&plan), None);
    assert_eq!(plan_id(&plan.path.intent_id), "DVP-6F1E2D3C");
}

#[test]
fn each_fault_has_its_own_reason() {
    assert_eq!(
        reason(|r| {
            r.output_recipient = Some("0xdef".into());
            r.beneficiary = None;
        }),
        Reason::BeneficiaryRequiredForRemittance
    );
    assert_eq!(reason(|r| r.permit = None), Reason::PermitRequired);
    assert_eq!(reason(|r| r.output_asset.symbol = "JPY".into()), Reason::NoLiquidity);
    assert_eq!(reason(|r| r.output_asset.symbol = "EUR".into()), Reason::NoLiquidity);
    assert_eq!(
        reason(|r| r.bounds =
            Bounds::ExactInput { input: Minor::new(100_000_000), min_output: Minor::new(9_936) }),
        Reason::BelowMinimumOutput
    );
    assert_eq!(reason(|r| r.bounds = exact_output(9_935, 1)), Reason::AboveMaximumInput);
    assert_eq!(reason(|r| r.beneficiary = None), Reason::BeneficiaryAccountRequiredForFiatOutput);
    let change = |edit: fn(&mut Beneficiary)| reason(|r| edit(r.beneficiary.as_mut().unwrap()));
    assert_eq!(change(|b| b.country = None), Reason::BeneficiaryIncompleteForJitPayout);
    assert_eq!(change(|b| b.payout_method = None), Reason::BeneficiaryIncompleteForJitPayout);
    assert_eq!(
        change(|b| {
            b.payout_method = None;
            b.swift_code = Some("DEUTDEFF".into());
        }),
        Reason::BeneficiaryAddressRequiredForRail
    );
}

#[test]
fn of_two_faults_the_earlier_in_the_contract_is_returned() {
    let both = reason(|r| {
        r.permit = None;
        r.beneficiary = None;
        r.output_asset.symbol = "JPY".into();
    });
    assert_eq!(both, Reason::PermitRequired);
    let later = reason(|r| {
        r.bounds = Bounds::ExactInput { input: Minor::new(100_000_000), min_output: Minor::new(u128::MAX) };
        r.beneficiary = None;
    });
    assert_eq!(later, Reason::BelowMinimumOutput);
}

#[test]
fn a_remittance_to_oneself_needs_no_name() {
    let mut request = request();
    request.output_recipient = Some("0xABC".into());
    request.beneficiary.as_mut().unwrap().name = None;
    assert!(matches!(decided(&request, 1_000_000, &QuoteLookup::NotAsked), Decision::Accepted(_)));
}

#[test]
fn more_than_the_provider_has_is_no_liquidity() {
    assert_eq!(decided(&request(), 9_984, &QuoteLookup::NotAsked), Decision::Rejected(Reason::NoLiquidity));
    assert!(matches!(decided(&request(), 9_985, &QuoteLookup::NotAsked), Decision::Accepted(_)));
}

#[test]
fn an_exact_output_computes_its_input_and_the_permit_must_cover_it() {
    let mut request = request();
    request.bounds = exact_output(9_935, 200_000_000);
    let Decision::Accepted(plan) = decided(&request, 1_000_000, &QuoteLookup::NotAsked) else { panic!() };
    assert_eq!(plan.priced.output, Minor::new(9_935));
    assert!(plan.priced.input <= Minor::new(100_000_000));
    request.permit.as_mut().unwrap().amount_minor = Minor::new(99_000_000);
    assert_eq!(decided(&request, 1_000_000, &QuoteLookup::NotAsked), Decision::PermitTooSmall);
}

#[test]
fn a_firm_quote_is_taken_as_it_was_locked_or_not_at_all() {
    let with = |edit: fn(&mut FirmTerms), used| {
        let mut terms = quote(100_000_000, AmountType::Source);
        edit(&mut terms);
        let mut asked = request();
        asked.quote_id = Some("qte_q".into());
        decided(&asked, 1_000_000, &QuoteLookup::Found { terms: Box::new(terms), used })
    };
    let Decision::Accepted(plan) = with(|_| (), false) else { panic!() };
    assert_eq!(shown_fees(&plan).unwrap().len(), 3);
    assert_eq!(with(|_| (), true), Decision::Rejected(Reason::QuoteAlreadyUsed));
    assert_eq!(with(|q| q.valid_until = NOW, false), Decision::Rejected(Reason::QuoteExpired));
    assert_eq!(with(|q| q.side = Side::Buy, false), Decision::Rejected(Reason::QuoteMismatch));
    assert_eq!(with(|q| q.output_asset = "EUR".into(), false), Decision::Rejected(Reason::QuoteMismatch));
    assert_eq!(with(|q| q.priced.input = Minor::new(1), false), Decision::Rejected(Reason::QuoteMismatch));
    assert_eq!(
        decided(&request(), 1_000_000, &QuoteLookup::Unknown),
        Decision::Rejected(Reason::QuoteNotFound)
    );
}

#[test]
fn a_target_quote_and_an_exact_output_intent_deliver_the_locked_amount() {
    let terms = quote(9_935, AmountType::Target);
    let mut asked = request();
    asked.quote_id = Some("qte_q".into());
    asked.bounds = exact_output(9_935, terms.priced.input.get());
    let expected = terms.priced.clone();
    let Decision::Accepted(plan) =
        decided(&asked, 1_000_000, &QuoteLookup::Found { terms: Box::new(terms), used: false })
    else {
        panic!()
    };
    assert_eq!(plan.priced, expected);
}
