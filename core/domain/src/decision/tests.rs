use rust_decimal::Decimal;

use crate::asset::{Asset, AssetDescriptor, AssetKind, Pair, Registry};
use crate::beneficiary::PayoutMethod;
use crate::fees::FeeSchedule;
use crate::ids::QuoteId;
use crate::intent::{ActorType, Side};
use crate::liquidity::{Holdings, LiquidityProvider, Reference, Snapshot};
use crate::quote::{AmountType, FirmRequest, firm};

use super::*;
use crate::plan::{PlanFault, plan_id, shown_fees};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The reference price of each pair, in the order of the registry.
const PRICES: [(&str, &str, &str); 7] = [
    ("USDC", "USD", "1"),
    ("USDC", "EUR", "0.92"),
    ("WETH", "USDC", "3000"),
    ("USD", "EUR", "0.92"),
    ("USD", "USDC", "1"),
    ("EUR", "USD", "1.08"),
    ("COIN", "USD", "3000"),
];

pub(crate) fn registry() -> Registry {
    let token = |address: &str| AssetKind::Erc20 { chain: "anvil".into(), address: address.into() };
    let fiat = |code: &str| AssetKind::Fiat { currency: code.into() };
    let asset = |symbol: &str, exponent, kind| Asset { symbol: symbol.into(), exponent, kind };
    let priced = |(base, quote, price): (&str, &str, &str)| Pair {
        reference_price: price.parse().ok(),
        ..pair(base, quote, fees(quote))
    };
    Registry {
        assets: vec![
            asset("USDC", 6, token("0xaa")),
            asset("WETH", 18, token("0xbb")),
            asset("COIN", 18, AssetKind::Native { chain: "anvil".into(), wrapped: "0xcc".into() }),
            asset("USD", 2, fiat("USD")),
            asset("EUR", 2, fiat("EUR")),
        ],
        pairs: PRICES.into_iter().map(priced).collect(),
    }
}

/// A pair without a configured price, for orders of any size.
pub(crate) fn pair(base: &str, quote: &str, fees: FeeSchedule) -> Pair {
    let (base, quote) = (base.into(), quote.into());
    Pair { base, quote, reference_price: None, fees, min_input: Minor::ZERO, max_input: None }
}

/// A payout fee of half a unit of a currency, none for a token.
fn fees(output: &str) -> FeeSchedule {
    let payout = if output == "USDC" { 0 } else { 50 };
    FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(payout),
        network_fee_minor: Minor::new(30_000),
    }
}

fn provider(id: &str, spread_bps: u32) -> LiquidityProvider {
    LiquidityProvider::new(id, format!("0x{id}"), spread_bps)
}

/// The providers' offers around the registry's prices.
pub(crate) fn snapshot(registry: &Registry, providers: &[LiquidityProvider]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for pair in &registry.pairs {
        let (input, output) = (registry.find(&pair.base).unwrap(), registry.find(&pair.quote).unwrap());
        let price = pair.reference_price.unwrap();
        let reference = Reference { price, valid_until: Timestamp::from_millis(i64::MAX) };
        let market = snapshot.pair_mut(&pair.base, &pair.quote);
        market.reference = Some(reference);
        market.offers = providers.iter().filter_map(|p| p.offer(&reference, input, output)).collect();
    }
    snapshot
}

/// Every provider holds this amount of every asset.
pub(crate) struct Each(pub(crate) u128);

impl Holdings for Each {
    fn available(&self, _provider_id: &str, _asset: &str) -> Minor {
        Minor::new(self.0)
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

/// The decision when one provider holds `available` of every asset.
fn decided(request: &IntentRequest, available: u128, quote: &QuoteLookup) -> Decision {
    decided_among(&[provider("north", 10)], request, available, quote)
}

fn decided_among(
    providers: &[LiquidityProvider],
    request: &IntentRequest,
    available: u128,
    quote: &QuoteLookup,
) -> Decision {
    decided_at(NOW, providers, request, available, quote)
}

fn decided_at(
    now: Timestamp,
    providers: &[LiquidityProvider],
    request: &IntentRequest,
    available: u128,
    quote: &QuoteLookup,
) -> Decision {
    let registry = registry();
    let snapshot = snapshot(&registry, providers);
    let market = Market { registry: &registry, snapshot: &snapshot, holdings: &Each(available), now };
    decide(request, &market, quote, "simulated-bank")
}

pub(crate) fn accepted(request: &IntentRequest) -> Plan {
    match decided(request, 1_000_000_000_000_000, &QuoteLookup::NotRequested) {
        Decision::Accepted(plan) => *plan,
        other => panic!("expected to be accepted, got {other:?}"),
    }
}

fn exact_output(output: u128, max_input: u128) -> Bounds {
    Bounds::ExactOutput { output: Minor::new(output), max_input: Minor::new(max_input) }
}

fn quote(amount: u128, amount_type: AmountType) -> FirmTerms {
    let registry = registry();
    let snapshot = snapshot(&registry, &[provider("north", 10)]);
    let market = Market { registry: &registry, snapshot: &snapshot, holdings: &Each(1_000_000), now: NOW };
    let (input, output) = (registry.find("USDC").unwrap(), registry.find("USD").unwrap());
    let amount = Minor::new(amount);
    let actor = Default::default();
    let requested = FirmRequest { input, output, amount, amount_type, side: Side::Sell, actor };
    firm(&market, &requested, QuoteId::from_unique("q")).unwrap()
}

/// An order with every field in which a fault can be made.
struct Order {
    request: IntentRequest,
    available: u128,
    quote: Option<FirmTerms>,
    used: bool,
    unknown: bool,
}

impl Order {
    fn new() -> Self {
        Self { request: request(), available: 1_000_000, quote: None, used: false, unknown: false }
    }

    fn quote(&mut self) -> &mut FirmTerms {
        self.request.quote_id = Some("qte_q".into());
        self.quote.get_or_insert_with(|| quote(100_000_000, AmountType::Source))
    }

    fn beneficiary(&mut self) -> &mut crate::beneficiary::Beneficiary {
        self.request.beneficiary.as_mut().unwrap()
    }

    fn decided(self) -> Decision {
        let lookup = match self.quote {
            _ if self.unknown => QuoteLookup::Unknown,
            None => QuoteLookup::NotRequested,
            Some(terms) => QuoteLookup::Found { terms: Box::new(terms), used: self.used },
        };
        decided(&self.request, self.available, &lookup)
    }
}

type Fault = fn(&mut Order);

/// Every reason in the contract's order, with a fault that leads to it.
const FAULTS: [(Reason, Fault); 12] = [
    (Reason::BeneficiaryRequiredForRemittance, |o| {
        o.request.output_recipient = Some("0xdef".into());
        o.beneficiary().name = None;
    }),
    (Reason::PermitRequired, |o| o.request.permit = None),
    (Reason::QuoteNotFound, |o| o.unknown = true),
    (Reason::QuoteExpired, |o| o.quote().valid_until = NOW),
    (Reason::QuoteAlreadyUsed, |o| {
        o.quote();
        o.used = true;
    }),
    (Reason::QuoteMismatch(QuoteTerm::Side), |o| o.quote().side = Side::Buy),
    (Reason::NoLiquidity, |o| o.available = 0),
    (Reason::BelowMinimumOutput, |o| {
        let (input, min_output) = (Minor::new(100_000_000), Minor::new(u128::MAX));
        o.request.bounds = Bounds::ExactInput { input, min_output };
    }),
    (Reason::AboveMaximumInput, |o| o.request.bounds = exact_output(9_935, 1)),
    (Reason::BeneficiaryAccountRequiredForFiatOutput, |o| o.beneficiary().account = None),
    (Reason::BeneficiaryIncompleteForJitPayout, |o| o.beneficiary().country = None),
    (Reason::BeneficiaryAddressRequiredForRail, |o| o.beneficiary().payout_method = Some(PayoutMethod::Wire)),
];

/// Faults that exclude each other: an unknown quote has no terms, an order fixes one side only.
fn exclusive(first: Reason, second: Reason) -> bool {
    let of_a_known_quote =
        [Reason::QuoteExpired, Reason::QuoteAlreadyUsed, Reason::QuoteMismatch(QuoteTerm::Side)]
            .contains(&second);
    (first == Reason::QuoteNotFound && of_a_known_quote)
        || (first == Reason::BelowMinimumOutput && second == Reason::AboveMaximumInput)
}

#[test]
fn each_fault_has_its_own_reason() {
    assert!(matches!(Order::new().decided(), Decision::Accepted(_)));
    for (reason, fault) in FAULTS {
        let mut order = Order::new();
        fault(&mut order);
        assert_eq!(order.decided(), Decision::Rejected(reason));
    }
}

#[test]
fn of_two_faults_the_earlier_in_the_contract_is_returned() {
    let mut pairs = 0;
    for (n, (first, earlier)) in FAULTS.iter().enumerate() {
        for (second, later) in FAULTS.iter().skip(n + 1) {
            if exclusive(*first, *second) {
                continue;
            }
            for order_of_making in [[earlier, later], [later, earlier]] {
                let mut order = Order::new();
                order_of_making.into_iter().for_each(|fault| fault(&mut order));
                assert_eq!(order.decided(), Decision::Rejected(*first), "{first:?} and {second:?}");
            }
            pairs += 1;
        }
    }
    assert_eq!(pairs, 62, "every pair of the twelve but the four that exclude each other");
}

#[test]
fn bank_details_are_required_by_rail_and_not_for_a_reference() {
    let reason = |edit: Fault| {
        let mut order = Order::new();
        edit(&mut order);
        order.decided()
    };
    assert_eq!(
        reason(|o| o.beneficiary().payout_method = None),
        Decision::Rejected(Reason::BeneficiaryIncompleteForJitPayout)
    );
    assert_eq!(
        reason(|o| {
            o.beneficiary().payout_method = None;
            o.beneficiary().swift_code = Some("DEUTDEFF".into());
        }),
        Decision::Rejected(Reason::BeneficiaryAddressRequiredForRail)
    );
    let referred = reason(|o| {
        let account = Some("bene_1:dest_2".into());
        o.request.beneficiary = Some(crate::beneficiary::Beneficiary { account, ..Default::default() });
    });
    assert!(matches!(referred, Decision::Accepted(_)));
    for symbol in ["JPY", "USDC"] {
        let mut order = Order::new();
        order.request.output_asset.symbol = symbol.into();
        assert_eq!(order.decided(), Decision::Rejected(Reason::NoLiquidity));
    }
}

#[test]
fn an_exact_input_is_accepted_with_surplus_over_its_floor() {
    let Decision::Accepted(plan) = decided(&request(), 1_000_000, &QuoteLookup::NotRequested) else {
        panic!()
    };
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
fn an_order_is_split_by_capacity_and_the_largest_slice_is_the_solver() {
    let providers = [provider("dear", 100), provider("cheap", 10)];
    let Decision::Accepted(plan) = decided_among(&providers, &request(), 7_000, &QuoteLookup::NotRequested)
    else {
        panic!()
    };
    let given: Vec<(&str, u128)> =
        plan.slices.iter().map(|slice| (slice.provider_id.as_str(), slice.output.get())).collect();
    assert_eq!(given, [("cheap", 7_000), ("dear", 2_958)]);
    assert_eq!((plan.solver_id.as_str(), plan.solver_wallet.as_str()), ("cheap", "0xcheap"));
    assert_eq!(plan.path.solver_id, "cheap");
    assert_eq!(plan.priced.gross_output, Minor::new(9_958));
    assert_eq!(plan.surplus, Minor::new(8));
    let none = decided_among(&providers, &request(), 4_900, &QuoteLookup::NotRequested);
    assert_eq!(none, Decision::Rejected(Reason::NoLiquidity));
}

#[test]
fn a_chains_coin_is_deposited_by_a_wallet_without_a_permit() {
    let mut request = request();
    request.input_asset.symbol = "COIN".into();
    request.input_asset.kind = AssetType::Native;
    (request.input_asset.address, request.permit) = (None, None);
    request.bounds =
        Bounds::ExactInput { input: Minor::new(100_000_000_000_000_000), min_output: Minor::ZERO };
    request.user = "somebody".into();
    let refused = decided(&request, 1_000_000, &QuoteLookup::NotRequested);
    assert_eq!(refused, Decision::Rejected(Reason::NoLiquidity), "nobody who could deposit");
    request.user = "0x00000000000000000000000000000000000000cc".into();
    let plan = accepted(&request);
    assert_eq!((plan.kind, plan.funding), (OrderKind::TokenToFiat, InputFunding::Deposit));
}

fn descriptor(symbol: &str) -> AssetDescriptor {
    let kind = if symbol.len() == 3 { AssetType::Fiat } else { AssetType::Erc20 };
    AssetDescriptor { kind, symbol: symbol.into(), address: None, chain: None, currency: None }
}

#[test]
fn every_order_kind_gets_its_own_plan() {
    let wallet = "0x00000000000000000000000000000000000000cc";
    let make = |input: &str, amount: u128, output: &str| {
        let mut request = request();
        request.user = wallet.into();
        (request.input_asset, request.output_asset) = (descriptor(input), descriptor(output));
        request.bounds = Bounds::ExactInput { input: Minor::new(amount), min_output: Minor::ZERO };
        match &mut request.permit {
            Some(permit) if input.len() > 3 => permit.amount_minor = Minor::new(amount),
            _ => request.permit = None,
        }
        accepted(&request)
    };
    let weth = make("WETH", 2_000_000_000_000_000_000, "USDC");
    assert_eq!((weth.kind, weth.funding), (OrderKind::TokenToToken, InputFunding::Permit));
    // 2 WETH less 5 bps at 2997; a token has no payout fee.
    assert_eq!(weth.priced.output, Minor::new(5_991_003_000));
    assert_eq!(weth.path.estimated_fill_time, 30);
    assert_eq!(
        serde_json::to_value(&weth.path.steps).unwrap(),
        serde_json::json!([{"type": "reserve", "asset": "USDC", "amountMinor": "5991003000", "chain": "anvil",
            "source": "LP:north"}])
    );
    let euros = make("USD", 10_000, "EUR");
    let funding = InputFunding::PartnerBalance { asset: "USD".into(), amount: Minor::new(10_000) };
    assert_eq!((euros.kind, euros.funding), (OrderKind::FiatToFiat, funding));
    assert_eq!(euros.path.estimated_fill_time, 3600);
    assert_eq!(
        serde_json::to_value(&euros.path.steps).unwrap(),
        serde_json::json!([{"type": "fiat_gateway", "asset": "EUR", "amountMinor": euros.priced.output,
            "provider": "simulated-bank", "currency": "EUR", "beneficiaryAccount": "000123456789"}])
    );
    let bought = make("USD", 10_000, "USDC");
    assert_eq!((bought.kind, bought.kind.pays_on_chain()), (OrderKind::FiatToToken, true));
    assert_eq!(bought.priced.output, Minor::new(99_850_050));
}

#[test]
fn a_token_output_requires_a_wallet_address() {
    let mut request = request();
    (request.input_asset, request.output_asset) = (descriptor("USD"), descriptor("USDC"));
    request.permit = None;
    request.bounds = Bounds::ExactInput { input: Minor::new(10_000), min_output: Minor::ZERO };
    request.user = "somebody".into();
    let decided = decided(&request, 1_000_000_000, &QuoteLookup::NotRequested);
    assert_eq!(decided, Decision::Rejected(Reason::NoLiquidity));
}

#[test]
fn a_range_is_never_filled_from_a_firm_quote() {
    let mut order = Order::new();
    order.quote();
    order.request.bounds = Bounds::Range {
        max_input: Minor::new(100_000_000),
        target_output: Minor::new(9_935),
        min_output: Minor::new(9_000),
        received_at: NOW,
    };
    assert_eq!(order.decided(), Decision::Rejected(Reason::QuoteMismatch(QuoteTerm::Amount)));
}

#[test]
fn the_score_of_a_path_is_its_cost_against_the_reference() {
    let plan = accepted(&request());
    // 99.35 of 100: 65 basis points.
    assert_eq!(plan.path.score, 65);
    let mut large = request();
    large.bounds = Bounds::ExactInput { input: Minor::new(1_000_000_000_000), min_output: Minor::ZERO };
    large.permit.as_mut().unwrap().amount_minor = Minor::new(1_000_000_000_000);
    assert_eq!(accepted(&large).path.score, 15);
    assert_eq!(Decimal::new(999, 3), plan.priced.rate);
}

#[test]
fn a_recipient_that_is_the_user_makes_no_remittance() {
    let mut request = request();
    request.output_recipient = Some("0xABC".into());
    request.beneficiary.as_mut().unwrap().name = None;
    // The name is missing for the payout, not for a third party.
    let incomplete = Decision::Rejected(Reason::BeneficiaryIncompleteForJitPayout);
    assert_eq!(decided(&request, 1_000_000, &QuoteLookup::NotRequested), incomplete);
}

#[test]
fn an_exact_output_computes_an_input_that_the_permit_covers() {
    let mut request = request();
    request.bounds = exact_output(9_935, 200_000_000);
    let Decision::Accepted(plan) = decided(&request, 1_000_000, &QuoteLookup::NotRequested) else { panic!() };
    assert_eq!(plan.priced.output, Minor::new(9_935));
    assert!(plan.priced.input <= Minor::new(100_000_000));
    request.permit.as_mut().unwrap().amount_minor = Minor::new(99_000_000);
    assert_eq!(decided(&request, 1_000_000, &QuoteLookup::NotRequested), Decision::PermitTooSmall);
}

#[test]
fn a_firm_quote_is_used_as_locked_or_rejected() {
    let mismatch = |term| Decision::Rejected(Reason::QuoteMismatch(term));
    let with = |edit: fn(&mut FirmTerms)| {
        let mut order = Order::new();
        edit(order.quote());
        order.decided()
    };
    let Decision::Accepted(plan) = with(|_| ()) else { panic!() };
    assert_eq!(shown_fees(&plan).unwrap().len(), 3);
    assert_eq!(with(|q| q.output_asset = "EUR".into()), mismatch(QuoteTerm::OutputAsset));
    assert_eq!(with(|q| q.priced.input = Minor::new(1)), mismatch(QuoteTerm::Amount));
}

#[test]
fn a_target_quote_and_an_exact_output_intent_deliver_the_locked_amount() {
    let terms = quote(9_935, AmountType::Target);
    let mut requested = request();
    requested.quote_id = Some("qte_q".into());
    requested.bounds = exact_output(9_935, terms.priced.input.get());
    let expected = terms.priced.clone();
    let Decision::Accepted(plan) =
        decided(&requested, 1_000_000, &QuoteLookup::Found { terms: Box::new(terms), used: false })
    else {
        panic!()
    };
    assert_eq!(plan.priced, expected);
}

#[test]
fn a_plan_with_contradictory_amounts_is_not_posted_or_read() {
    let plan = accepted(&request());
    assert_eq!(plan.check(), Ok(()));
    let more = |minor: Minor| minor.checked_add(Minor::new(1)).unwrap();
    let check = |break_it: fn(&mut Plan, &dyn Fn(Minor) -> Minor), fault: PlanFault| {
        let mut broken = plan.clone();
        break_it(&mut broken, &more);
        assert_eq!(broken.check(), Err(fault));
        let text = serde_json::to_string(&broken).unwrap();
        let refused = serde_json::from_str::<Plan>(&text).unwrap_err().to_string();
        assert!(refused.contains(&fault.to_string()), "{refused}");
    };
    check(|plan, more| plan.slices[0].input = more(plan.slices[0].input), PlanFault::Input);
    check(|plan, more| plan.priced.protocol_fee = more(plan.priced.protocol_fee), PlanFault::Input);
    check(|plan, _| plan.slices[0].input = Minor::new(u128::MAX), PlanFault::Input);
    check(|plan, more| plan.slices[0].output = more(plan.slices[0].output), PlanFault::GrossOutput);
    check(|plan, more| plan.priced.output = more(plan.priced.output), PlanFault::Output);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn a_quote_for_institutions_is_of_no_use_to_a_retail_intent() {
    for (priced, asked) in
        [(ActorType::Institution, ActorType::Retail), (ActorType::Retail, ActorType::Institution)]
    {
        let mut order = Order::new();
        order.request.actor_type = asked;
        order.quote().actor = priced;
        assert_eq!(order.decided(), Decision::Rejected(Reason::QuoteMismatch(QuoteTerm::ActorType)));
        let mut order = Order::new();
        order.request.actor_type = asked;
        order.quote().actor = asked;
        assert!(matches!(order.decided(), Decision::Accepted(_)));
    }
}

#[test]
fn a_payout_in_money_needs_a_name() {
    for name in [None, Some(String::new()), Some("  ".to_owned())] {
        let mut order = Order::new();
        order.beneficiary().name.clone_from(&name);
        assert_eq!(
            order.decided(),
            Decision::Rejected(Reason::BeneficiaryIncompleteForJitPayout),
            "{name:?}"
        );
        let mut order = Order::new();
        order.beneficiary().name = name;
        order.beneficiary().account = Some("bene_1:dest_2".into());
        assert!(matches!(order.decided(), Decision::Accepted(_)), "a registered one has its own");
    }
}
