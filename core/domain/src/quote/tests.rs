use serde_json::Value;

use super::*;
use crate::asset::Registry;
use crate::decision::tests::{registry, snapshot};
use crate::liquidity::band::POOL_DEVIATION_BPS;
use crate::liquidity::curve::Pool;
use crate::liquidity::route::tests::offer;
use crate::liquidity::{Curve, Deliverer, Guard, LiquidityProvider, Snapshot, Unlimited};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

struct World {
    registry: Registry,
    snapshot: Snapshot,
}

impl World {
    /// Providers by spread; each trades every pair.
    fn of(spreads: &[u32]) -> Self {
        let registry = registry();
        let provider = |spread: &u32| LiquidityProvider::new(format!("lp{spread}"), "0x1", *spread);
        let providers: Vec<LiquidityProvider> = spreads.iter().map(provider).collect();
        let snapshot = snapshot(&registry, &providers);
        Self { registry, snapshot }
    }

    /// With a pool of WETH and USDC at 3000.
    fn with_pool(mut self) -> Self {
        let pool =
            Pool::product(Minor::new(1_000_000_000_000_000_000_000), Minor::new(3_000_000_000_000), 30);
        let pool = pool.unwrap();
        let guard = Guard { deviation_bps: POOL_DEVIATION_BPS, average: Some(pool.spot()) };
        let deliverer = Deliverer { provider_id: "desk".into(), wallet: "0x2".into() };
        let offer = offer("pool", Venue::Pool, Curve::Pool { deliverer, pool, guard });
        let offer = Offer { ttl_sec: 5, firm_ttl_sec: None, ..offer };
        self.snapshot.pair_mut("WETH", "USDC").offers.push(offer);
        self
    }

    fn market(&self) -> Market<'_> {
        Market { registry: &self.registry, snapshot: &self.snapshot, holdings: &Unlimited, now: NOW }
    }

    fn request<'a>(&'a self, input: &str, output: &str, amount: u128) -> IndicativeRequest<'a> {
        IndicativeRequest {
            request_id: "r",
            input: self.registry.find(input).unwrap(),
            output: self.registry.find(output).unwrap(),
            amount: Minor::new(amount),
            actor: ActorType::Institution,
            settlement_pref: SettlementType::Hybrid,
            max_slippage_bps: None,
        }
    }

    fn shown(&self, request: &IndicativeRequest<'_>) -> Vec<Value> {
        let candidates = indicative(&self.market(), request, 7);
        candidates.iter().map(|candidate| serde_json::to_value(candidate).unwrap()).collect()
    }

    fn firm(&self, input: &str, output: &str, amount: u128, amount_type: AmountType) -> Option<FirmTerms> {
        let request = FirmRequest {
            input: self.registry.find(input).unwrap(),
            output: self.registry.find(output).unwrap(),
            amount: Minor::new(amount),
            amount_type,
            side: Side::Sell,
            actor: ActorType::Institution,
        };
        firm(&self.market(), &request, QuoteId::from_unique("q"))
    }
}

const TEN_WETH: u128 = 10_000_000_000_000_000_000;

fn providers(candidates: &[Value]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate["provider"].as_str().unwrap()).collect()
}

#[test]
fn candidates_are_ranked_by_score_and_five_are_shown() {
    let world = World::of(&[60, 20, 50, 10, 40, 30]);
    let candidates = world.shown(&world.request("USDC", "USD", 100_000_000));
    assert_eq!(providers(&candidates), ["lp10", "lp20", "lp30", "lp40", "lp50"]);
    let scores: Vec<u64> =
        candidates.iter().map(|candidate| candidate["metadata"]["score"].as_u64().unwrap()).collect();
    assert!(scores.is_sorted(), "{scores:?}");
}

#[test]
fn a_candidate_has_every_key_of_the_contract() {
    let world = World::of(&[10]);
    let mut candidates = world.shown(&world.request("USDC", "USD", 100_000_000));
    let capacity = candidates[0]["legs"][0]["capacity"].take();
    let available = candidates[0]["metadata"]["liquidityAvailable"].take();
    assert_eq!(capacity.as_str().unwrap(), "3402823669209384634633746074317682114.55");
    assert!(available.is_number());
    let expected = serde_json::json!({
        "routeId": "lp:lp10:r", "ttlSec": 15, "totalCost": "99.35", "slippageBps": 0, "provider": "lp10", "hops": [],
        "legs": [{"from": "USDC", "to": "USD", "venue": "LP:lp10", "price": "0.999", "feeBps": 5, "capacity": null}],
        "metadata": {"latencyMs": 7, "basePrice": 1, "feesBps": 5, "liquidityAvailable": null, "score": 65,
            "constraintViolations": []},
    });
    assert_eq!(candidates[0], expected);
}

#[test]
fn a_violated_constraint_is_named_and_ranks_last() {
    let world = World::of(&[500]).with_pool();
    // A tenth of the pool: the price impact is nine percent, yet the provider's is worse.
    let mut request = world.request("WETH", "USDC", 10 * TEN_WETH);
    request.max_slippage_bps = Some(50);
    let candidates = world.shown(&request);
    let pool = candidates.iter().find(|candidate| candidate["provider"] == "desk").unwrap();
    assert_eq!(pool["metadata"]["constraintViolations"], serde_json::json!(["slippage>50"]));
    assert!(pool["slippageBps"].as_u64().unwrap() > 50);
    assert_eq!(candidates.last().unwrap(), pool);
    for (pref, violated) in [
        (SettlementType::Onchain, ("lp500", "settlement!=onchain")),
        (SettlementType::Offchain, ("desk", "settlement!=offchain")),
    ] {
        let request = IndicativeRequest { settlement_pref: pref, ..world.request("WETH", "USDC", TEN_WETH) };
        let candidates = world.shown(&request);
        let (provider, violation) = violated;
        let blamed = candidates.iter().find(|candidate| candidate["provider"] == provider).unwrap();
        assert_eq!(blamed["metadata"]["constraintViolations"], serde_json::json!([violation]));
        assert_ne!(&candidates[0], blamed);
    }
}

#[test]
fn an_amount_that_no_offer_fills_alone_is_quoted_in_several_legs() {
    let mut world = World::of(&[10, 20]);
    for offer in &mut world.snapshot.pair_mut("USDC", "USD").offers {
        offer.policy.max_fill = Minor::new(6_000);
    }
    let candidates = world.shown(&world.request("USDC", "USD", 100_000_000));
    let [split] = candidates.as_slice() else { panic!("{candidates:?}") };
    let venues: Vec<&Value> = split["legs"].as_array().unwrap().iter().map(|leg| &leg["venue"]).collect();
    assert_eq!(venues, ["LP:lp10", "LP:lp20"]);
    assert_eq!((&split["provider"], &split["legs"][1]["capacity"]), (&"lp10".into(), &"60".into()));
    assert!(world.shown(&world.request("USDC", "USD", 130_000_000)).is_empty());
}

#[test]
fn no_liquidity_or_a_stale_reference_gives_an_empty_list() {
    let mut world = World::of(&[10]);
    assert!(world.shown(&world.request("EUR", "USDC", 1_000)).is_empty(), "not a pair");
    assert!(world.shown(&world.request("USDC", "USD", 1)).is_empty(), "the fees exceed it");
    for offer in &mut world.snapshot.pair_mut("USDC", "USD").offers {
        offer.valid_until = NOW;
    }
    assert!(world.shown(&world.request("USDC", "USD", 100_000_000)).is_empty());
}

#[test]
fn a_firm_target_is_reached_by_the_smallest_input_for_every_kind() {
    let world = World::of(&[10, 25]).with_pool();
    for (input, output, target) in [
        ("USDC", "USD", 9_935),
        ("WETH", "USDC", 5_991_003_001),
        ("USD", "EUR", 12_345),
        ("USD", "USDC", 1_000_001),
    ] {
        let locked = world.firm(input, output, target, AmountType::Target).unwrap();
        assert_eq!(locked.priced.output, Minor::new(target));
        assert_eq!((locked.provider.as_str(), locked.valid_until), ("lp10", NOW.plus_millis(30_000)));
        let of = |amount| world.firm(input, output, amount, AmountType::Source).unwrap().priced.output;
        assert!(of(locked.priced.input.get()) >= Minor::new(target));
        assert!(of(locked.priced.input.get() - 1) < Minor::new(target), "{input} {output}");
    }
}

#[test]
fn a_pool_shows_a_price_and_does_not_commit_to_it() {
    let world = World::of(&[]).with_pool();
    assert_eq!(providers(&world.shown(&world.request("WETH", "USDC", TEN_WETH))), ["desk"]);
    assert_eq!(world.firm("WETH", "USDC", TEN_WETH, AmountType::Source), None);
}
